"""A block of samples: read from a source, looked at, and written to its place in a packed file.

It is what a rank does while packing. It knows where the block goes, and nothing of the other ranks.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepex.data.packing.header import write_all
from deepex.data.packing.layout import Layout, Place
from deepex.data.packing.packed import NAMES, Column
from deepex.data.source import Source, allocate, as_array, read_good
from deepex.data.statistics import Moments
from deepex.errors import DataError
from deepex.files import explained


@dataclass(frozen=True, kw_only=True)
class Writing:
    """All that a rank needs to write any block: the source, and where its samples go."""

    source: Source
    names: Sequence[bytes]
    layout: Layout
    files: tuple[Path, ...]
    columns: tuple[Mapping[str, Column], ...]
    keep_nan: bool


@dataclass(frozen=True, kw_only=True)
class BlockResult:
    """What is known of a written block: checksums, statistics of good samples, what is wrong with the others."""

    number: int
    num_samples: int
    sha256: Mapping[str, str]
    moments: Mapping[str, Moments] = field(default_factory=dict)
    class_counts: Mapping[str, list[int]] = field(default_factory=dict)
    bad: Mapping[int, str] = field(default_factory=dict)

    def to_line(self) -> str:
        moments = {name: each.to_plain() for name, each in self.moments.items()}
        return json.dumps({**self.__dict__, "moments": moments})

    @classmethod
    def from_line(cls, line: str) -> "BlockResult":
        plain = json.loads(line)
        plain["moments"] = {name: Moments.from_plain(each) for name, each in plain["moments"].items()}
        plain["bad"] = {int(index): text for index, text in plain["bad"].items()}
        return cls(**plain)


def write_block(writing: Writing, number: int) -> BlockResult:
    """Read a block's samples, look at them, and write them to their place."""
    place = writing.layout.place(number)
    values, bad = _read(writing, place)
    good = np.array([index not in bad for index in place.samples])
    moments, counts = {}, {}
    for name, each in writing.source.spec.fields.items():
        fit = values[name] if good.all() else values[name][good]
        if len(fit):
            moments[name] = Moments.of(fit.reshape(len(fit), len(each.channels) or 1, -1))
        if each.classes:
            counts[name] = np.bincount(fit.reshape(-1), minlength=len(each.classes)).tolist()
    stored = {name: _stored(array) for name, array in values.items()}
    width = writing.layout.name_bytes
    stored[NAMES] = np.array(writing.names[place.first : place.last], dtype=f"S{width}").view(np.uint8)
    descriptor = os.open(writing.files[place.shard], os.O_WRONLY)
    try:
        with explained_writing(writing.files[place.shard]):
            for name, array in stored.items():
                column = writing.columns[place.shard][name]
                write_all(descriptor, array.data.cast("B"), column.offset + place.row * column.row_bytes)
    finally:
        os.close(descriptor)
    return BlockResult(
        number=number,
        num_samples=len(place),
        sha256={name: hashlib.sha256(array.data).hexdigest() for name, array in stored.items()},
        moments=moments,
        class_counts=counts,
        bad=bad,
    )


def verify_block(writing: Writing, result: BlockResult) -> bool:
    """Whether a block stands on disk as its result says."""
    place = writing.layout.place(result.number)
    with open(writing.files[place.shard], "rb") as file:
        for name, expected in result.sha256.items():
            column = writing.columns[place.shard][name]
            file.seek(column.offset + place.row * column.row_bytes)
            written = file.read(len(place) * column.row_bytes)
            if hashlib.sha256(written).hexdigest() != expected:
                return False
    return True


@contextmanager
def explained_writing(path: Path) -> Iterator[None]:
    """Turn a failure to write into an error with its cure."""
    goes_on = "; what is done is kept, and the same command goes on with it."
    elsewhere, otherwise = f"choose another place{goes_on}", f"Choose a place that you may write to{goes_on}"
    with explained(path, DataError, elsewhere=elsewhere, otherwise=otherwise):
        yield


def _read(writing: Writing, place: Place) -> tuple[dict[str, NDArray[Any]], dict[int, str]]:
    """The values of a block by field, and what is wrong with which samples; those hold zeros."""
    source = writing.source
    batch = allocate(source.spec, len(place))
    unreadable = read_good(source, place.samples, batch)
    bad = {place.first + row: text for row, text in unreadable.items()}
    values = {name: as_array(tensor) for name, tensor in batch.items()}
    for index, text in _unfit(writing, values, place):
        bad.setdefault(index, text)
    for index in bad:
        for array in values.values():
            array[index - place.first] = 0
    return values, bad


def _unfit(writing: Writing, values: Mapping[str, NDArray[Any]], place: Place) -> Iterator[tuple[int, str]]:
    """Samples with a class that does not exist, or with values that are no numbers."""
    for name, each in writing.source.spec.fields.items():
        array = values[name]
        if each.classes:
            for row in np.flatnonzero((array < 0) | (array >= len(each.classes))):
                yield (
                    place.first + int(row),
                    f"{_called(writing, place, row)} has the class {array[row]} in '{name}'. Allowed: 0 to "
                    f"{len(each.classes) - 1}. Correct it, or leave it out with --skip-bad N",
                )
        if array.dtype.kind == "f" and not writing.keep_nan and not _are_finite(array):
            flat = array.reshape(len(array), -1)
            for row in np.flatnonzero(~np.isfinite(flat).all(axis=1)):
                wrong = int((~np.isfinite(flat[row])).sum())
                yield (
                    place.first + int(row),
                    f"{_called(writing, place, row)} has {wrong:,} of {flat.shape[1]:,} values in '{name}' that are "
                    "NaN or infinite. Correct it, leave it out with --skip-bad N, or keep such values with --keep-nan",
                )


def _are_finite(array: NDArray[Any]) -> bool:
    """Whether all values are numbers: their sum is not, if one is not."""
    with np.errstate(all="ignore"):
        return math.isfinite(array.sum(dtype=np.float64))


def _called(writing: Writing, place: Place, row: Any) -> str:
    return f"sample {place.first + int(row)} ({writing.names[place.first + int(row)].decode()})"


def _stored(array: NDArray[Any]) -> NDArray[Any]:
    """Rows as they stand in the file."""
    if array.dtype == np.bool_:
        return np.packbits(array.reshape(len(array), -1), axis=1)
    return np.ascontiguousarray(array)
