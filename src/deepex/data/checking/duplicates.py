"""Samples with equal content, and those of them that stand on both sides of a split.

Of each sample 16 bytes of a hash stay in memory, and its side. It knows blocks of samples, and no files.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deepex.data.checking.findings import SHOWN, Block, Finding
from deepex.data.split import split_by_name
from deepex.errors import ConfigError
from deepex.sample import Field
from deepex.text import say_percent, say_plural

HASH_BYTES = 16
NAMED = 3  # samples of a group that are named
TRAIN, VALIDATION = 0, 1


class Sides(Protocol):
    """How samples are told apart for training and validation."""

    def of(self, block: Block) -> NDArray[np.int64]:
        """The side of each sample."""

    def tell_leak(self, sides: NDArray[np.int64], leaked: NDArray[np.int64]) -> str:
        """A sentence, from the sides of all samples and of those with a duplicate on another side."""

    def tell_empty(self, sides: NDArray[np.int64]) -> str:
        """A sentence for when all samples are on one side."""


class SidesByName:
    """A share of the samples held back, chosen by their names."""

    def __init__(self, validation_share: float) -> None:
        if not 0 < validation_share < 1:
            raise ConfigError(f"a validation share of {validation_share}. Allowed: numbers between 0 and 1.")
        self.shares = {"train": 1 - validation_share, "validation": validation_share}
        self.told = (
            f"split by name ({say_percent(1 - validation_share)} train, {say_percent(validation_share)} validation)"
        )

    def of(self, block: Block) -> NDArray[np.int64]:
        sides = np.full(len(block.names), TRAIN)
        sides[split_by_name(block.names, self.shares)["validation"]] = VALIDATION
        return sides

    def tell_leak(self, sides: NDArray[np.int64], leaked: NDArray[np.int64]) -> str:
        wrong, held_back = int((leaked == VALIDATION).sum()), int((sides == VALIDATION).sum())
        verb = "has a duplicate" if wrong == 1 else "have duplicates"
        of_all = f"{wrong:,} of {say_plural(held_back, 'validation sample')}"
        return f"{of_all} {verb} among those for training, in a {self.told}."

    def tell_empty(self, sides: NDArray[np.int64]) -> str:
        return f"In a {self.told} one side is empty: there are {say_plural(len(sides), 'sample')}."


class SidesByField:
    """The values of a field as sides."""

    def __init__(self, name: str, field: Field) -> None:
        if field.shape or field.dtype.startswith(("float", "bfloat", "complex")):
            raise ConfigError(
                f"--split {name}, which has shape {field.shape} and dtype {field.dtype}. Allowed: a field with one "
                "whole number a sample, that tells its side."
            )
        self.name = name

    def of(self, block: Block) -> NDArray[np.int64]:
        return block.values[self.name].astype(np.int64)

    def tell_leak(self, sides: NDArray[np.int64], leaked: NDArray[np.int64]) -> str:
        verb = "has a duplicate" if len(leaked) == 1 else "have duplicates"
        return f"{len(leaked):,} of {say_plural(len(sides), 'sample')} {verb} with another value of '{self.name}'."

    def tell_empty(self, sides: NDArray[np.int64]) -> str:
        return f"'{self.name}' is {sides[0]} for all samples: it splits nothing."


class Duplicates:
    """Samples that are equal in some fields."""

    def __init__(self, num_samples: int, fields: tuple[str, ...], sides: Sides, name: Callable[[int], str]) -> None:
        self.fields, self.sides, self.name = fields, sides, name
        self.hashes = np.zeros((num_samples, HASH_BYTES // 8), dtype=np.uint64)
        self.side = np.zeros(num_samples, dtype=np.int64)
        self.seen = np.zeros(num_samples, dtype=np.bool_)

    def add(self, block: Block) -> None:
        if not len(block.indices):
            return
        rows = [block.values[name].reshape(len(block.indices), -1) for name in self.fields]
        digests = bytearray()
        for place in range(len(block.indices)):
            digest = hashlib.sha256()  # the fastest on processors with instructions for it
            for row in rows:
                digest.update(row[place])
            digests += digest.digest()[:HASH_BYTES]
        self.hashes[block.indices] = np.frombuffer(digests, dtype=np.uint64).reshape(-1, HASH_BYTES // 8)
        self.side[block.indices] = self.sides.of(block)
        self.seen[block.indices] = True

    def found(self) -> Iterator[Finding]:
        seen = np.flatnonzero(self.seen)
        sides = self.side[seen]
        if len(seen) and sides.min() == sides.max():
            yield Finding(severity="note", kind="split", sentence=self.sides.tell_empty(sides))
        members, starts = _equal(self.hashes[seen])
        if not len(starts):
            return
        members = seen[members]
        verb = "repeats" if len(members) - len(starts) == 1 else "repeat"
        yield Finding(
            severity="warning",
            kind="duplicates",
            sentence=f"{len(members) - len(starts):,} of {say_plural(len(self.seen), 'sample')} {verb} another: "
            f"{say_plural(len(starts), 'group')} with equal {', '.join(self.fields)}.",
            cure="Leave duplicates out, unless they are meant: each counts as a sample of its own",
            samples=self._told(members, starts, np.arange(len(starts))),
        )
        side = self.side[members]
        apart = np.minimum.reduceat(side, starts) != np.maximum.reduceat(side, starts)
        if apart.any():
            leaked = np.repeat(apart, np.diff(starts, append=len(members)))
            yield Finding(
                severity="error",
                kind="leakage",
                sentence=self.sides.tell_leak(sides, side[leaked]),
                cure="Leave duplicates out, or keep them on one side: as it is, validation tells too good a quality",
                samples=self._told(members, starts, np.flatnonzero(apart)),
            )

    def _told(
        self, members: NDArray[np.int64], starts: NDArray[np.int64], groups: NDArray[np.int64]
    ) -> tuple[str, ...]:
        """The groups with the first samples, by the names in each."""
        ends = np.append(starts[1:], len(members))
        first = groups[np.argsort(members[starts[groups]])[:SHOWN]]
        return tuple(self._group(members[starts[group] : ends[group]]) for group in first)

    def _group(self, members: NDArray[np.int64]) -> str:
        named = " = ".join(self.name(int(index)) for index in members[:NAMED])
        return named if len(members) <= NAMED else f"{named} = {len(members) - NAMED:,} more"


def _equal(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows that are equal to another, group by group, and where each group starts.

    >>> _equal(np.array([[7, 1], [8, 2], [7, 1]], dtype=np.uint64))
    (array([0, 2]), array([0]))
    """
    order = np.lexsort(hashes.T)  # stable: a group's rows stay in their order
    ordered = hashes[order]
    as_before = np.zeros(len(order) + 1, dtype=np.bool_)
    as_before[1:-1] = (ordered[1:] == ordered[:-1]).all(axis=1)
    inside = as_before[:-1] | as_before[1:]
    members = order[inside]
    return members, np.flatnonzero(~as_before[:-1][inside])
