"""What scientists have, as sources: one reader a file, imported when a path needs it. The table in plain sight.

A reader is a module with `Options`, a frozen dataclass of what may be set, and `open_source(path, options)`.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

from deepex.config import override
from deepex.data.source import Source
from deepex.errors import DataError, unknown
from deepex.reference import is_reference, load_object


@dataclass(frozen=True, kw_only=True)
class Reader:
    """What a reader reads, how its files end, what to install for it, and which packages decide on what it reads."""

    reads: str
    suffixes: tuple[str, ...]
    extra: str = ""
    libraries: tuple[str, ...] = ()


READERS = {
    "images": Reader(
        reads="PNG and JPEG images in folders", suffixes=(".png", ".jpg", ".jpeg"), libraries=("pillow", "kornia-rs")
    ),
    "hdf5": Reader(
        reads="HDF5: many samples in a file, or a sample in each of many",
        suffixes=(".h5", ".hdf5", ".hdf", ".he5"),
        libraries=("h5py",),
    ),
    "netcdf": Reader(
        reads="NetCDF, by xarray", suffixes=(".nc", ".nc4", ".cdf"), extra="data", libraries=("xarray", "netCDF4")
    ),
    "zarr": Reader(reads="Zarr, by xarray", suffixes=(".zarr",), extra="data", libraries=("xarray", "zarr")),
    "trajectory": Reader(
        reads="molecular trajectories, by MDAnalysis, as contact maps",
        suffixes=(".dcd", ".xtc", ".trr", ".pdb", ".gro", ".ncdf", ".lammpsdump", ".xyz"),
        extra="data",
        libraries=("MDAnalysis",),
    ),
    "ascii": Reader(reads="matrices as text, one or many in a file", suffixes=(".txt", ".dat", ".csv", ".array")),
    "numpy": Reader(reads="NumPy arrays", suffixes=(".npy", ".npz")),
    "idx": Reader(reads="IDX files of images and their labels, as MNIST's", suffixes=("-ubyte", ".idx")),
    "tfrecord": Reader(
        reads="TFRecord files of examples, as CosmoFlow's",
        suffixes=(".tfrecord", ".tfrecords"),
        extra="data",
        libraries=("google-crc32c",),
    ),
}


def open_source(path: Path, reader: str | None = None, options: Sequence[str] = ()) -> Source:
    """The samples at a path; `options` are `key=value` texts for its reader, which is guessed unless given.

    Example: `open_source(Path("photos"), options=["channels=3", "height=224", "width=224"])`
    """
    name = reader or guess_reader(path)
    if is_reference(name):
        return _open_own(name, path, options)
    if name not in READERS:
        raise DataError(unknown("reader", name, [*READERS, "file.py:name"]))
    try:
        module = import_module(f"deepex.data.sources.{name}")
        source: Source = module.open_source(path, override(module.Options(), list(options)))
    except ModuleNotFoundError as error:
        cure = f"pip install 'deepex[{READERS[name].extra}]'" if READERS[name].extra else f"pip install {error.name}"
        raise DataError(f"to read {READERS[name].reads}, {error.name} is missing. Install it with: {cure}") from error
    return source


def _open_own(name: str, path: Path, options: Sequence[str]) -> Source:
    """A path by a reader of a user's own: a class with `Options` and `open_source`, or a function of a path."""
    found = load_object(name)
    if hasattr(found, "open_source"):
        chosen = override(found.Options(), list(options)) if hasattr(found, "Options") else None
        source = found.open_source(path) if chosen is None else found.open_source(path, chosen)
        options = () if chosen is not None else options
    else:
        source = found(path)
    if options:
        raise DataError(f"reader {name} has no Options, so {' '.join(options)} can't be set. Give it a class Options.")
    missing = [part for part in ("spec", "read", "name", "__len__") if not hasattr(source, part)]
    if missing:
        raise DataError(
            f"reader {name} returned a {type(source).__name__}, which is no source: it has no {', '.join(missing)}. "
            "See the protocol deepex.data.Source."
        )
    return cast(Source, source)


def guess_reader(path: Path) -> str:
    """The reader for a path, by how its name ends; for a folder, by how the first of its files does.

    >>> guess_reader(Path("run7.nc"))
    'netcdf'
    """
    if (named := _by_suffix(path)) is not None:
        return named
    if not path.exists():
        raise DataError(f"there is nothing at {path}. Give a file or folder that exists.")
    first = _first_file(path)
    if first is None:
        endings = ", ".join(sorted({suffix for reader in READERS.values() for suffix in reader.suffixes}))
        what = "holds no file that ends" if path.is_dir() else "does not end"
        raise DataError(f"{path} {what} with one of {endings}. Name its reader with --reader: {', '.join(READERS)}.")
    return first


def _first_file(folder: Path) -> str | None:
    """The reader of the first file below a folder that has one; a Zarr store is a folder itself."""
    for _, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted([*folders, *names]):
            if found := _by_suffix(Path(name)):
                return found
    return None


def _by_suffix(path: Path) -> str | None:
    """A path's reader by its ending, that of compression aside."""
    name = path.name.lower().removesuffix(".gz")
    return next((key for key, reader in READERS.items() if name.endswith(reader.suffixes)), None)
