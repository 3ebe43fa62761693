from pathlib import Path
from typing import Literal, get_args

import netCDF4
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from deepex.data.source import read_all
from deepex.data.sources.netcdf import Options, open_source
from deepex.errors import DataError, SampleError
from deepex.testing.source import check_source

Format = Literal["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA", "NETCDF4", "NETCDF4_CLASSIC"]
FORMATS = get_args(Format)


def write(path: Path, form: Format = "NETCDF4", dtypes: tuple[str, ...] = ("f4", "i2"), fixed: bool = True) -> None:
    """Four samples of a variable of each dtype, and one without samples."""
    with netCDF4.Dataset(path, "w", format=form) as file:
        file.title = "of odd length"
        file.createDimension("time", None)
        file.createDimension("lat", 3)
        if fixed:
            file.createVariable("height", "f8", ("lat",))[:] = [1, 2, 3]
        for number, dtype in enumerate(dtypes):
            variable = file.createVariable(f"v{number}", dtype, ("time", "lat"))
            variable.units = "K"
            variable[:] = np.arange(12).reshape(4, 3) + 100 * number


def test_the_contract_holds(tmp_path: Path) -> None:
    write(tmp_path / "a.nc")
    write(tmp_path / "b.nc", form="NETCDF3_CLASSIC")
    check_source(lambda: open_source(tmp_path, Options(targets=("v1",))))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtypes", [("f4", "i2"), ("i2",), ("i1", "f8", "i2")])
def test_every_kind_of_file_is_read_whole_and_refused_when_cut_short(
    tmp_path: Path, form: Format, dtypes: tuple[str, ...]
) -> None:
    path = tmp_path / "a.nc"
    write(path, form, dtypes)
    batch = read_all(open_source(path, Options()))
    for number in range(len(dtypes)):
        assert batch["x"][:, number].flatten().tolist() == [100 * number + value for value in range(12)]
    content = path.read_bytes()
    # Two bytes may be no more than the padding of the last record.
    for length in (0, 20, len(content) // 3, len(content) * 9 // 10, len(content) - 3):
        path.write_bytes(content[:length])
        with pytest.raises(DataError, match=r"a\.nc can't be read \(.*Copy it again"):
            open_source(path, Options())


def test_a_file_without_records_is_refused_when_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    xr.Dataset({"t": ("time", np.arange(50.0))}).to_netcdf(path, format="NETCDF3_CLASSIC")
    assert len(open_source(path, Options())) == 50
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"cut short: 5\d\d bytes of 5\d\d"):
        open_source(path, Options())


@pytest.mark.parametrize("form", FORMATS[:3])
def test_a_file_whose_number_of_records_was_never_written_is_refused(tmp_path: Path, form: Format) -> None:
    path = tmp_path / "a.nc"
    write(path, form)
    content = path.read_bytes()
    width = 8 if form == "NETCDF3_64BIT_DATA" else 4
    # The format's word for "as many as there are", which the netCDF library takes for a number.
    path.write_bytes(content[:4] + b"\xff" * width + content[4 + width :])
    with pytest.raises(DataError, match="cut short"):
        open_source(path, Options())


@settings(max_examples=50)
@given(st.binary(max_size=200), st.sampled_from([1, 2, 5]))
def test_any_header_is_understood_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, version: int
) -> None:
    path = tmp_path_factory.mktemp("netcdf") / "a.nc"
    path.write_bytes(b"CDF" + bytes([version]) + content)
    with pytest.raises(DataError):
        open_source(path, Options())


@pytest.mark.parametrize("content", [b"", b"no data", b"CDF\x01\x00\x00", b"\x89HDF\r\n\x1a\n" + bytes(90)])
def test_one_bad_file_of_many_is_told_when_it_is_read(tmp_path: Path, content: bytes) -> None:
    for name in "abc":
        write(tmp_path / f"{name}.nc")
    (tmp_path / "a.nc").write_bytes(content)
    source = open_source(tmp_path, Options())
    assert len(source) == 9
    assert source.name(0) == "a.nc"
    out = {"x": torch.zeros(2, 2, 3)}
    source.read([8, 1], out)
    assert out["x"][:, 0, 0].tolist() == [9, 0]
    with pytest.raises(SampleError, match=r"a\.nc can't be read"):
        source.read([0], out)


def test_a_damaged_chunk_spoils_its_samples_only(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    values = np.random.default_rng(0).random((20, 1024), dtype=np.float32)
    data = xr.Dataset({"t": (("time", "lat"), values)})
    data.to_netcdf(path, encoding={"t": {"chunksizes": (5, 1024), "zlib": True}})
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 200] = b"\xff" * 200
    path.write_bytes(bytes(content))
    source = open_source(path, Options())
    out = {"x": torch.zeros(1, 1, 1024)}
    bad = []
    for index in range(20):
        try:
            source.read([index], out)
        except SampleError as error:
            assert f"t at a.nc:{index} in {path} can't be read" in str(error)  # noqa: PT017  # which ones is the question
            bad.append(index)
        else:
            assert np.array_equal(out["x"][0, 0].numpy(), values[index])
    assert bad in ([5, 6, 7, 8, 9], [10, 11, 12, 13, 14])
    with pytest.raises(SampleError, match=f"t at a.nc:{bad[0]} "):
        source.read(range(20), {"x": torch.zeros(20, 1, 1024)})


def test_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing at"):
        open_source(tmp_path / "a.nc", Options())
    with pytest.raises(DataError, match=r"no file that ends with \.nc"):
        open_source(tmp_path, Options())
