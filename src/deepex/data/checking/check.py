"""Checking a data set before it costs anything: one pass, block by block, in memory that does not grow with its bytes.

It finds what has happened to the bytes since they were packed, and what spoils training: samples that can't be read,
values that are no numbers, constant channels, duplicates, on both sides of a split too, rare and missing classes. It
knows sources and packed files, and prints nothing.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepex.data.checking.duplicates import Duplicates, Sides, SidesByField, SidesByName
from deepex.data.checking.findings import SHOWN, Block, Classes, Constants, Finding, Findings, Look, Numbers
from deepex.data.packing.packed import NAMES, PackedFile, PackedSource
from deepex.data.source import Source, allocate, as_array, read_good
from deepex.errors import ConfigError, unknown
from deepex.sample import Field
from deepex.text import say_plural

BLOCK_BYTES, BLOCK_SAMPLES = 16 << 20, 1 << 16  # so much of a source that is not packed is looked at together
THREADS = 4  # hashing and counting share out the work among them, and one reads ahead
GRAVEST_FIRST = ("error", "warning", "note")


def check(
    source: Source,
    *,
    split: str | None = None,
    validation_share: float = 0.2,
    compare: Sequence[str] = (),
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> Findings:
    """Look at all samples of a source, once. A packed one that may be damaged is opened with `verify=False`.

    Arguments:
        split: a field whose values are the sides of a split; none: samples are split by their names.
        validation_share: the share of samples that a split by name holds back.
        compare: fields that make two samples equal; none: all but classes and other single whole numbers.
        tell: told how many samples are done, and of how many.

    >>> from deepex.data.source import ArraySource
    >>> findings = check(ArraySource({"x": np.array([[1.0, 2.0], [np.nan, 4.0], [5.0, 6.0]])}))
    >>> findings.of("error")[0].sentence
    "1 value of 'x' is NaN or infinite, in 1 of 3 samples."
    """
    fields = source.spec.fields
    for name in [*compare, *([split] if split else [])]:
        if name not in fields:
            raise ConfigError(unknown("field", name, fields))
    sides: Sides = SidesByName(validation_share) if split is None else SidesByField(split, fields[split])
    compared = tuple(compare) or _data_fields(fields, split)
    looks: list[Look] = [
        *(Numbers(name) for name in fields),
        *(Constants(name, each) for name, each in fields.items() if not each.classes),
        *(Classes(name, each) for name, each in fields.items() if each.classes),
        Duplicates(len(source), compared, sides, source.name),
    ]
    reading: Reading = PackedBlocks(source) if isinstance(source, PackedSource) else SourceBlocks(source)
    done = 0
    with ThreadPoolExecutor(THREADS, thread_name_prefix="deepex-check") as pool:
        for count, block in _ahead(pool, reading.blocks()):
            for each in [pool.submit(look.add, block) for look in looks]:
                each.result()
            done += count
            tell(done, len(source))
    items = [*reading.found(), *(item for look in looks for item in look.found())]
    return Findings(
        num_samples=len(source),
        num_bytes=len(source) * source.spec.num_bytes,
        compared=compared,
        items=tuple(sorted(items, key=lambda item: GRAVEST_FIRST.index(item.severity))),
    )


def _ahead(pool: ThreadPoolExecutor, blocks: Iterator[tuple[int, Block]]) -> Iterator[tuple[int, Block]]:
    """The same blocks, each read while the one before it is looked at."""
    following = pool.submit(next, blocks, None)
    while (item := following.result()) is not None:
        following = pool.submit(next, blocks, None)
        yield item


class Reading(Protocol):
    """A way to read a data set block by block, that tells what can't be read."""

    def blocks(self) -> Iterator[tuple[int, Block]]:
        """How many samples a block stands for, and those of them that can be looked at."""

    def found(self) -> Iterator[Finding]:
        """What could not be read."""


class SourceBlocks:
    """Any source, cut into blocks of about equal size."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.num_bad = 0
        self.reasons: dict[str, str] = {}

    def blocks(self) -> Iterator[tuple[int, Block]]:
        source, total = self.source, len(self.source)
        size = max(1, min(BLOCK_BYTES // max(1, source.spec.num_bytes), BLOCK_SAMPLES, total))
        for first in range(0, total, size):
            indices = np.arange(first, min(first + size, total))
            buffers = allocate(source.spec, len(indices))
            bad = read_good(source, indices, buffers)
            for place in bad:
                self._note(source.name(first + place), bad[place])
            good = np.delete(np.arange(len(indices)), list(bad))
            values = {name: as_numbers(tensor) for name, tensor in buffers.items()}
            yield (
                len(indices),
                Block(
                    indices=indices[good],
                    names=[source.name(index) for index in indices[good].tolist()],
                    values={name: array[good] for name, array in values.items()} if bad else values,
                ),
            )

    def found(self) -> Iterator[Finding]:
        if self.num_bad:
            yield Finding(
                severity="error",
                kind="unreadable",
                sentence=f"{say_plural(self.num_bad, 'sample')} can't be read. {' '.join(self.reasons.values())}",
                cure=f"Correct or replace them, or leave them out: deepex data pack --skip-bad {self.num_bad}",
                samples=tuple(self.reasons),
            )
        yield Finding(
            severity="note",
            kind="checksums",
            sentence="This is no packed data set: it has no checksums that would tell of damage.",
            cure="Pack it, and train from that: deepex data pack",
        )

    def _note(self, name: str, reason: str) -> None:
        self.num_bad += 1
        if len(self.reasons) < SHOWN:
            self.reasons[name] = reason


class PackedBlocks:
    """A packed data set in the blocks that its checksums are of; damaged ones are told, and not looked at."""

    def __init__(self, source: PackedSource) -> None:
        self.source = source
        self.num_damaged = 0
        self.damaged: list[Finding] = []

    def blocks(self) -> Iterator[tuple[int, Block]]:
        for file, start in zip(self.source.files, self.source.starts.tolist(), strict=False):  # and the end
            for number, first in enumerate(range(0, len(file), file.block_samples)):
                rows = np.arange(first, min(first + file.block_samples, len(file)))
                stored = {name: self._take(file, name, rows) for name in file.columns}
                if not self._is_sound(file, number, rows, stored):
                    rows = rows[:0]
                values = {name: self._values(file, name, stored[name][: len(rows)]) for name in file.fields}
                names = [bytes(row).rstrip(b"\0").decode() for row in stored[NAMES][: len(rows)]]
                yield len(stored[NAMES]), Block(indices=start + rows, names=names, values=values)

    def found(self) -> Iterator[Finding]:
        yield from self.damaged[:SHOWN]
        if self.num_damaged > SHOWN:
            sentence = f"{say_plural(self.num_damaged - SHOWN, 'more block')} of samples are damaged."
            yield Finding(severity="error", kind="damage", sentence=sentence, cure="Pack or copy the set again")

    def _take(self, file: PackedFile, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        column = file.columns[name]
        stored = np.empty((len(rows), *column.row), dtype=column.dtype)
        file.take(name, rows, stored)
        return stored

    def _is_sound(
        self, file: PackedFile, number: int, rows: NDArray[np.int64], stored: Mapping[str, NDArray[Any]]
    ) -> bool:
        """Whether all columns of a block are as they were packed."""
        wrong = {}
        for name, array in stored.items():
            found = hashlib.sha256(array.data).hexdigest()
            if found != file.columns[name].block_sha256[number]:
                wrong[name] = found
        for name, found in wrong.items():
            self.num_damaged += 1
            if self.num_damaged <= SHOWN:
                self.damaged.append(
                    Finding(
                        severity="error",
                        kind="damage",
                        sentence=f"{file.path.name} is damaged: '{name}' of samples {rows[0]:,} to {rows[-1]:,} has "
                        f"sha256 {found}, the header says {file.columns[name].block_sha256[number]}. No other finding "
                        "counts these samples.",
                        cure="Pack or copy the set again",
                    )
                )
        return not wrong

    def _values(self, file: PackedFile, name: str, stored: NDArray[Any]) -> NDArray[Any]:
        if not file.columns[name].is_bits:
            return stored
        shape = file.fields[name].shape
        count = int(np.prod(shape, dtype=np.int64))
        return np.unpackbits(stored, axis=1, count=count).view(np.bool_).reshape(len(stored), *shape)


def _data_fields(fields: Mapping[str, Field], split: str | None) -> tuple[str, ...]:
    """Fields that make two samples equal: what says how a sample is called, or which side it is on, does not."""
    others = [name for name, each in fields.items() if not each.classes and name != split]
    data = [name for name in others if fields[name].shape or fields[name].dtype.startswith(("float", "bfloat"))]
    return tuple(data or others or fields)


def as_numbers(tensor: Tensor) -> NDArray[Any]:
    """Numbers that NumPy can look at."""
    return as_array(tensor.float() if tensor.dtype == torch.bfloat16 else tensor)
