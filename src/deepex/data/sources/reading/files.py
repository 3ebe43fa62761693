"""Finding the files of a source, their names, and the first that is whole: what every reader of many files shares."""

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from deepex.errors import DataError, SampleError

READ_BYTES = 2**26  # rows of one chunk are read with those between them, up to this; a chunk may span all samples
TRIES = 8  # so many files are looked at for one that is whole
F = TypeVar("F")
P = TypeVar("P")


def list_files(path: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """As `list_paths`, as paths."""
    return [Path(file) for file in list_paths(path, suffixes)]


def list_paths(path: Path, suffixes: tuple[str, ...]) -> list[str]:
    """The file at `path`, or all files below that folder with one of the endings, in the order of their names.

    Hidden files are left out: a dot before the name marks what a system keeps beside a file (`._image.png`).
    """
    if not path.exists():
        raise DataError(f"there is nothing at {path}. Give a file or folder that exists.")
    if path.is_file():
        return [str(path)]
    found = [
        f"{folder}/{name}"
        for folder, _, names in os.walk(path)
        for name in names
        if name.lower().endswith(suffixes) and not name.startswith(".")
    ]
    if not found:
        raise DataError(f"{path} holds no file that ends with {', '.join(suffixes)}. Give the folder that does.")
    return sorted(found)


def relative_name(file: Path, root: Path) -> str:
    """A file's name below the folder that a source was opened at: the same wherever that folder stands."""
    return file.name if file == root else file.relative_to(root).as_posix()


def find_beside(name: str, root: Path) -> Path:
    """A file that an option names: as it stands, or below the folder that a source is opened at."""
    places = [Path(name), (root if root.is_dir() else root.parent) / name]
    for place in places:
        if place.is_file():
            return place
    raise DataError(f"there is no file {places[0]}, nor {places[1]}. Give the name of one that exists.")


def damaged(file: Path | str, reason: object) -> SampleError:
    """The error for a file that can't be read: what is wrong with it, and what to do."""
    told = reason.strerror if isinstance(reason, OSError) and reason.strerror else reason
    return SampleError(f"{file} can't be read ({told}). Copy it again, or leave it out with --skip-bad N.")


def first_readable(files: Sequence[F], look: Callable[[F], P]) -> P:
    """What `look` finds in the first of the files that is whole; those before it are left for reading to tell.

    >>> def look(number: int) -> int:
    ...     if number < 2:
    ...         raise SampleError("too small")
    ...     return number
    >>> first_readable([1, 2, 3], look)
    2
    """
    problems: list[SampleError] = []
    for file in files[:TRIES]:
        try:
            return look(file)
        except SampleError as error:
            problems.append(error)
    several = f"none of the first {len(problems)} can be read. The first: " if len(problems) > 1 else ""
    raise DataError(f"{several}{problems[0]}") from problems[0]


def rows_together(chunk: int, row_bytes: int) -> int:
    """How many rows of a chunk are read in one go: all of it, unless they are more than memory should hold.

    >>> rows_together(32, 1000), rows_together(10**6, 2**20)
    (32, 64)
    """
    return max(1, min(chunk, READ_BYTES // max(1, row_bytes)))


def runs(rows: NDArray[np.int64], chunk: int) -> list[slice]:
    """Stretches of rising rows that one access reads: each row next to the one before it, or in the same chunk.

    >>> runs(np.array([0, 1, 2, 7, 9]), chunk=5)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    apart = (np.diff(rows) > 1) & (np.diff(rows // chunk) > 0)
    edges = [0, *(np.flatnonzero(apart) + 1).tolist(), len(rows)]
    return [slice(first, last) for first, last in pairwise(edges)]
