from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
import xarray as xr

from deepex.data.sources.zarr import Options, list_stores, open_source
from deepex.errors import DataError, SampleError
from deepex.testing.source import check_source


def write(path: Path, first: int = 0, zarr_format: Literal[2, 3] = 3) -> Path:
    """Eight samples in chunks of two."""
    values = np.arange(first, first + 8, dtype=np.float32)[:, None].repeat(5, axis=1)
    data = xr.Dataset({"t": (("time", "lat"), values)})
    data.to_zarr(path, zarr_format=zarr_format, consolidated=False, encoding={"t": {"chunks": (2, 5)}})
    return path


def test_the_contract_holds(tmp_path: Path) -> None:
    write(tmp_path / "a.zarr", zarr_format=2)
    write(tmp_path / "b.zarr", first=8)
    check_source(lambda: open_source(tmp_path, Options()))


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part:UserWarning")  # on writing format 3
def test_consolidated_stores_are_read_as_others(tmp_path: Path, zarr_format: Literal[2, 3]) -> None:
    path = tmp_path / "a.zarr"
    xr.Dataset({"t": ("time", np.arange(3.0))}).to_zarr(path, zarr_format=zarr_format, consolidated=True)
    assert len(open_source(path, Options())) == 3


def test_stores_are_found_by_their_names_and_their_marks(tmp_path: Path) -> None:
    below = write(tmp_path / "runs" / "second", zarr_format=2)
    first = write(tmp_path / "runs" / "first.zarr")
    (tmp_path / "notes.txt").write_text("no store")
    assert list_stores(tmp_path) == [first, below]
    assert list_stores(first) == [first]
    source = open_source(tmp_path, Options())
    assert len(source) == 16
    assert source.name(9) == "runs/second:1"


@pytest.mark.parametrize(("zarr_format", "chunk"), [(2, "t/1.0"), (3, "t/c/1/0")])
@pytest.mark.parametrize("content", [b"", b"\xff" * 30])
def test_a_damaged_chunk_spoils_its_samples_only(
    tmp_path: Path, zarr_format: Literal[2, 3], chunk: str, content: bytes
) -> None:
    path = write(tmp_path / "a.zarr", zarr_format=zarr_format)
    (path / chunk).write_bytes(content)
    source = open_source(path, Options())
    out = {"x": torch.zeros(6, 1, 5)}
    source.read([7, 6, 5, 4, 1, 0], out)
    assert out["x"][:, 0, 0].tolist() == [7, 6, 5, 4, 1, 0]
    with pytest.raises(SampleError, match=r"t at a\.zarr:2 in .*a\.zarr can't be read"):
        source.read(range(6), out)


@pytest.mark.parametrize("content", ["", "[]"])
def test_one_bad_store_of_many_is_told_when_it_is_read(tmp_path: Path, content: str) -> None:
    for number, name in enumerate("abc"):
        write(tmp_path / f"{name}.zarr", first=8 * number)
    (tmp_path / "b.zarr" / "zarr.json").write_text(content)
    source = open_source(tmp_path, Options())
    assert len(source) == 17
    out = {"x": torch.zeros(2, 1, 5)}
    source.read([16, 7], out)
    assert out["x"][:, 0, 0].tolist() == [23, 7]
    with pytest.raises(SampleError, match=r"b\.zarr can't be read"):
        source.read([8], out)
    with pytest.raises(DataError, match=r"b\.zarr can't be read"):
        open_source(tmp_path / "b.zarr", Options())


def test_what_is_no_store_is_told(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone.zarr"):
        with pytest.raises(DataError, match=r"no Zarr store at .*zarr\.json"):
            open_source(path, Options())
    (tmp_path / "archive.zarr").write_bytes(b"PK")
    with pytest.raises(DataError, match="unpacked if it is an archive"):
        open_source(tmp_path / "archive.zarr", Options())
    array = write(tmp_path / "a.zarr") / "t"
    with pytest.raises(DataError, match="can't be read"):
        open_source(array, Options())
