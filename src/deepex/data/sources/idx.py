"""IDX files, plain or gzip: the format of MNIST and its kin, one array a file.

A file of images (`train-images-idx3-ubyte`) has its classes in a second one, whose name says labels and idx1 instead.
"""

import gzip
import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepex.data.source import Source
from deepex.data.sources import READERS
from deepex.data.sources.numpy import NumpyArray
from deepex.data.sources.reading.arrays import ArrayFiles, Layout
from deepex.data.sources.reading.files import damaged, find_beside, list_files
from deepex.data.sources.reading.labels import FIELD, check_classes
from deepex.errors import ConfigError, DataError, SampleError

DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}  # by the third byte of a file


@dataclass(frozen=True, kw_only=True)
class Options:
    """What may be set.

    Attributes:
        field: what the array is called.
        labels: the file of class numbers; none: that of the same name with `labels` and `idx1`, if there is one.
        classes: names of the classes, in the order of their numbers; none: the numbers up to the largest.
    """

    field: str = "image"
    labels: str | None = None
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.field in ("", FIELD):
            raise ConfigError(f"field = '{self.field}'. Allowed: any name but '{FIELD}', as in field=digit.")
        check_classes(self.classes)


def open_source(path: Path, options: Options) -> Source:
    """The samples of an IDX file, or of all below a folder, with their classes where these stand beside them.

    Example: `open_source(Path("train-images-idx3-ubyte.gz"), Options())`
    """
    labels = _pair(path, options)
    is_labelled = None not in labels.values()
    if options.classes and not is_labelled:
        raise ConfigError(
            f"classes without labels for {next(iter(labels))}. Give a file of class numbers: labels=FILE."
        )
    classes = options.classes
    if is_labelled and not classes:
        classes = tuple(str(number) for number in range(_largest(labels.values()) + 1))
    layout = Layout(one_per_file=False, channels="first", label=FIELD if is_labelled else None, classes=classes)
    return ArrayFiles(list(labels), path, partial(IdxFile, field=options.field, labels=labels), layout)


class IdxFile:
    """The array of a file, images with one channel, and the class numbers that belong to it."""

    def __init__(self, file: Path, field: str, labels: Mapping[Path, Path | None]) -> None:
        array = read_idx(file)
        self.arrays = {field: NumpyArray(array[:, None] if array.ndim == 3 else array)}
        if (beside := labels[file]) is not None:
            self.arrays[FIELD] = NumpyArray(read_idx(beside))

    def close(self) -> None:
        """Nothing to do: memory goes when nothing refers to it."""


def read_idx(file: Path) -> NDArray[Any]:
    """The array of a file, in the machine's order of bytes.

    A file is two zeros, a byte for the type, one for the number of dimensions, these as big-endian int32, the values.
    """
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(file, error) from error
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in DTYPES or not data[3]:
        raise damaged(file, f"it is no IDX file: it begins with {data[:4].hex() or 'nothing'}")
    start = 4 + 4 * data[3]
    shape = tuple(int.from_bytes(data[place : place + 4], "big") for place in range(4, start, 4))
    dtype = np.dtype(DTYPES[data[2]])
    expected = start + math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise damaged(file, f"it has {len(data):,} bytes, and {expected:,} with the shape {shape} that it says")
    return np.frombuffer(data, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def _pair(path: Path, options: Options) -> dict[Path, Path | None]:
    """The files of samples, each with that of its labels; all have one, or none."""
    suffixes = READERS["idx"].suffixes
    files = list_files(path, (*suffixes, *(f"{suffix}.gz" for suffix in suffixes)))
    if options.labels is not None:
        named = find_beside(options.labels, path)
        samples = [file for file in files if file.resolve() != named.resolve()]
        if len(samples) != 1:
            raise ConfigError(f"labels = {named} for {len(samples)} files. Give it for one: name that, not {path}.")
        return {samples[0]: named}
    pairs = {file: _labels_beside(file) for file in files}
    pairs = {file: labels for file, labels in pairs.items() if file not in pairs.values()}
    alone = [file for file, labels in pairs.items() if labels is None]
    if alone and len(alone) < len(pairs):
        raise DataError(f"{alone[0]} has no labels beside it, other files have. Name one file, or add its labels.")
    return pairs


def _labels_beside(file: Path) -> Path | None:
    """The file of labels that belongs to one of images, if there is one."""
    name = file.name.replace("images", "labels").replace("idx3", "idx1")
    return file.with_name(name) if name != file.name and file.with_name(name).is_file() else None


def _largest(files: Iterable[Path | None]) -> int:
    try:
        return max(int(read_idx(file).max(initial=0)) for file in files if file is not None)
    except SampleError as error:
        raise DataError(f"the labels: {error}") from error
