"""What a check of a data set finds: the words for it, and looks at blocks of samples, each for one thing.

A look keeps counts and the names of a few samples, whatever the number of samples. It knows no source and no file.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from deepex.sample import Field
from deepex.text import say_list, say_plural

Severity = Literal["error", "warning", "note"]

SHOWN = 5  # samples, groups and blocks that a finding names
MOST_RATIO = 10  # the most frequent class over the rarest: more than this is told


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was found: how grave, of what kind, a sentence with numbers, the cure, the first samples."""

    severity: Severity
    kind: str
    sentence: str
    cure: str = ""
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Findings:
    """All that was found, the gravest first; in how many samples; which fields make two of them equal."""

    num_samples: int
    num_bytes: int
    compared: tuple[str, ...]
    items: tuple[Finding, ...] = ()

    def of(self, severity: Severity) -> list[Finding]:
        """Those of one severity."""
        return [item for item in self.items if item.severity == severity]


@dataclass(frozen=True, kw_only=True)
class Block:
    """Samples that are looked at together: their numbers, names and values."""

    indices: NDArray[np.int64]
    names: Sequence[str]
    values: Mapping[str, NDArray[Any]]


class Look(Protocol):
    """One thing to look for."""

    def add(self, block: Block) -> None:
        """Look at a block."""

    def found(self) -> Iterator[Finding]:
        """What came of it, once all blocks were looked at."""


class Numbers:
    """Values of a field that are no numbers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.num_values = self.num_samples = self.num_seen = 0
        self.first: list[str] = []

    def add(self, block: Block) -> None:
        array = block.values[self.name]
        self.num_seen += len(array)
        if array.dtype.kind not in "fc":
            return
        with np.errstate(all="ignore"):  # an infinite sum is what is looked for
            total = array.sum(dtype=np.float64) if array.dtype.kind == "f" else array.sum()
        if np.isfinite(total):
            return
        wrong = (~np.isfinite(array)).reshape(len(array), -1).sum(axis=1)
        rows = np.flatnonzero(wrong)
        self.num_values += int(wrong.sum())
        self.num_samples += len(rows)
        self.first += [block.names[row] for row in rows[: SHOWN - len(self.first)]]

    def found(self) -> Iterator[Finding]:
        if self.num_values:
            verb = "is" if self.num_values == 1 else "are"
            yield Finding(
                severity="error",
                kind="not finite",
                sentence=f"{say_plural(self.num_values, 'value')} of '{self.name}' {verb} NaN or infinite, in "
                f"{self.num_samples:,} of {say_plural(self.num_seen, 'sample')}.",
                cure=f"Correct them, or leave such samples out: deepex data pack --skip-bad {self.num_samples}",
                samples=tuple(self.first),
            )


class Constants:
    """Channels of a field with one value everywhere."""

    def __init__(self, name: str, field: Field) -> None:
        self.name, self.channels = name, field.channels
        self.num_values = 0
        self.value: NDArray[Any] | None = None
        self.constant = np.ones(len(field.channels) or 1, dtype=np.bool_)

    def add(self, block: Block) -> None:
        array = block.values[self.name]
        if not array.size:
            return
        values = array.reshape(len(array), len(self.constant), -1)
        if self.value is None:
            self.value = values[0, :, 0].copy()
        self.num_values += values.shape[0] * values.shape[2]
        for channel in np.flatnonzero(self.constant):  # most drop out in the first block, and cost nothing later
            self.constant[channel] = bool((values[:, channel] == self.value[channel]).all())

    def found(self) -> Iterator[Finding]:
        if self.value is None or self.num_values < 2 or not self.constant.any():
            return
        which = np.flatnonzero(self.constant)
        sentence = f"'{self.name}' is {self.value[0]} everywhere."
        if self.channels:
            told = say_list([f"{self.channels[channel]} is {self.value[channel]}" for channel in which])
            sentence = f"{len(which)} of {len(self.channels)} channels of '{self.name}' never change: {told}."
        yield Finding(
            severity="warning",
            kind="constant",
            sentence=sentence,
            cure="Leave it out: it teaches nothing, and what is divided by its deviation of 0 is no number",
        )


class Classes:
    """How often each class of a field occurs."""

    def __init__(self, name: str, field: Field) -> None:
        self.name, self.field = name, field
        self.counts = np.zeros(len(field.classes), dtype=np.int64)
        self.num_wrong = 0
        self.wrong: list[str] = []

    def add(self, block: Block) -> None:
        array = block.values[self.name].reshape(len(block.indices), -1)
        right = (array >= 0) & (array < len(self.counts))
        self.counts += np.bincount(array[right].astype(np.int64), minlength=len(self.counts))
        rows = np.flatnonzero(~right.all(axis=1))
        self.num_wrong += len(rows)
        self.wrong += [block.names[row] for row in rows[: SHOWN - len(self.wrong)]]

    def found(self) -> Iterator[Finding]:
        if self.num_wrong:
            yield Finding(
                severity="error",
                kind="class",
                sentence=f"{say_plural(self.num_wrong, 'sample')} with a class in '{self.name}' that does not exist. "
                f"Allowed: 0 to {len(self.counts) - 1}.",
                cure=f"Correct them, or leave them out: deepex data pack --skip-bad {self.num_wrong}",
                samples=tuple(self.wrong),
            )
        missing = [self.field.classes[number] for number in np.flatnonzero(self.counts == 0)]
        if missing and self.counts.any():
            yield Finding(
                severity="warning",
                kind="no samples",
                sentence=f"{len(missing)} of {len(self.counts)} classes of '{self.name}' have no samples: "
                f"{say_list(missing)}.",
                cure="Add samples of them, or name only those that occur: classes=A,B,…",
            )
        yield from self._imbalance()

    def _imbalance(self) -> Iterator[Finding]:
        present = self.counts[self.counts > 0]
        if not len(present) or present.max() <= MOST_RATIO * present.min():
            return
        most = int(self.counts.argmax())
        rare = [n for n in np.argsort(self.counts) if 0 < self.counts[n] * MOST_RATIO < self.counts[most]]
        told = say_list([f"{self.field.classes[number]} ({self.counts[number]:,})" for number in rare])
        of_what = "samples" if not self.field.shape else "values"
        yield Finding(
            severity="warning",
            kind="imbalance",
            sentence=f"In '{self.name}', {self.field.classes[most]} has {self.counts[most]:,} {of_what}, "
            f"{present.max() / present.min():,.0f} times as many as the rarest. Rare: {told}.",
            cure=f"Draw each class equally often: data.balance={self.name}"
            if not self.field.shape
            else "Weigh rare classes more in the loss",
        )
