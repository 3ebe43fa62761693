"""NumPy arrays: .npy files, mapped into memory, and .npz files, whose arrays are fields.

One file with samples along the first dimension, several such files, or a folder of files with one sample each.
"""

import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepex.data.source import Source
from deepex.data.sources import READERS
from deepex.data.sources.reading.arrays import ArrayFiles, Channels, Layout, Shapes, are_single_samples
from deepex.data.sources.reading.dtypes import held_dtype
from deepex.data.sources.reading.files import damaged, find_beside, list_files
from deepex.data.sources.reading.labels import FIELD, Labelled, Labels, check_classes, labels_by_number
from deepex.errors import ConfigError, DataError, SampleError

# What NumPy raises for files that are cut short, damaged, no arrays, or arrays of Python's objects.
UNREADABLE = (
    *(OSError, ValueError, EOFError, KeyError, NotImplementedError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What may be set.

    Attributes:
        field: what the array of an .npy file is called; those of an .npz file have names.
        one_per_file: each file is one sample; none: it is so for several files, unless the first and the last differ
            in shape or a row of numbers stands beside larger arrays of its length.
        channels: where channels stand in a sample of the first array; `last` is moved to the first place.
        labels: an .npy file of class numbers, one for each sample in the order of names; they become `label`.
        classes: names of the classes, in the order of their numbers; none: the numbers up to the largest.
    """

    field: str = "x"
    one_per_file: bool | None = None
    channels: Channels = "none"
    labels: str | None = None
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.field:
            raise ConfigError("field can't be empty. Give it a name, as in field=density.")
        check_classes(self.classes)


def open_source(path: Path, options: Options) -> Source:
    """The samples of an array file, or of all below a folder.

    Example: `open_source(Path("maps.npy"), Options(labels="classes.npy", classes=("folded", "unfolded")))`
    """
    if options.classes and options.labels is None:
        raise ConfigError("classes without labels. Give a file of class numbers: labels=FILE.npy.")
    table = None if options.labels is None else find_beside(options.labels, path)
    files = [
        file
        for file in list_files(path, READERS["numpy"].suffixes)
        if table is None or file.resolve() != table.resolve()
    ]
    if not files:
        raise DataError(f"{path} holds only {table}, the labels. Give the arrays that they are for.")
    open_file = partial(NumpyFile, field=options.field)
    is_single = options.one_per_file
    if is_single is None:
        is_single = are_single_samples(files, partial(_shapes_of, field=options.field))
    samples = ArrayFiles(files, path, open_file, Layout(one_per_file=is_single, channels=options.channels))
    if table is None:
        return samples
    if FIELD in samples.spec.fields:
        raise ConfigError(f"labels = {table}, but there is a field '{FIELD}' already. Leave out labels=, or rename it.")
    return Labelled(samples, _read_labels(table, samples, options.classes))


class NumpyFile:
    """The arrays of a file."""

    def __init__(self, file: Path, field: str) -> None:
        self.arrays: Mapping[str, NumpyArray] = {name: NumpyArray(array) for name, array in _load(file, field).items()}

    def close(self) -> None:
        """Nothing to do: memory goes when nothing refers to it."""


class NumpyArray:
    """One array, in memory or mapped."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array, self.shape, self.dtype = array, array.shape, array.dtype
        self.unit = self.description = ""

    def whole(self) -> NDArray[Any]:
        return self._array

    def rows(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        return np.take(self._array, rows, axis=0)  # twice as fast as an index


def _load(file: Path, field: str) -> dict[str, NDArray[Any]]:
    try:
        if file.suffix.lower() != ".npz":
            return {field: np.load(file, mmap_mode="r", allow_pickle=False)}
        # Opened here: NumPy leaves a file open whose archive is damaged.
        with open(file, "rb") as archive, np.load(archive, allow_pickle=False) as arrays:
            loaded = {name: arrays[name] for name in arrays.files}
    except UNREADABLE as error:
        raise damaged(file, error) from error
    if not loaded:
        raise damaged(file, "it holds no array")
    return loaded


def _shapes_of(file: Path, field: str) -> Shapes:
    return {name: array.shape for name, array in _load(file, field).items()}


def _read_labels(table: Path, samples: Source, classes: tuple[str, ...]) -> Labels:
    try:
        arrays = list(_load(table, FIELD).values())
    except SampleError as error:
        raise DataError(f"the labels: {error}") from error
    if len(arrays) != 1 or arrays[0].shape != (len(samples),) or held_dtype(arrays[0].dtype) is None:
        found = ", ".join(f"{array.dtype} {array.shape}" for array in arrays)
        raise DataError(f"{table} holds {found}. Give one class number for each of the {len(samples)} samples.")
    return labels_by_number(np.asarray(arrays[0]), classes, lambda index: f"{table}, sample {samples.name(index)}")
