"""What a task shows of its model, written and read again."""

from pathlib import Path

import numpy as np
import pytest

from deepex.errors import RunFolderError
from deepex.record.folder import RunFolder
from deepex.record.illustration import (
    Illustration,
    ImageGrid,
    Matrix,
    PointCloud,
    Scatter,
    ScatterPanel,
    read_illustration,
    write_illustration,
)

DRAWS = np.random.default_rng(0)
TRUE = DRAWS.random(5, dtype=np.float32)
SHOWN = Illustration(
    findings={"r2": 0.75},
    sentence="It shows <much>.",
    pictures=[
        ImageGrid(
            title="Photographs",
            caption="c",
            names=("in", "out"),
            images=DRAWS.integers(0, 256, (2, 2, 3, 4, 3), dtype=np.uint8),
            labels=["cat", "dog"],
            verdicts=[True, False],
        ),
        Matrix(title="Mistakes", caption="c", names=("cat", "dog"), counts=np.array([[3, 1], [0, 4]])),
        Scatter(title="h", caption="c", panels=[ScatterPanel(name="h", true=TRUE, predicted=1 - TRUE, note="n")]),
        PointCloud(
            title="Space",
            caption="c",
            axes=("x", "y", "z"),
            points=DRAWS.random((5, 3), dtype=np.float32),
            colours={"array": TRUE},  # any name a task likes
        ),
    ],
)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def test_every_kind_of_picture_comes_back_as_it_was(folder: RunFolder) -> None:
    assert read_illustration(folder) is None
    write_illustration(folder, SHOWN)
    found = read_illustration(folder)
    assert found is not None
    assert (found.findings, found.sentence) == (SHOWN.findings, SHOWN.sentence)
    for mine, theirs in zip(found.pictures, SHOWN.pictures, strict=True):
        assert type(mine) is type(theirs)
        np.testing.assert_equal(_plain(mine), _plain(theirs))


def test_damaged_files_are_named(folder: RunFolder) -> None:
    write_illustration(folder, SHOWN)
    (folder.path / "illustrations/arrays.npz").write_bytes(b"PK")
    with pytest.raises(RunFolderError, match=r"illustration.json or the arrays beside it are damaged"):
        read_illustration(folder)


def _plain(value: object) -> object:
    """Dataclasses as mappings, so that arrays in them are compared by value."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(each) for name, each in vars(value).items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value
