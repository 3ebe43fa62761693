import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from deepex.config import override
from deepex.data.source import read_all
from deepex.data.sources import guess_reader, open_source
from deepex.data.sources.idx import Options, read_idx
from deepex.errors import ConfigError, DataError, SampleError
from deepex.testing.source import check_source

CODES = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}


def _save(file: Path, array: NDArray[Any]) -> Path:
    """Write a file as the format is described."""
    head = bytes([0, 0, CODES[array.dtype.name], array.ndim]) + np.array(array.shape, dtype=">i4").tobytes()
    data = head + array.astype(array.dtype.newbyteorder(">")).tobytes()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)
    return file


def _images(count: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, 6, 5), dtype=np.uint8)


def test_images_with_labels_beside_them_keep_the_contract_of_a_source(tmp_path: Path) -> None:
    values = _images(20)
    file = _save(tmp_path / "train-images-idx3-ubyte.gz", values)
    _save(tmp_path / "train-labels-idx1-ubyte.gz", (np.arange(20) % 3).astype(np.uint8))
    source = open_source(file)
    assert guess_reader(file) == "idx"
    assert source.spec.fields["image"].shape == (1, 6, 5)
    assert source.spec.fields["label"].classes == ("0", "1", "2")
    assert source.spec.fields["label"].dtype == "int64"
    batch = read_all(source)
    assert np.array_equal(batch["image"][:, 0], values)
    assert batch["label"].tolist() == [number % 3 for number in range(20)]
    check_source(lambda: open_source(file, options=["classes=a,b,c"]))


def test_a_folder_holds_parts_with_their_labels(tmp_path: Path) -> None:
    for part, count in (("train", 4), ("t10k", 2)):
        _save(tmp_path / f"{part}-images-idx3-ubyte", _images(count, seed=count))
        _save(tmp_path / f"{part}-labels-idx1-ubyte", np.full(count, count, dtype=np.uint8))
    source = open_source(tmp_path)
    assert [source.name(index) for index in (0, 2)] == ["t10k-images-idx3-ubyte:0", "train-images-idx3-ubyte:0"]
    assert read_all(source)["label"].tolist() == [2, 2, 4, 4, 4, 4]
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte has no labels beside it, other files have"):
        open_source(tmp_path)


def test_labels_may_have_any_name(tmp_path: Path) -> None:
    file = _save(tmp_path / "digits.idx", _images(3))
    _save(tmp_path / "classes.idx", np.array([1, 0, 1], dtype=np.int32))
    source = open_source(file, options=["labels=classes.idx", "field=digit"])
    assert read_all(source)["label"].tolist() == [1, 0, 1]
    assert source.spec.fields["digit"].shape == (1, 6, 5)
    assert list(open_source(file).spec.fields) == ["image"]
    assert len(open_source(tmp_path, options=["labels=classes.idx"])) == 3
    _save(tmp_path / "more.idx", _images(3))
    with pytest.raises(ConfigError, match=r"classes.idx for 2 files\. Give it for one: name that"):
        open_source(tmp_path, options=["labels=classes.idx"])


@pytest.mark.parametrize("dtype", CODES)
def test_all_types_are_read(tmp_path: Path, dtype: str) -> None:
    values = np.array([[1, 100], [3, 4]], dtype=dtype)
    found = read_idx(_save(tmp_path / "x.idx", values))
    assert np.array_equal(found, values)
    assert found.dtype == values.dtype


def test_damage_is_told(tmp_path: Path) -> None:
    whole = _save(tmp_path / "a.idx", _images(3)).read_bytes()
    (tmp_path / "a.idx").write_bytes(whole[:-1])
    with pytest.raises(
        SampleError, match=r"a.idx can't be read \(it has 105 bytes, and 106 with the shape \(3, 6, 5\)"
    ):
        read_idx(tmp_path / "a.idx")
    (tmp_path / "a.idx").write_bytes(b"PNG?")
    with pytest.raises(DataError, match=r"it is no IDX file: it begins with 504e473f"):
        open_source(tmp_path / "a.idx")
    (tmp_path / "a.idx").write_bytes(b"")
    with pytest.raises(DataError, match=r"it begins with nothing"):
        open_source(tmp_path / "a.idx")
    (tmp_path / "b.idx.gz").write_bytes(gzip.compress(whole)[:-9])
    with pytest.raises(DataError, match=r"b.idx.gz can't be read"):
        open_source(tmp_path / "b.idx.gz")


def test_labels_that_do_not_fit_are_told(tmp_path: Path) -> None:
    file = _save(tmp_path / "images-idx3-ubyte", _images(3))
    _save(tmp_path / "labels-idx1-ubyte", np.array([0, 1, 5], dtype=np.uint8))
    with pytest.raises(SampleError, match=r"sample 2: label 5 is out of range\. Allowed: 0 to 1 \(a and b\)"):
        read_all(open_source(file, options=["classes=a,b"]))
    _save(tmp_path / "labels-idx1-ubyte", np.array([0, 1], dtype=np.uint8))
    with pytest.raises(DataError, match=r"image \(3, 1, 6, 5\), label \(2,\): not the same number of samples"):
        open_source(file)
    (tmp_path / "labels-idx1-ubyte").write_bytes(b"?")
    with pytest.raises(DataError, match=r"the labels: .*labels-idx1-ubyte can't be read"):
        open_source(file)


def test_impossible_options_are_refused(tmp_path: Path) -> None:
    file = _save(tmp_path / "x.idx", _images(3))
    with pytest.raises(ConfigError, match=r"classes without labels for .*x.idx"):
        open_source(file, options=["classes=a,b"])
    for field in ("", "label"):
        with pytest.raises(ConfigError, match=r"Allowed: any name but 'label'"):
            Options(field=field)
    assert override(Options(), ["field=digit"]).field == "digit"
