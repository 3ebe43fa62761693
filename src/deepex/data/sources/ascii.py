"""Matrices as text: numbers separated by blanks or commas, a row a line, as DeepEx keeps its contact maps.

A file holds one matrix or many one below the other, separated by blank lines or `rows` long each; lines that begin
with # say nothing. Opening a file notes where its matrices begin; only those that are asked for are parsed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from deepex.data.source import Indices, Source, as_array
from deepex.data.sources import READERS
from deepex.data.sources.reading.files import damaged, first_readable, list_files
from deepex.data.sources.reading.parts import Parts
from deepex.errors import ConfigError, SampleError
from deepex.sample import Batch, Field, SampleSpec

CURE = "Correct it, or leave it out with --skip-bad N."


@dataclass(frozen=True, kw_only=True)
class Options:
    """What may be set.

    Attributes:
        rows: lines of a matrix; none: as many as stand before a blank line or the end of the file.
        field: what the matrix is called.
        dtype: how its numbers are kept.
    """

    rows: int | None = None
    field: str = "matrix"
    dtype: Literal["float32", "float64", "uint8", "int16", "int32"] = "float32"

    def __post_init__(self) -> None:
        if self.rows is not None and self.rows < 1:
            raise ConfigError(f"rows = {self.rows}. Allowed: whole numbers from 1, or none for blank lines between.")
        if not self.field:
            raise ConfigError("field can't be empty. Give it a name, as in field=contact_map.")


def open_source(path: Path, options: Options) -> Source:
    """The matrices of a text file, or of all below a folder.

    Example: `open_source(Path("contacts.array"), Options(rows=28, dtype="uint8"))`
    """
    return TextMatrices(list_files(path, READERS["ascii"].suffixes), path, options)


class TextMatrices:
    """Matrices of one shape, that of the first which can be read."""

    def __init__(self, files: Sequence[Path], root: Path, options: Options) -> None:
        self._options = options
        self._matrices: dict[Path, NDArray[np.int64]] = {}  # of each file: first byte, last byte, first line
        self._parts = Parts(files, root, self._index)
        whole = list(self._matrices)
        # Of a lone file, matrix after matrix is tried; of many, the first of each.
        candidates = [(whole[0], row) for row in range(len(self))] if len(whole) == 1 else [(file, 0) for file in whole]
        shape = first_readable(candidates, lambda place: self._parse(*place)).shape
        self.spec = SampleSpec(fields={options.field: Field(shape=shape, dtype=options.dtype)})

    def __len__(self) -> int:
        return len(self._parts)

    def read(self, indices: Indices, out: Batch) -> None:
        if self._options.field not in out:
            return
        target = as_array(out[self._options.field])
        for part, rows, places in self._parts.split(indices):
            for row, place in zip(rows.tolist(), places.tolist(), strict=True):
                target[place] = self._fitting(part.file, row)

    def name(self, index: int) -> str:
        return self._parts.name(index)

    def _index(self, file: Path) -> Sequence[object]:
        """Note where the matrices of a file stand."""
        found = _find_matrices(file, self._options.rows)
        if not found:
            raise SampleError(f"{file} holds no numbers. Give text with a row of numbers a line, or leave it out.")
        self._matrices[file] = np.array(found, dtype=np.int64)
        return range(len(found))

    def _fitting(self, file: Path, row: int) -> NDArray[Any]:
        matrix, shape = self._parse(file, row), self.spec.fields[self._options.field].shape
        if matrix.shape != shape:
            raise SampleError(
                f"{file}, line {self._matrices[file][row, 2]}: here begins a matrix of {_told(matrix.shape)}; "
                f"expected, as the first: {_told(shape)}. {CURE}"
            )
        return matrix

    def _parse(self, file: Path, row: int) -> NDArray[Any]:
        first, last, line = self._matrices[file][row].tolist()
        try:
            with open(file, "rb") as text:
                text.seek(first)
                lines = text.read(last - first).replace(b",", b" ").splitlines()
        except OSError as error:
            raise damaged(file, error) from error
        numbers = [words for each in lines if not each.startswith(b"#") and (words := each.split())]
        try:
            values = np.array([list(map(float, words)) for words in numbers], dtype=np.float64)
        except ValueError as error:
            raise SampleError(_fault(file, line, lines)) from error
        if self._options.rows not in (None, len(values)):
            raise SampleError(
                f"{file}, line {line}: the matrix that begins here has {len(values)} rows, then the file ends; "
                f"expected: {self._options.rows}. Complete it, set rows= to the right number, or leave it out with "
                "--skip-bad N."
            )
        return self._kept(values, f"{file}, line {line}")

    def _kept(self, values: NDArray[np.float64], where: str) -> NDArray[Any]:
        """Numbers in the dtype that was asked for, which has to hold them exactly if it is one of whole numbers."""
        dtype = np.dtype(self._options.dtype)
        if dtype.kind == "f":
            return values.astype(dtype)
        limits = np.iinfo(dtype)
        wrong = ~((values >= limits.min) & (values <= limits.max) & (np.floor(values) == values))
        if wrong.any():
            raise SampleError(
                f"{where}: the matrix that begins here holds {values[wrong][0]:g}, which is no {dtype}. Allowed: whole "
                f"numbers from {limits.min} to {limits.max}. Set dtype=float32, or leave it out with --skip-bad N."
            )
        return values.astype(dtype)


def _find_matrices(file: Path, rows: int | None) -> list[tuple[int, int, int]]:
    """First byte, last byte and first line of each matrix of a file, in one pass that parses nothing."""
    found: list[tuple[int, int, int]] = []
    first = last = offset = held = line = 0
    try:
        with open(file, "rb") as text:
            for number, content in enumerate(text, 1):
                start, offset = offset, offset + len(content)
                if content.isspace():
                    is_whole = rows is None and held > 0
                elif content.startswith(b"#"):
                    continue
                else:
                    if not held:
                        first, line = start, number
                    held, last = held + 1, offset
                    is_whole = held == rows
                if is_whole:
                    found.append((first, last, line))
                    held = 0
    except OSError as error:
        raise damaged(file, error) from error
    return [*found, (first, last, line)] if held else found


def _fault(file: Path, line: int, lines: Sequence[bytes]) -> str:
    """What is wrong with a matrix whose first line has this number: a word that is no number, or a short row."""
    expected = 0
    for number, content in enumerate(lines, line):
        words = [] if content.startswith(b"#") else content.split()
        for word in words:
            try:
                float(word)
            except ValueError:
                text = word[:40].decode(errors="replace")
                return (
                    f"{file}, line {number}: '{text}' is not a number. Allowed: numbers with blanks or commas between; "
                    f"# at the beginning of lines that say something else. {CURE}"
                )
        expected = expected or len(words)
        if words and len(words) != expected:
            return (
                f"{file}, line {number} has {len(words)} numbers, the first line of this matrix {expected}. Allowed: "
                f"rows of one length; a blank line, or rows=, between matrices. {CURE}"
            )
    return f"{file}, line {line}: the matrix that begins here can't be read. {CURE}"


def _told(shape: tuple[int, ...]) -> str:
    return f"{shape[0]} rows of {shape[1]} numbers"
