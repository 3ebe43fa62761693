"""HDF5: one file or many with samples along the first dimension of data sets, or many files with one sample each.

Contiguous, chunked and compressed data sets of any depth. Files are opened where they are read; of a chunked data set,
each chunk that a batch touches is read once.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from deepex.data.source import Source
from deepex.data.sources import READERS
from deepex.data.sources.reading.arrays import ArrayFiles, Channels, Layout, Shapes, are_single_samples
from deepex.data.sources.reading.dtypes import held_dtype
from deepex.data.sources.reading.files import damaged, first_readable, list_files, rows_together, runs
from deepex.data.sources.reading.labels import check_classes
from deepex.errors import ConfigError, DataError, SampleError


@dataclass(frozen=True, kw_only=True)
class Options:
    """What may be set.

    Attributes:
        datasets: paths inside the files, as in `climate/data`; none: all with numbers, the largest first, and of
            files with many samples only those with as many as the largest.
        names: of the fields, one a path; none: the last part of each path, or all of it where two end alike.
        one_per_file: each file is one sample; none: it is so for several files, unless the first and the last differ
            in shape or a row of numbers stands beside larger data sets of its length.
        channels: where channels stand in a sample of the first data set; `last` is moved to the first place.
        label: the field that holds class numbers, one a sample or one a point.
        classes: names of the classes, in the order of their numbers.
    """

    datasets: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    one_per_file: bool | None = None
    channels: Channels = "none"
    label: str | None = None
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what, given in (("datasets", self.datasets), ("names", self.names)):
            if len(set(given)) < len(given):
                raise ConfigError(f"{what} = {', '.join(given)}: one stands twice. Give each once.")
        check_classes(self.classes)
        if self.names and len(self.names) != len(self.datasets):
            raise ConfigError(
                f"{len(self.names)} names for {len(self.datasets)} datasets. Give as many, as in "
                "datasets=climate/data,climate/labels_0 names=x,label."
            )
        if self.classes and self.label is None:
            raise ConfigError("classes without a label. Say which field holds the class numbers: label=NAME.")


def open_source(path: Path, options: Options) -> Source:
    """The samples of an HDF5 file, or of all below a folder.

    Example: `open_source(Path("deepcam"), Options(datasets=("climate/data", "climate/labels_0"), channels="last"))`
    """
    files = list_files(path, READERS["hdf5"].suffixes)
    shapes_of = partial(_shapes_of, datasets=tuple(dataset.strip("/") for dataset in options.datasets))
    is_single = options.one_per_file
    if is_single is None:
        is_single = are_single_samples(files, shapes_of)
    shapes = first_readable(files, shapes_of)
    paths = list(shapes) if options.datasets else _default_paths(shapes, is_single, path)
    names = options.names or _default_names(paths)
    layout = Layout(one_per_file=is_single, channels=options.channels, label=options.label, classes=options.classes)
    return ArrayFiles(files, path, partial(Hdf5File, paths=dict(zip(names, paths, strict=True))), layout)


class Hdf5File:
    """An open file and the data sets that are fields."""

    def __init__(self, file: Path, paths: Mapping[str, str]) -> None:
        with _telling(file), ExitStack() as stack:
            self._file = stack.enter_context(h5py.File(file, "r"))
            datasets = {name: self._file.get(path) for name, path in paths.items()}
            if not all(isinstance(dataset, h5py.Dataset) for dataset in datasets.values()):
                found = _listed(_numeric(self._file))
                raise SampleError(
                    f"{file} has not all of {', '.join(paths.values())}; it has {found}. Make it like the others, or "
                    "leave it out with --skip-bad N."
                )
            self.arrays = {name: Hdf5Array(dataset) for name, dataset in datasets.items()}
            stack.pop_all()  # only what fails is closed here

    def close(self) -> None:
        self._file.close()


class Hdf5Array:
    """One data set."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self._dataset = dataset
        self.shape: tuple[int, ...] = dataset.shape
        self.dtype: np.dtype[Any] = dataset.dtype
        self.unit = _attribute(dataset, "units", "unit")
        self.description = _attribute(dataset, "long_name", "description")
        row_bytes = math.prod(dataset.shape[1:]) * dataset.dtype.itemsize
        self._together = rows_together(dataset.chunks[0], row_bytes) if dataset.chunks else 1

    def whole(self) -> NDArray[Any]:
        return np.asarray(self._dataset[()])

    def rows(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        stretches = runs(rows, self._together)
        firsts = rows[[run.start for run in stretches]]
        lasts = rows[[run.stop - 1 for run in stretches]]
        # One slice a stretch: lists of rows are slow in h5py, and `read_direct` is slower than a copy.
        pieces = [self._dataset[first : last + 1] for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True)]
        values = np.concatenate(pieces) if len(pieces) > 1 else pieces[0]
        # What stretches hold beside the rows wanted is left out, and rows wanted twice are repeated.
        starts = np.cumsum([0, *(lasts - firsts + 1)])[:-1]
        wanted = rows + np.repeat(starts - firsts, [run.stop - run.start for run in stretches])
        return values if np.array_equal(wanted, np.arange(len(values))) else values[wanted]


@contextmanager
def _telling(file: Path) -> Iterator[None]:
    """Say of a damaged file what is wrong with it."""
    try:
        yield
    except (OSError, RuntimeError, KeyError, ValueError) as error:  # all that h5py raises for one
        raise damaged(file, f"no whole HDF5 file: {error}") from error


def _shapes_of(file: Path, datasets: tuple[str, ...]) -> Shapes:
    """Shapes of the data sets that were asked for, or of all with numbers, by their paths inside the file."""
    with _telling(file), h5py.File(file, "r") as opened:
        found = _numeric(opened)
    if missing := [path for path in datasets if path not in found]:
        raise SampleError(
            f"{file} has no data set with numbers at {missing[0]}. It has: {_listed(found)}. Give one of these paths."
        )
    if not found:
        raise SampleError(f"{file} holds no data set with numbers. Give files that do.")
    return {path: found[path] for path in datasets or found}


def _numeric(file: h5py.File) -> Shapes:
    """All data sets with numbers, the largest first."""
    found: dict[str, h5py.Dataset] = {}

    def visit(path: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None and held_dtype(item.dtype) is not None:
            found[path] = item

    file.visititems(visit)
    by_size = sorted(found.items(), key=lambda entry: (-entry[1].size * entry[1].dtype.itemsize, entry[0]))
    return {path: dataset.shape for path, dataset in by_size}


def _default_paths(shapes: Shapes, is_single: bool, path: Path) -> list[str]:
    if is_single:
        return list(shapes)
    largest = next(iter(shapes.values()))
    if not largest:
        raise DataError(f"{path} holds single numbers only: {_listed(shapes)}. Give arrays of samples.")
    return [name for name, shape in shapes.items() if shape[:1] == largest[:1]]


def _default_names(paths: list[str]) -> tuple[str, ...]:
    """The last part of each path, or all of it where several end alike."""
    ends = [path.rpartition("/")[2] for path in paths]
    return tuple(end if ends.count(end) == 1 else path.replace("/", "_") for end, path in zip(ends, paths, strict=True))


def _listed(shapes: Shapes) -> str:
    return ", ".join(f"{path} {shape}" for path, shape in shapes.items()) or "none with numbers"


def _attribute(dataset: h5py.Dataset, *names: str) -> str:
    """The text of the first of these attributes that is there."""
    for name in names:
        value = dataset.attrs.get(name)
        value = value.item() if isinstance(value, np.ndarray) and value.size == 1 else value
        if isinstance(value, bytes | str):
            return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return ""
