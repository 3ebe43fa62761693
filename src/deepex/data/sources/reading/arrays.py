"""Samples that are arrays in files: many in a file, along the first dimension, or one in each.

What HDF5 and NumPy share. It knows no format: a reader opens a file and hands over its arrays.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from deepex.data.source import Indices, as_array
from deepex.data.sources.reading.dtypes import HELD, WIDENED, held_dtype
from deepex.data.sources.reading.files import damaged, first_readable
from deepex.data.sources.reading.labels import in_range, out_of_range, with_classes
from deepex.data.sources.reading.parts import OpenFiles, Part, Parts
from deepex.errors import DataError, SampleError, unknown
from deepex.sample import Batch, Field, SampleSpec

Channels = Literal["none", "first", "last"]
Shapes = dict[str, tuple[int, ...]]


class StoredArray(Protocol):
    """One array of an open file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    unit: str
    description: str

    def whole(self) -> NDArray[Any]:
        """All of it."""

    def rows(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Some of it along the first dimension. The rows rise; one may be there several times."""


class ArrayFile(Protocol):
    """An open file and its arrays, one a field."""

    @property
    def arrays(self) -> Mapping[str, StoredArray]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How samples stand in arrays.

    Attributes:
        one_per_file: each file is one sample; otherwise samples go along the first dimension.
        channels: where channels stand in a sample of the first array; those that stand last are moved.
        label: which field holds class numbers.
        classes: what those are called.
    """

    one_per_file: bool
    channels: Channels = "none"
    label: str | None = None
    classes: tuple[str, ...] = ()


class ArrayFiles:
    """Samples of files that hold the same arrays. The first file that is whole says what a sample is."""

    def __init__(
        self, files: Sequence[Path], root: Path, open_file: Callable[[Path], ArrayFile], layout: Layout
    ) -> None:
        self._layout, self._is_one_file = layout, len(files) == 1
        self._opened = OpenFiles(open_file)
        self._shapes: Shapes = {}
        self._dtypes: dict[str, str] = {}
        self.spec = SampleSpec(fields=first_readable(files, self._describe))
        self._parts = Parts(files, root, self._inspect)

    def __len__(self) -> int:
        return len(self._parts)

    def read(self, indices: Indices, out: Batch) -> None:
        for part, rows, places in self._parts.split(indices):
            arrays = self._opened.get(part.file).arrays
            self._check(part.file, arrays)
            for name, buffer in out.items():
                as_array(buffer)[places] = self._values(part, name, arrays[name], rows)

    def name(self, index: int) -> str:
        samples_of_one = self._is_one_file and not self._layout.one_per_file
        return str(index) if samples_of_one else self._parts.name(index)

    def _values(self, part: Part, name: str, array: StoredArray, rows: NDArray[np.int64]) -> NDArray[Any]:
        try:
            values = array.whole()[None] if self._layout.one_per_file else array.rows(rows)
        except (OSError, RuntimeError, ValueError) as error:  # whatever the library beneath raises for damage
            raise damaged(f"{name} of {self._place(part, rows)}", error) from error
        if name == self._layout.label and not (right := in_range(values, self._layout.classes)).all():
            wrong = tuple(np.argwhere(~right)[0])
            place = self._place(part, rows[wrong[0] : wrong[0] + 1])
            raise SampleError(out_of_range(place, values[wrong].item(), self._layout.classes))
        return np.moveaxis(values, -1, 1) if self._is_moved(name) else values

    def _place(self, part: Part, rows: NDArray[np.int64]) -> str:
        """Where samples are, as an error tells it."""
        if self._layout.one_per_file:
            return str(part.file)
        return f"{part.file}, sample {rows[0]}" + (f" to {rows[-1]}" if len(rows) > 1 else "")

    def _is_moved(self, name: str) -> bool:
        return self._layout.channels == "last" and name == next(iter(self._shapes))

    def _describe(self, file: Path) -> dict[str, Field]:
        """The fields of a sample, as this file has them."""
        arrays = self._opened.get(file).arrays
        for name, array in arrays.items():
            if held_dtype(array.dtype) is None:
                raise DataError(f"{file} holds {name} as {array.dtype}. Allowed: {', '.join((*HELD, *WIDENED))}.")
            if not self._layout.one_per_file and not array.shape:
                raise DataError(
                    f"{file}: {name} is a single number and has no dimension for samples. Leave it out, or say that "
                    "each file is one sample: one_per_file=true."
                )
        self._shapes = {name: self._sample_shape(array) for name, array in arrays.items()}
        self._dtypes = {name: array.dtype.name for name, array in arrays.items()}
        fields = {name: self._field(file, name, array) for name, array in arrays.items()}
        if (label := self._layout.label) is not None:
            if label not in fields:
                raise DataError(unknown("field", label, fields))
            fields[label] = with_classes(fields[label], self._layout.classes)
        return fields

    def _field(self, file: Path, name: str, array: StoredArray) -> Field:
        shape = self._shapes[name]
        field = Field(shape=shape, dtype=str(held_dtype(array.dtype)), unit=array.unit, description=array.description)
        if self._layout.channels == "none" or name != next(iter(self._shapes)):
            return field
        if not shape:
            raise DataError(
                f"channels = {self._layout.channels}, but {name} of {file} is a single number a sample. "
                "Name another array first, or set channels=none."
            )
        moved = (shape[-1], *shape[:-1]) if self._layout.channels == "last" else shape
        return replace(field, shape=moved, channels=tuple(str(number) for number in range(moved[0])))

    def _sample_shape(self, array: StoredArray) -> tuple[int, ...]:
        return array.shape if self._layout.one_per_file else array.shape[1:]

    def _inspect(self, file: Path) -> Sequence[object]:
        """What tells a file's samples apart. A file that is one sample is not looked into before it is read."""
        if self._layout.one_per_file:
            return ("",)
        arrays = self._opened.get(file).arrays
        self._check(file, arrays)
        return range(next(iter(arrays.values())).shape[0])

    def _check(self, file: Path, arrays: Mapping[str, StoredArray]) -> None:
        """Refuse a file whose arrays are not as those of the first."""
        found = {name: (self._sample_shape(array), array.dtype.name) for name, array in arrays.items()}
        expected = {name: (shape, self._dtypes[name]) for name, shape in self._shapes.items()}
        if found != expected:
            raise SampleError(
                f"{file} holds {_told(found)}; expected, as in the first file: {_told(expected)}. Make it like the "
                "others, or leave it out with --skip-bad N."
            )
        lengths = {array.shape[0] for array in arrays.values() if not self._layout.one_per_file}
        if len(lengths) > 1:
            shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
            raise DataError(
                f"{file} holds {shapes}: not the same number of samples along the first dimension. Give arrays that "
                "have it, or say that each file is one sample: one_per_file=true."
            )


def are_single_samples(files: Sequence[Path], shapes_of: Callable[[Path], Shapes]) -> bool:
    """Whether many files are one sample each, as far as the shapes of their arrays tell.

    They are not if the first and the last file differ in shape, or if a row of numbers stands beside larger arrays of
    its length, as labels stand beside images.
    """
    if len(files) == 1:
        return False
    first, last = first_readable(files, shapes_of), first_readable(files[::-1], shapes_of)
    rows = {shape[0] for shape in first.values() if len(shape) == 1}
    return first == last and not any(shape[0] in rows for shape in first.values() if len(shape) > 1)


def _told(arrays: Mapping[str, tuple[tuple[int, ...], str]]) -> str:
    return ", ".join(f"{name} {dtype} {shape}" for name, (shape, dtype) in arrays.items())
