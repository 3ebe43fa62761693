from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from deepex.config import override
from deepex.data.source import Source, allocate, read_all
from deepex.data.sources import open_source
from deepex.data.sources.numpy import Options
from deepex.errors import ConfigError, DataError, SampleError
from deepex.sample import Batch
from deepex.testing.source import check_source


def _save(file: Path, array: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    np.save(file, array)
    return file


def _numbers(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def _read(source: Source, *indices: int) -> Batch:
    out = allocate(source.spec, len(indices))
    source.read(indices, out)
    return out


def test_one_array_with_labels_keeps_the_contract_of_a_source(tmp_path: Path) -> None:
    values = _numbers(20, 4, 3)
    file = _save(tmp_path / "x.npy", values)
    _save(tmp_path / "classes.npy", np.arange(20) % 3)
    options = ["labels=classes.npy", "classes=a,b,c", "field=density"]
    source = open_source(file, options=options)
    assert source.name(5) == "5"
    assert source.spec.fields["density"].shape == (4, 3)
    assert source.spec.fields["label"].classes == ("a", "b", "c")
    batch = _read(source, 19, 0, 19)
    assert np.array_equal(batch["density"], values[[19, 0, 19]])
    assert batch["label"].tolist() == [1, 0, 1]
    check_source(lambda: open_source(file, options=options))


def test_arrays_of_one_npz_file_are_fields(tmp_path: Path) -> None:
    values = _numbers(6, 2, 4)
    np.savez_compressed(tmp_path / "x.npz", image=values, energy=np.arange(6.0))
    source = open_source(tmp_path / "x.npz", options=["channels=last"])
    assert source.spec.fields["image"].shape == (4, 2)
    assert source.spec.fields["image"].channels == ("0", "1", "2", "3")
    batch = _read(source, 3, 1)
    assert np.array_equal(batch["image"], values[[3, 1]].transpose(0, 2, 1))
    assert batch["energy"].tolist() == [3.0, 1.0]
    np.savez(tmp_path / "bad.npz", image=values, energy=np.arange(5.0))
    with pytest.raises(DataError, match=r"image \(6, 2, 4\), energy \(5,\): not the same number of samples"):
        open_source(tmp_path / "bad.npz")
    np.savez(tmp_path / "empty.npz")
    with pytest.raises(DataError, match=r"empty.npz can't be read \(it holds no array\)"):
        open_source(tmp_path / "empty.npz")


def test_a_folder_with_one_sample_a_file_keeps_the_contract_of_a_source(tmp_path: Path) -> None:
    for index in range(5):
        _save(tmp_path / "arrays" / f"{index}.npy", _numbers(3, 2, seed=index))
    _save(tmp_path / "arrays" / "classes.npy", np.arange(5, dtype=np.uint8))
    options = ["labels=classes.npy", "channels=first"]
    source = open_source(tmp_path / "arrays", options=options)
    assert source.name(3) == "3.npy"
    assert source.spec.fields["x"].shape == (3, 2)
    assert source.spec.fields["x"].channels == ("0", "1", "2")
    assert source.spec.fields["label"].classes == ("0", "1", "2", "3", "4")
    check_source(lambda: open_source(tmp_path / "arrays", options=options))


def test_a_folder_with_many_samples_a_file(tmp_path: Path) -> None:
    parts = [_numbers(count, 2, seed=count) for count in (3, 2)]
    for index, part in enumerate(parts):
        _save(tmp_path / f"{index}.npy", part)
    source = open_source(tmp_path)
    assert [source.name(index) for index in range(5)] == ["0.npy:0", "0.npy:1", "0.npy:2", "1.npy:0", "1.npy:1"]
    assert np.array_equal(_read(source, 4, 0, 3)["x"], np.concatenate(parts)[[4, 0, 3]])
    assert len(open_source(tmp_path / "0.npy", options=["one_per_file=true"])) == 1


@pytest.mark.parametrize("dtype", [">f4", "<f8", ">i2", "<u2", "u1", "?"])
def test_numbers_of_every_dtype_and_byte_order(tmp_path: Path, dtype: str) -> None:
    values = np.arange(12).reshape(4, 3).astype(dtype)
    source = open_source(_save(tmp_path / "x.npy", np.asfortranarray(values)))
    assert np.array_equal(read_all(source)["x"], values)


@pytest.mark.parametrize(
    ("labels", "classes", "problem"),
    [
        (np.array([0, 1, 5]), "classes=a,b", r"classes.npy, sample 2: label 5 is out of range. Allowed: 0 to 1"),
        (np.array([0, 1, -1]), "classes=", r"sample 2: label -1 is out of range. Allowed: 0 to 1 \(0 and 1\)"),
        (np.array([0, 1, 0.5]), "classes=", "sample 2: label 0.5 is out of range"),
        (np.array([0, 1, np.inf]), "classes=", "sample 2: label inf is out of range"),
        (np.array([0, 1, 255], dtype=np.uint8), "classes=a,b", "sample 2: label 255 is out of range"),
        (np.array([0, 1, 255], dtype=np.uint8), f"classes={','.join(map(str, range(12)))}", "8, 9 and 2 more"),
    ],
)
def test_labels_out_of_range_are_told_on_reading(tmp_path: Path, labels: Any, classes: str, problem: str) -> None:
    _save(tmp_path / "classes.npy", labels)
    source = open_source(_save(tmp_path / "x.npy", _numbers(3, 2)), options=["labels=classes.npy", classes])
    assert _read(source, 1, 0)["label"].tolist() == [1, 0]
    with pytest.raises(SampleError, match=problem):
        _read(source, 1, 2)


def test_labels_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    file = _save(tmp_path / "x.npy", _numbers(3, 2))
    _save(tmp_path / "classes.npy", np.arange(4))
    with pytest.raises(DataError, match=r"classes.npy holds int64 \(4,\). Give one class number for each of the 3"):
        open_source(file, options=["labels=classes.npy"])
    (tmp_path / "classes.npy").write_bytes(b"text")
    with pytest.raises(DataError, match=r"the labels: .*classes.npy can't be read"):
        open_source(file, options=["labels=classes.npy"])
    np.savez(tmp_path / "classes.npz", a=np.arange(3), b=np.arange(3.0))
    with pytest.raises(DataError, match=r"classes.npz holds int64 \(3,\), float64 \(3,\). Give one class number"):
        open_source(file, options=["labels=classes.npz"])
    with pytest.raises(DataError, match=r"there is no file gone.npy"):
        open_source(file, options=["labels=gone.npy"])
    with pytest.raises(DataError, match=r"holds only .*, the labels"):
        open_source(file, options=[f"labels={file}"])
    _save(tmp_path / "classes.npy", np.array([0, 1, 10**6]))
    with pytest.raises(DataError, match="the largest class number is 1000000"):
        open_source(file, options=["labels=classes.npy"])


def test_a_lone_file_that_is_damaged_is_refused(tmp_path: Path) -> None:
    file = _save(tmp_path / "x.npy", _numbers(300, 2))
    whole = file.read_bytes()
    for damaged in (whole[:1000], whole[:20], b"text", b""):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=r"x.npy can't be read \(.*Copy it again"):
            open_source(file)
    np.savez(tmp_path / "x.npz", x=_numbers(300))
    (tmp_path / "x.npz").write_bytes((tmp_path / "x.npz").read_bytes()[:500])
    with pytest.raises(DataError, match=r"x.npz can't be read \("):
        open_source(tmp_path / "x.npz")


def test_arrays_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}, {}], dtype=object))
    with pytest.raises(DataError, match=r"objects.npy can't be read \(.*Python objects"):
        open_source(tmp_path / "objects.npy")
    for name, values in {"words": np.array(["a"]), "complex": np.array([1j])}.items():
        file = _save(tmp_path / f"{name}.npy", values)
        with pytest.raises(DataError, match=rf"{name}.npy holds x as .*Allowed: bool, uint8"):
            open_source(file)
    with pytest.raises(DataError, match="x is a single number"):
        open_source(_save(tmp_path / "one.npy", np.array(3.0)))


@pytest.mark.parametrize("bad", [0, 1])
def test_one_of_many_files_that_is_bad_is_told_on_reading(tmp_path: Path, bad: int) -> None:
    for index in range(4):
        _save(tmp_path / f"{index}.npy", _numbers(3, 2, seed=index))
    (tmp_path / f"{bad}.npy").write_bytes(b"")
    _save(tmp_path / "2.npy", _numbers(2, 2))
    source = open_source(tmp_path, options=["one_per_file=true"])
    assert np.array_equal(_read(source, 3)["x"][0], _numbers(3, 2, seed=3))
    with pytest.raises(SampleError, match=rf"{bad}.npy can't be read"):
        _read(source, bad)
    with pytest.raises(SampleError, match=r"2.npy holds x float32 \(2, 2\); expected.* x float32 \(3, 2\)"):
        _read(source, 2)


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="field can't be empty"):
        Options(field="")
    with pytest.raises(ConfigError, match="stands twice"):
        override(Options(), ["classes=a,a"])
    file = _save(tmp_path / "x.npy", np.arange(3))
    with pytest.raises(ConfigError, match="classes without labels"):
        open_source(file, options=["classes=a"])
    _save(tmp_path / "classes.npy", np.arange(3))
    with pytest.raises(ConfigError, match="there is a field 'label' already"):
        open_source(file, options=["field=label", "labels=classes.npy"])
