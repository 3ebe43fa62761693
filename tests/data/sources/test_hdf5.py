import os
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from deepex.config import override
from deepex.data.source import Indices, Source, allocate, read_all
from deepex.data.sources import open_source
from deepex.data.sources.hdf5 import Options
from deepex.errors import ConfigError, DataError, SampleError
from deepex.sample import Batch
from deepex.testing.source import check_source

DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool", "uint16", "uint32"]


def _write(file: Path, arrays: dict[str, Any], **options: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(file, "w") as opened:
        for path, array in arrays.items():
            opened.create_dataset(path, data=array, **options)
    return file


def _numbers(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def _read(source: Source, *indices: int) -> Batch:
    out = allocate(source.spec, len(indices))
    source.read(indices, out)
    return out


LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunked": {"chunks": (4, 2, 3)},
    "compressed": {"chunks": (7, 5, 3), "compression": "gzip", "shuffle": True},
    "growing": {"maxshape": (None, 5, 3)},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_samples_of_one_file_in_any_order(tmp_path: Path, layout: str) -> None:
    values = _numbers(30, 5, 3)
    source = open_source(_write(tmp_path / "x.h5", {"x": values}, **LAYOUTS[layout]))
    assert source.spec.fields["x"].shape == (5, 3)
    assert len(source) == 30
    assert source.name(7) == "7"
    orders: list[Indices] = [range(30), [29, 0, 3, 3, 4, 17, 0], np.random.default_rng(0).permutation(30)]
    for order in orders:
        out = allocate(source.spec, len(order))
        source.read(order, out)
        assert np.array_equal(out["x"], values[np.asarray(order)])


def test_one_file_keeps_the_contract_of_a_source(tmp_path: Path) -> None:
    arrays = {"deep/x": _numbers(20, 4, 2), "label": np.arange(20) % 3}
    file = _write(tmp_path / "x.h5", arrays, chunks=True, compression="gzip")
    check_source(lambda: open_source(file, options=["label=label", "classes=a,b,c", "channels=last"]))


def test_climate_files_with_one_sample_each(tmp_path: Path) -> None:
    data = [_numbers(6, 8, 4, seed=index) for index in range(3)]
    label = [np.random.default_rng(index).integers(0, 3, (6, 8)).astype(np.float64) for index in range(3)]
    for index in range(3):
        _write(tmp_path / f"data-{index}.h5", {"climate/data": data[index], "climate/labels_0": label[index]})
    source = open_source(tmp_path, options=["channels=last", "label=labels_0", "classes=background,cyclone,river"])
    assert [source.name(index) for index in range(3)] == ["data-0.h5", "data-1.h5", "data-2.h5"]
    assert source.spec.fields["data"].shape == (4, 6, 8)
    assert source.spec.fields["data"].channels == ("0", "1", "2", "3")
    assert source.spec.fields["labels_0"].dtype == "int64"
    assert source.spec.fields["labels_0"].classes == ("background", "cyclone", "river")
    batch = _read(source, 2, 0, 2)
    assert np.array_equal(batch["data"], np.stack([data[2], data[0], data[2]]).transpose(0, 3, 1, 2))
    assert np.array_equal(batch["labels_0"], np.stack([label[2], label[0], label[2]]))


def test_many_files_keep_the_contract_of_a_source(tmp_path: Path) -> None:
    for index in range(20):  # more than are kept open
        _write(tmp_path / f"{index:02}.h5", {"x": _numbers(3, 4, seed=index), "scale": float(index)})
    source = open_source(tmp_path)
    assert source.spec.fields["scale"].shape == ()
    check_source(lambda: open_source(tmp_path))


def test_many_files_with_many_samples_follow_each_other(tmp_path: Path) -> None:
    parts = [_numbers(count, 3, seed=count) for count in (4, 1, 2)]
    for index, part in enumerate(parts):
        _write(tmp_path / f"{index}.h5", {"x": part})
    source = open_source(tmp_path)
    assert [source.name(index) for index in range(7)] == [
        "0.h5:0", "0.h5:1", "0.h5:2", "0.h5:3", "1.h5:0", "2.h5:0", "2.h5:1"
    ]  # fmt: skip
    assert np.array_equal(_read(source, 6, 0, 4, 3)["x"], np.concatenate(parts)[[6, 0, 4, 3]])


def test_when_files_are_one_sample_each(tmp_path: Path) -> None:
    for index in range(2):
        _write(tmp_path / "alike" / f"{index}.h5", {"x": _numbers(5, 2), "wavelength": _numbers(7)})
        _write(tmp_path / "labels" / f"{index}.h5", {"x": _numbers(5, 2), "y": np.arange(5)})
    _write(tmp_path / "lone" / "1.h5", {"x": _numbers(5, 2)})
    assert len(open_source(tmp_path / "alike")) == 2
    assert len(open_source(tmp_path / "alike", options=["one_per_file=false"])) == 10
    assert len(open_source(tmp_path / "labels")) == 10
    assert len(open_source(tmp_path / "labels", options=["one_per_file=true"])) == 2
    assert len(open_source(tmp_path / "lone")) == 5
    assert len(open_source(tmp_path / "lone", options=["one_per_file=true"])) == 1


def test_the_largest_data_set_says_how_many_samples_there_are(tmp_path: Path) -> None:
    arrays = {"a/mean": _numbers(4, 4), "b/x": _numbers(10, 4, 4), "b/y": _numbers(10), "words": [b"one", b"two"]}
    file = _write(tmp_path / "x.h5", arrays)
    assert list(open_source(file).spec.fields) == ["x", "y"]
    assert list(open_source(file, options=["datasets=/a/mean"]).spec.fields) == ["mean"]


def test_names_of_fields(tmp_path: Path) -> None:
    file = _write(tmp_path / "x.h5", {"a/x": _numbers(3, 2), "b/x": _numbers(3), "b/y": _numbers(3)})
    assert list(open_source(file).spec.fields) == ["a_x", "b_x", "y"]
    named = open_source(file, options=["names=p,q", "datasets=b/y,a/x"])
    assert list(named.spec.fields) == ["p", "q"]
    assert named.spec.fields["q"].shape == (2,)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_of_every_dtype_and_byte_order(tmp_path: Path, dtype: str, order: str) -> None:
    values = np.arange(12).reshape(6, 2).astype(order + np.dtype(dtype).str[1:])
    source = open_source(_write(tmp_path / "x.h5", {"x": values}))
    assert source.spec.fields["x"].dtype == {"uint16": "int32", "uint32": "int64"}.get(dtype, dtype)
    assert np.array_equal(read_all(source)["x"], values)


def test_units_and_descriptions(tmp_path: Path) -> None:
    file = _write(tmp_path / "x.h5", {"x": _numbers(3), "y": _numbers(3), "z": _numbers(3)})
    with h5py.File(file, "a") as opened:
        opened["x"].attrs.update({"units": "K", "long_name": "air temperature"})
        opened["y"].attrs.update({"unit": np.bytes_("m/s"), "description": np.array(["wind"], dtype=object)})
        opened["z"].attrs["units"] = 3
    fields = open_source(file).spec.fields
    assert (fields["x"].unit, fields["x"].description) == ("K", "air temperature")
    assert (fields["y"].unit, fields["y"].description) == ("m/s", "wind")
    assert (fields["z"].unit, fields["z"].description) == ("", "")


def test_labels_of_single_numbers_are_int64(tmp_path: Path) -> None:
    file = _write(tmp_path / "x.h5", {"x": _numbers(4, 2), "y": np.array([0, 1, 2, 9], dtype=np.uint8)})
    free = open_source(file, options=["label=y"])
    assert free.spec.fields["y"].dtype == "int64"
    assert read_all(free)["y"].tolist() == [0, 1, 2, 9]
    bound = open_source(file, options=["label=y", "classes=a,b,c"])
    assert _read(bound, 2, 1)["y"].tolist() == [2, 1]
    with pytest.raises(SampleError, match=r"x.h5, sample 3: label 9 is out of range. Allowed: 0 to 2 \(a, b and c\)"):
        _read(bound, 0, 3)
    parts = _write(tmp_path / "part.h5", {"y": np.array([0.0, 0.5, np.nan, -1.0])})
    fractions = open_source(parts, options=["label=y"])
    for index, told in [(1, "0.5"), (2, "nan"), (3, "-1.0")]:
        with pytest.raises(SampleError, match=f"label {told} is out of range. Allowed: whole numbers from 0"):
            _read(fractions, index)
    with pytest.raises(DataError, match="unknown field 'z'"):
        open_source(file, options=["label=z"])


def test_a_wrong_path_lists_what_there_is(tmp_path: Path) -> None:
    file = _write(tmp_path / "x.h5", {"climate/data": _numbers(3, 2), "words": [b"one"]})
    for wrong in ("climate/dat", "climate", "words"):
        with pytest.raises(DataError, match=rf"no data set with numbers at {wrong}. It has: climate/data \(3, 2\)"):
            open_source(file, options=[f"datasets={wrong}"])
    with pytest.raises(DataError, match="holds no data set with numbers"):
        open_source(_write(tmp_path / "words.h5", {"words": [b"one"]}))


def test_data_sets_that_do_not_hold_samples_are_refused(tmp_path: Path) -> None:
    file = _write(tmp_path / "x.h5", {"x": _numbers(3, 2), "y": _numbers(4), "one": 3.0})
    with pytest.raises(DataError, match=r"x \(3, 2\), y \(4,\): not the same number of samples.*one_per_file=true"):
        open_source(file, options=["datasets=x,y"])
    with pytest.raises(DataError, match="one is a single number and has no dimension for samples"):
        open_source(file, options=["datasets=x,one"])
    with pytest.raises(DataError, match="holds single numbers only: one"):
        open_source(_write(tmp_path / "one.h5", {"one": 3.0}))
    with pytest.raises(DataError, match=r"channels = last, but y of .* is a single number a sample"):
        open_source(file, options=["datasets=y", "channels=last"])
    with pytest.raises(DataError, match="holds no sample"):
        open_source(_write(tmp_path / "none.h5", {"x": _numbers(0, 2)}))


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def test_a_lone_file_that_is_damaged_is_refused(tmp_path: Path) -> None:
    file = _write(tmp_path / "x.h5", {"x": _numbers(300, 20)})
    _cut(file)
    with pytest.raises(DataError, match=r"x.h5 can't be read \(no whole HDF5 file: .*truncated") as caught:
        open_source(file)
    assert not isinstance(caught.value, SampleError)
    file.write_bytes(b"text")
    with pytest.raises(DataError, match=r"x.h5 can't be read \(no whole HDF5 file"):
        open_source(file)


@pytest.mark.parametrize("bad", [0, 1])
def test_one_of_many_files_that_is_damaged_is_told_on_reading(tmp_path: Path, bad: int) -> None:
    for index in range(3):
        _write(tmp_path / f"{index}.h5", {"x": _numbers(30, 20, seed=index)})
    _cut(tmp_path / f"{bad}.h5")
    single = open_source(tmp_path)
    assert len(single) == 3
    assert np.array_equal(_read(single, 2)["x"][0], _numbers(30, 20, seed=2))
    with pytest.raises(SampleError, match=rf"{bad}.h5 can't be read .*--skip-bad"):
        _read(single, 0, 1)
    many = open_source(tmp_path, options=["one_per_file=false"])
    assert len(many) == 61
    assert np.array_equal(_read(many, 60)["x"][0], _numbers(30, 20, seed=2)[-1])
    with pytest.raises(SampleError, match=rf"{bad}.h5 can't be read"):
        read_all(many)


def test_one_of_many_files_that_does_not_fit_is_told_on_reading(tmp_path: Path) -> None:
    good = {"x": _numbers(3, 2), "y": _numbers(4)}
    others: list[dict[str, Any]] = [
        {**good, "x": _numbers(3, 3)},
        {**good, "x": np.zeros((3, 2))},
        {"x": _numbers(3, 2)},
        {**good, "y": None},
    ]
    for index, arrays in enumerate([good, *others, good]):
        _write(tmp_path / f"{index}.h5", {name: array for name, array in arrays.items() if array is not None})
    with h5py.File(tmp_path / "4.h5", "a") as opened:
        opened.create_group("y")
    source = open_source(tmp_path)
    assert len(_read(source, 0, 5)["x"]) == 2
    with pytest.raises(SampleError, match=r"1.h5 holds .*x float32 \(3, 3\).*expected.* x float32 \(3, 2\)"):
        _read(source, 1)
    with pytest.raises(SampleError, match=r"2.h5 holds .*x float64 \(3, 2\).*expected.* x float32 \(3, 2\)"):
        _read(source, 2)
    for index in (3, 4):
        with pytest.raises(SampleError, match=rf"{index}.h5 has not all of x, y; it has x \(3, 2\)"):
            _read(source, index)


def test_a_damaged_chunk_is_told_with_its_samples(tmp_path: Path) -> None:
    values = _numbers(40, 100)
    file = _write(tmp_path / "x.h5", {"x": values}, chunks=(10, 100), compression="gzip")
    with h5py.File(file) as opened:
        chunk = opened["x"].id.get_chunk_info(2)
    content = bytearray(file.read_bytes())
    content[chunk.byte_offset : chunk.byte_offset + chunk.size] = bytes(chunk.size)
    file.write_bytes(content)
    source = open_source(file)
    assert np.array_equal(_read(source, 39, 0)["x"], values[[39, 0]])
    with pytest.raises(SampleError, match=r"x of .*x.h5, sample 25 can't be read .*--skip-bad"):
        _read(source, 25)
    with pytest.raises(SampleError, match=r"x of .*x.h5, sample 0 to 25 can't be read"):
        _read(source, 25, 0)


def test_a_source_that_was_read_is_read_after_a_fork(tmp_path: Path) -> None:
    file = _write(tmp_path / "x.h5", {"x": _numbers(20, 4)}, chunks=True)
    source = open_source(file)
    expected = read_all(source)["x"]
    # A bare child: torch warns of forks made by multiprocessing, and this one does nothing but read.
    child = os.fork()
    if child == 0:
        same = bool((read_all(source)["x"] == expected).all())
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (read_all(source)["x"] == expected).all()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["datasets=a,a"], "datasets = a, a: one stands twice"),
        (["names=a,a"], "names = a, a: one stands twice"),
        (["classes=a,a"], "a name stands twice"),
        (["channels=middle"], "unknown value 'middle'. Allowed: first, last, none"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        override(Options(), options)


def test_options_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    file = _write(tmp_path / "x.h5", {"x": _numbers(3)})
    with pytest.raises(ConfigError, match="1 names for 0 datasets"):
        open_source(file, options=["names=a"])
    with pytest.raises(ConfigError, match="classes without a label"):
        open_source(file, options=["classes=a"])


def test_a_chunk_that_spans_all_samples_is_not_read_whole(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "tall.h5", "w") as file:
        tall = file.create_dataset("x", (4000, 1 << 16), "u1", chunks=(4000, 64))
        tall[3999, 5] = 7
    source = open_source(tmp_path / "tall.h5")
    out = allocate(source.spec, 2)
    tracemalloc.start()
    source.read([3999, 0], out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert out["x"][0, 5] == 7
    assert not out["x"][1].any()
    assert peak < 100 << 20  # of 250 MiB
