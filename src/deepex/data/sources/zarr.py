"""Zarr stores, format 2 and 3: variables become channels, a dimension samples; the stores of a folder follow by name.

xarray and zarr read and decode them. A chunk that is not there holds the fill value, by Zarr's own rules: whether it
was never written or got lost, no reader can tell.
"""

import os
from pathlib import Path

import xarray as xr
import zarr  # noqa: F401  # xarray loads it by name; that it is missing should show here

from deepex.data.source import Source
from deepex.data.sources import READERS
from deepex.data.sources.reading.grids import GridSource, Options
from deepex.errors import DataError

__all__ = ["Options", "open_source"]

MARKS = {"zarr.json", ".zgroup", ".zmetadata"}


def open_source(path: Path, options: Options) -> Source:
    """The samples of a Zarr store, or of all stores in a folder.

    Example: `open_source(Path("ocean.zarr"), Options(sample="day", variables=("ssh", "sst")))`
    """
    return GridSource(path, list_stores(path), options, open_dataset)


def open_dataset(store: Path) -> xr.Dataset:
    """One store, its values decoded when they are read, its times left as numbers."""
    # Its consolidated metadata would be a copy that some tools forget to renew; on a file system it saves little.
    return xr.open_dataset(store, engine="zarr", consolidated=False, decode_times=False, cache=False)


def list_stores(path: Path) -> list[Path]:
    """The store at `path`, or all stores below that folder, in the order of their names."""
    stores = []
    for folder, below, files in os.walk(path):
        if folder.endswith(READERS["zarr"].suffixes) or not MARKS.isdisjoint(files):
            stores.append(Path(folder))
            below.clear()  # its chunks may be millions of files
    if not stores:
        raise DataError(
            f"there is no Zarr store at {path}: no folder there ends with .zarr or holds zarr.json or .zgroup. "
            "Give a store, unpacked if it is an archive, or a folder of stores."
        )
    return sorted(stores)
