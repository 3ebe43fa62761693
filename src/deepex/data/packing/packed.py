"""The packed data set: plain HDF5, contiguous and uncompressed, in one file or in a folder of shards, memory-mapped.

Every HDF5 tool opens it. It names and describes its fields, counts their values, and carries a checksum for each block
of samples. A field of yes/no values stands as bits, eight to a byte. It knows no task.
"""

import hashlib
import json
import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from deepex.data.feeding.gather import take_rows
from deepex.data.source import Indices, as_array
from deepex.data.statistics import Moments
from deepex.errors import DataError
from deepex.sample import Batch, Field, SampleSpec

NAMES = "sample_name"  # the dataset of the samples' names; no field
VERIFIED_BYTES = 256 << 20  # files up to this size are verified on opening, in a fraction of a second
MAPPED_BYTES = 64 << 20  # how much of a file stays mapped: what was read longer ago leaves the process
FAULT_BYTES = 64 << 10  # the kernel maps so much around each place that is touched
OWN_ATTRIBUTES = ("content_sha256", "num_samples", "block_samples")


@dataclass(frozen=True, kw_only=True)
class Column:
    """How a field stands in a file: its place, the dtype and shape of a stored row, a checksum for each block."""

    name: str
    offset: int
    dtype: np.dtype[Any]
    row: tuple[int, ...]
    is_bits: bool
    block_sha256: tuple[str, ...]

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.row, dtype=np.int64)) * self.dtype.itemsize


class PackedFile:
    """One packed file: its header, and rows by index. It opens itself anew in each process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _opened(path) as file:
            try:
                self._read_header(file)
            except KeyError as error:
                raise DataError(
                    f"{path} is HDF5, but not a packed data set ({error.args[0]}). Pack it with: deepex data pack "
                    f"{path} OUT.h5"
                ) from error
        self._mapping: mmap.mmap | None = None
        self._process = self._touched = self._descriptor = 0
        self._stamp = (0, 0)
        self._arrays: dict[str, NDArray[Any]] = {}

    def __len__(self) -> int:
        return self.num_samples

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mapping": None, "_arrays": {}, "_process": 0}

    def take(self, name: str, indices: Indices, out: NDArray[Any]) -> None:
        """Copy stored rows, in any order."""
        arrays = self._mapped()
        column = self.columns[name]
        take_rows(arrays[name], np.asarray(indices), out)
        self._let_go(len(indices) * (column.row_bytes + FAULT_BYTES))

    def rows(self, name: str) -> NDArray[Any]:
        """All stored rows of a field, mapped, not copied."""
        return self._mapped()[name]

    def damaged_blocks(self) -> Iterator[tuple[str, int, str, str]]:
        """Field, block, checksum of the header and of what stands there, for each block where the two differ."""
        for name, column in self.columns.items():
            rows = self.rows(name)
            for number, expected in enumerate(column.block_sha256):
                first = number * self.block_samples
                found = hashlib.sha256(rows[first : first + self.block_samples].data).hexdigest()
                self._let_go(self.block_samples * column.row_bytes)
                if found != expected:
                    yield name, number, expected, found

    def verify(self) -> None:
        """Raise unless all bytes are those that were packed."""
        for name, number, expected, found in self.damaged_blocks():
            first = number * self.block_samples
            last = min(first + self.block_samples, self.num_samples) - 1
            raise DataError(
                f"{self.path} is damaged: samples {first} to {last} of '{name}' have sha256 {found}, the header says "
                f"{expected}. Make, pack or copy the file again."
            )

    def _read_header(self, file: h5py.File) -> None:
        self.num_samples = int(file.attrs["num_samples"])
        self.block_samples = int(file.attrs["block_samples"])
        self.content_sha256 = str(file.attrs["content_sha256"])
        self.attributes = {key: json.loads(value) for key, value in file.attrs.items() if key not in OWN_ATTRIBUTES}
        self.columns = {name: _column(name, dataset) for name, dataset in file.items()}
        self.fields = {name: _field(dataset) for name, dataset in file.items() if name != NAMES}
        self.moments = {name: _moments(dataset) for name, dataset in file.items() if name != NAMES}
        self.class_counts = {
            name: dataset.attrs["class_counts"].astype(np.int64)
            for name, dataset in file.items()
            if "class_counts" in dataset.attrs
        }
        found = content_sha256(self.num_samples, self.columns)
        if found != self.content_sha256:
            raise DataError(
                f"{self.path} is damaged: its list of checksums has sha256 {found}, its header says "
                f"{self.content_sha256}. Make, pack or copy the file again."
            )

    def _mapped(self) -> dict[str, NDArray[Any]]:
        if self._mapping is None or self._process != os.getpid():
            self._map()
        status = os.fstat(self._descriptor)
        if (status.st_size, status.st_mtime_ns) != self._stamp:
            raise DataError(
                f"{self.path} was changed while it was read: it has {status.st_size:,} bytes now, {self._stamp[0]:,} "
                f"when it was opened. Look at it with: deepex data check {self.path}"
            )
        return self._arrays

    def _map(self) -> None:
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise DataError(
                f"{self.path} can't be opened: {error.strerror}. It was there before: copy it back."
            ) from error
        status = os.fstat(self._descriptor)
        end = max(column.offset + self.num_samples * column.row_bytes for column in self.columns.values())
        if status.st_size < end:
            raise DataError(f"{self.path} is cut off: {status.st_size:,} of {end:,} bytes. Make or copy it again.")
        self._stamp = (status.st_size, status.st_mtime_ns)
        self._mapping = mmap.mmap(self._descriptor, status.st_size, prot=mmap.PROT_READ)
        self._process = os.getpid()
        self._arrays = {
            name: np.frombuffer(
                self._mapping, column.dtype, self.num_samples * int(np.prod(column.row, dtype=np.int64)), column.offset
            ).reshape(self.num_samples, *column.row)
            for name, column in self.columns.items()
        }

    def _let_go(self, num_bytes: int) -> None:
        """Unmap what was touched, now and then: the page cache keeps it, and the process does not count it."""
        assert self._mapping is not None
        self._touched += num_bytes
        if self._touched > MAPPED_BYTES:
            self._touched = 0
            if len(self._mapping) > MAPPED_BYTES:
                self._mapping.madvise(mmap.MADV_DONTNEED)


class PackedSource:
    """Samples of a packed data set, a file or a folder of shards. Small ones are verified on opening.

    Example: `PackedSource(Path("bba.h5")).spec.fields["contact_map"].shape` is `(28, 28)`.
    """

    def __init__(self, path: Path, *, verify: bool = True) -> None:
        self.path = path
        paths = sorted(path.glob("*.h5")) if path.is_dir() else [path]
        if not paths:
            raise DataError(f"{path} holds no packed files (*.h5). Make some with: deepex data pack SOURCE {path}")
        self.files = [PackedFile(each) for each in paths]
        first = self.files[0]
        self.spec = SampleSpec(fields=first.fields)
        self.attributes = {key: value for key, value in first.attributes.items() if key != "shard"}
        self.starts = np.cumsum([0, *(len(file) for file in self.files)])
        self._compare()
        self.content_sha256 = (
            first.content_sha256
            if len(self.files) == 1
            else hashlib.sha256("".join(file.content_sha256 for file in self.files).encode()).hexdigest()
        )
        if verify and sum(each.stat().st_size for each in paths) <= VERIFIED_BYTES:
            self.verify()

    def __len__(self) -> int:
        return int(self.starts[-1])

    def read(self, indices: Indices, out: Batch) -> None:
        chosen = np.asarray(indices, dtype=np.int64)
        for name, buffer in out.items():
            target = as_array(buffer)[: len(chosen)]
            is_bits = self.files[0].columns[name].is_bits
            stored = np.empty((len(chosen), *self.files[0].columns[name].row), dtype=np.uint8) if is_bits else target
            self._take(name, chosen, stored)
            if is_bits:
                count = int(np.prod(target.shape[1:]))
                target[...] = np.unpackbits(stored, axis=1, count=count).view(np.bool_).reshape(target.shape)

    def name(self, index: int) -> str:
        shard = int(np.searchsorted(self.starts, index, side="right")) - 1
        return bytes(self.files[shard].rows(NAMES)[index - self.starts[shard]]).rstrip(b"\0").decode()

    def column(self, name: str) -> NDArray[Any]:
        """All values of a field, in memory; for fields that are small."""
        if self.files[0].columns[name].is_bits:
            raise ValueError(f"{name} stands as bits; read it")
        return np.concatenate([file.rows(name) for file in self.files])

    @property
    def moments(self) -> Mapping[str, Moments]:
        """Statistics by field, over all samples."""
        return {name: reduce(Moments.merge, [file.moments[name] for file in self.files]) for name in self.spec.fields}

    @property
    def class_counts(self) -> Mapping[str, NDArray[np.int64]]:
        """Samples of each class, by field with classes."""
        return {
            name: np.asarray(sum(file.class_counts[name] for file in self.files)) for name in self.files[0].class_counts
        }

    @property
    def left_out(self) -> Mapping[str, str]:
        """Samples of the source that are not here, by name, with the reason."""
        found: dict[str, str] = self.attributes.get("left_out", {})
        return found

    def verify(self) -> None:
        """Raise unless all bytes are those that were packed."""
        for file in self.files:
            file.verify()

    def _take(self, name: str, chosen: NDArray[np.int64], out: NDArray[Any]) -> None:
        if len(self.files) == 1:
            self.files[0].take(name, chosen, out)
            return
        shards = np.searchsorted(self.starts, chosen, side="right") - 1
        for shard in np.unique(shards):
            places = np.flatnonzero(shards == shard)
            rows = np.empty((len(places), *out.shape[1:]), dtype=out.dtype)
            self.files[shard].take(name, chosen[places] - self.starts[shard], rows)
            out[places] = rows

    def _compare(self) -> None:
        """Shards must all be there and hold the same fields."""
        expected = len(self.files) if len(self.files) > 1 else self.files[0].attributes.get("shard", [0, 1])[1]
        for number, file in enumerate(self.files):
            shard, shards = file.attributes.get("shard", [0, 1])
            if (shard, shards) != (number, expected):
                raise DataError(
                    f"{file.path} is shard {shard + 1} of {shards}, and {len(self.files)} are here. Give the folder "
                    "that holds all shards of one data set and nothing else."
                )
            if file.fields != self.files[0].fields:
                raise DataError(f"{file.path} has other fields than {self.files[0].path}. Pack the set again.")


def content_sha256(num_samples: int, columns: Mapping[str, Column]) -> str:
    """A hash of the content: names, dtypes and shapes of the fields, and the checksums of their blocks."""
    digest = hashlib.sha256(str(num_samples).encode())
    for name in sorted(columns):
        column = columns[name]
        digest.update(f"{name} {column.dtype.str} {column.row} {' '.join(column.block_sha256)}".encode())
    return digest.hexdigest()


def _opened(path: Path) -> h5py.File:
    if not path.exists():
        raise DataError(f"there is no data file {path}. Make one with: deepex data pack SOURCE {path}")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DataError(
            f"{path} is not a readable HDF5 file ({path.stat().st_size:,} bytes; {error}). Make, pack or copy it again."
        ) from error


def _column(name: str, dataset: h5py.Dataset) -> Column:
    checksums = dataset.attrs["block_sha256"]
    dtype = np.dtype(np.uint8) if name == NAMES else dataset.dtype
    return Column(
        name=name,
        offset=int(dataset.id.get_offset()),
        dtype=dtype,
        row=(dataset.dtype.itemsize,) if name == NAMES else tuple(dataset.shape[1:]),
        is_bits=bool(dataset.attrs.get("bits", False)),
        block_sha256=tuple(bytes(checksum).hex() for checksum in checksums),
    )


def _field(dataset: h5py.Dataset) -> Field:
    return Field(
        shape=tuple(int(length) for length in dataset.attrs["shape"]),
        dtype="bool" if dataset.attrs["bits"] else str(dataset.dtype),
        unit=str(dataset.attrs["unit"]),
        description=str(dataset.attrs["description"]),
        channels=tuple(json.loads(dataset.attrs["channels"])),
        classes=tuple(json.loads(dataset.attrs["classes"])),
    )


def _moments(dataset: h5py.Dataset) -> Moments:
    deviation, count = dataset.attrs["deviation"], int(dataset.attrs["count"])
    return Moments(
        count=count,
        minimum=dataset.attrs["minimum"],
        maximum=dataset.attrs["maximum"],
        mean=dataset.attrs["mean"],
        squares=deviation**2 * count,
    )
