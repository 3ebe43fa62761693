"""Class numbers and class names: which sample is of which class, and what is said of one that is of none.

A sample without a right class is no error until it is read: what packs may leave it out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepex.data.source import Indices, Source, as_array
from deepex.errors import ConfigError, DataError, SampleError
from deepex.sample import Batch, Field, SampleSpec
from deepex.text import say_list

FIELD = "label"
MAX_CLASSES = 65_536  # a larger number is no class but an error, or a measurement
CURE = "Correct it, or leave the sample out with --skip-bad N."


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The class number of each sample, the classes' names, and for samples that have none the reason."""

    numbers: NDArray[np.int64]
    classes: tuple[str, ...]
    problems: Mapping[int, str] = field(default_factory=dict)

    def read(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of these samples."""
        numbers = self.numbers[indices]
        if self.problems and (numbers < 0).any():
            raise SampleError(self.problems[int(indices[np.argmax(numbers < 0)])])
        return numbers


class Labelled:
    """Samples of a source, and beside them their classes as the field `label`."""

    def __init__(self, source: Source, labels: Labels) -> None:
        self.source, self.labels = source, labels
        label = Field(shape=(), dtype="int64", description="class", classes=labels.classes)
        self.spec = SampleSpec(fields={**source.spec.fields, FIELD: label})

    def __len__(self) -> int:
        return len(self.source)

    def read(self, indices: Indices, out: Batch) -> None:
        others = {name: buffer for name, buffer in out.items() if name != FIELD}
        if len(others) < len(out):
            chosen = np.asarray(indices, dtype=np.int64)
            as_array(out[FIELD])[: len(chosen)] = self.labels.read(chosen)
        if others:
            self.source.read(indices, others)

    def name(self, index: int) -> str:
        return self.source.name(index)


def check_classes(classes: Sequence[str]) -> None:
    """Refuse classes of which two have one name."""
    if len(set(classes)) < len(classes):
        raise ConfigError(f"classes = {', '.join(classes)}: a name stands twice. Name each class once.")


def labels_by_name(
    names: Sequence[str], classes: tuple[str, ...], sample: Callable[[int], str], missing: str = "has no label"
) -> Labels:
    """Labels from a word for each sample: the name of its class or, where all are whole numbers, its number.

    Without `classes`, names count in the order of the alphabet. `sample` names a sample, `missing` says what is wrong
    with one whose word is empty.

    >>> labels_by_name(["dog", "cat", "dog"], (), str).numbers.tolist()
    [1, 0, 1]
    """
    given = {name for name in names if name}
    if all(name.lstrip("+-").isdecimal() for name in given) and not given <= set(classes):
        labels = labels_by_number(np.array([int(name or -1) for name in names]), classes, sample)
    else:
        labels = _by_class(names, classes or tuple(sorted(given)), sample)
    unnamed = {index: f"{sample(index)} {missing}. {CURE}" for index, name in enumerate(names) if not name}
    return replace(labels, problems={**labels.problems, **unnamed})


def _by_class(names: Sequence[str], classes: tuple[str, ...], sample: Callable[[int], str]) -> Labels:
    order = {name: number for number, name in enumerate(classes)}
    numbers = np.array([order.get(name, -1) for name in names], dtype=np.int64)
    problems = {
        index: f"{sample(index)} is of class '{names[index]}'. Allowed: {say_list(classes, most=10)}. {CURE}"
        for index in np.flatnonzero(numbers < 0).tolist()
    }
    return Labels(numbers=numbers, classes=classes, problems=problems)


def labels_by_number(numbers: NDArray[Any], classes: tuple[str, ...], sample: Callable[[int], str]) -> Labels:
    """Labels from a number for each sample; without `classes`, those are called by the numbers up to the largest.

    >>> labels_by_number(np.array([2.0, 0.0]), (), str).classes
    ('0', '1', '2')
    """
    largest = numbers[np.isfinite(numbers)].max(initial=0)
    if not classes and largest >= MAX_CLASSES:
        raise DataError(f"the largest class number is {largest}. Allowed: below {MAX_CLASSES}. Is it the right file?")
    classes = classes or tuple(str(number) for number in range(int(largest) + 1))
    wrong = ~in_range(numbers, classes)
    problems = {
        index: out_of_range(sample(index), numbers[index].item(), classes) for index in np.flatnonzero(wrong).tolist()
    }
    known = np.full(len(numbers), -1, dtype=np.int64)
    known[~wrong] = numbers[~wrong]
    return Labels(numbers=known, classes=classes, problems=problems)


def in_range(numbers: NDArray[Any], classes: Sequence[str]) -> NDArray[np.bool_]:
    """Which numbers are those of classes; without classes, which are whole and not negative."""
    right: NDArray[np.bool_] = (numbers >= 0) & (numbers < (len(classes) or np.inf)) & (np.floor(numbers) == numbers)
    return right


def out_of_range(sample: str, label: float, classes: Sequence[str]) -> str:
    """The text for a class number that is none."""
    allowed = f"0 to {len(classes) - 1} ({say_list(classes, most=10)})" if classes else "whole numbers from 0"
    return f"{sample}: label {label} is out of range. Allowed: {allowed}. {CURE}"


def with_classes(field: Field, classes: tuple[str, ...]) -> Field:
    """A field as one of class numbers: whole numbers, int64 for what is a single number or stored as fractions."""
    is_whole = not field.dtype.startswith("float") and field.shape
    return replace(field, dtype=field.dtype if is_whole else "int64", classes=classes)
