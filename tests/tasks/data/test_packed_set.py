"""A task's packed file: the fields it needs are there, or the error says what to do; whole samples change sides."""

from pathlib import Path

import numpy as np
import pytest

from deepex.data import ArraySource, Preparation
from deepex.data.packing.pack import PackConfig, pack
from deepex.data.source import read_field
from deepex.errors import DataError
from deepex.tasks.data.packed_set import open_set, split_set


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    source = ArraySource({"x": np.arange(6, dtype=np.float32), "label": np.zeros(6, dtype=np.int64)})
    return pack(source, tmp_path / "x.h5", PackConfig()).path


def test_every_sample_is_on_one_side(packed: Path) -> None:
    source = open_set(packed, fields=("x", "label"), advice="")
    splits = split_set(source, source.column("x") > 3, Preparation())
    assert read_field(splits.train, "x").tolist() == [0, 1, 2, 3]
    assert read_field(splits.validation, "x").tolist() == [4, 5]
    assert splits.content_sha256 == source.content_sha256


def test_a_file_without_its_fields_is_named_with_them_and_what_to_do(packed: Path) -> None:
    with pytest.raises(DataError, match=r"x\.h5 has no image and no validation\. Make it with: this"):
        open_set(packed, fields=("validation", "x", "image"), advice="Make it with: this")
