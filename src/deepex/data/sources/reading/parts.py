"""Samples spread over many files: which file holds which, what they are called, and files kept open to read them.

A file that can't be used stands for one sample, whose reading raises a SampleError: what packs may leave it out.
Nothing here knows a format.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from deepex.data.source import Indices
from deepex.data.sources.reading.files import relative_name
from deepex.errors import DataError, SampleError

OPEN_FILES = 16  # a thread's; each holds a descriptor, and machines allow 1024 or so


class Handle(Protocol):
    """An open file."""

    def close(self) -> None: ...


H = TypeVar("H", bound=Handle)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One file and its samples.

    Attributes:
        file: where it is.
        name: its name below the folder that the source was opened at.
        labels: what tells its samples apart, one each; an empty text where the file's name says it all.
        problem: why it can't be used; it then has one label.
    """

    file: Path
    name: str
    labels: Sequence[object]
    problem: str = ""

    def sample_name(self, row: int) -> str:
        """What the sample at this place of the file is called."""
        label = str(self.labels[row])
        return f"{self.name}:{label}" if label else self.name


class Parts:
    """The samples of many files, one file after another.

    `inspect` says what tells a file's samples apart, one label each. It raises a SampleError for a file that is
    damaged, and a DataError for one that does not fit: if no file before it did, it is the request that is wrong.
    """

    def __init__(self, files: Sequence[Path], root: Path, inspect: Callable[[Path], Sequence[object]]) -> None:
        self._parts: list[Part] = []
        some_fit = False
        for file in files:
            name = relative_name(file, root)
            try:
                labels = inspect(file)
                some_fit = True
            except DataError as error:
                if not some_fit and not isinstance(error, SampleError):
                    raise
                self._parts.append(Part(file=file, name=name, labels=("",), problem=str(error)))
            else:
                if len(labels):
                    self._parts.append(Part(file=file, name=name, labels=labels))
        if not some_fit:
            raise DataError(self._parts[0].problem)
        if not self._parts:
            raise DataError(f"{root} holds no sample. Give files with at least one.")
        self._starts = np.cumsum([0] + [len(part.labels) for part in self._parts])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def name(self, index: int) -> str:
        """What a sample is called: its file and what tells it apart there."""
        number = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._parts[number].sample_name(index - int(self._starts[number]))

    def split(self, indices: Indices) -> Iterator[tuple[Part, NDArray[np.int64], NDArray[np.int64]]]:
        """By file: the file, the rows wanted of it in rising order, and the places in `indices` where they stand."""
        wanted = np.asarray(indices, dtype=np.int64)
        order = np.argsort(wanted, kind="stable")
        owners = np.searchsorted(self._starts, wanted[order], side="right") - 1
        for places in np.split(order, np.flatnonzero(np.diff(owners)) + 1):
            if not len(places):
                return
            number = int(np.searchsorted(self._starts, wanted[places[0]], side="right")) - 1
            part = self._parts[number]
            if part.problem:
                raise SampleError(part.problem)
            yield part, wanted[places] - self._starts[number], places


class OpenFiles(Generic[H]):
    """The files that a thread read last, open. Each thread of each process has its own, and a pickle holds none."""

    def __init__(self, open_file: Callable[[Path], H]) -> None:
        self._open_file = open_file
        self._local = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._open_file,)

    def get(self, file: Path) -> H:
        """A file's handle, opened if it is not open."""
        # After a fork the child would share the parent's places in its files.
        if getattr(self._local, "process", None) != os.getpid():
            self._local.process, self._local.handles = os.getpid(), {}
        handles: dict[Path, H] = self._local.handles
        handle = handles.pop(file) if file in handles else self._open_file(file)
        handles[file] = handle  # last in the order of use
        if len(handles) > OPEN_FILES:
            handles.pop(next(iter(handles))).close()
        return handle
