"""Augmentation: symmetries of the data, drawn anew for each sample in each epoch.

What is drawn follows from (seed, epoch, sample) alone: it does not depend on the rank, the batch or the order in which
samples are read. All fields of an augmentation are changed alike, as an image and its mask must be.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deepex.errors import ConfigError

Draw = Callable[[int], int]
"""`draw(n)` is a whole number from 0 to n - 1; each call gives another."""


class Augmentation(Protocol):
    """A change to a sample that leaves its meaning as it is. Axes count from the last, as in -1."""

    @property
    def fields(self) -> tuple[str, ...]: ...

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """What becomes of a field's shape."""

    def draw(self, draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Draw the numbers for one sample; `shape` is that of the first field."""

    def apply(self, values: NDArray[Any], drawn: Sequence[int]) -> NDArray[Any]:
        """A field of one sample changed, as a view where that is possible."""

    def plain(self, values: NDArray[Any]) -> NDArray[Any]:
        """What evaluation sees: nothing drawn."""


@dataclass(frozen=True, kw_only=True)
class Flip:
    """Mirror along each of the axes, or not.

    >>> Flip(fields=("x",), axes=(-1,)).apply(np.arange(3), [1]).tolist()
    [2, 1, 0]
    """

    fields: tuple[str, ...]
    axes: tuple[int, ...] = (-2, -1)

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return _with_axes(shape, self.axes)

    def draw(self, draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(draw(2) for _ in self.axes)

    def apply(self, values: NDArray[Any], drawn: Sequence[int]) -> NDArray[Any]:
        return np.flip(values, tuple(axis for axis, flipped in zip(self.axes, drawn, strict=True) if flipped))

    def plain(self, values: NDArray[Any]) -> NDArray[Any]:
        return values


@dataclass(frozen=True, kw_only=True)
class Rotate:
    """Turn a square by quarters.

    >>> Rotate(fields=("x",)).apply(np.array([[1, 2], [3, 4]]), [1]).tolist()
    [[2, 4], [1, 3]]
    """

    fields: tuple[str, ...]
    axes: tuple[int, int] = (-2, -1)

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        _with_axes(shape, self.axes)
        if shape[self.axes[0]] != shape[self.axes[1]]:
            raise ConfigError(f"quarter turns of a field of shape {shape}. Allowed: axes of the same length.")
        return shape

    def draw(self, draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (draw(4),)

    def apply(self, values: NDArray[Any], drawn: Sequence[int]) -> NDArray[Any]:
        return np.rot90(values, drawn[0], self.axes)

    def plain(self, values: NDArray[Any]) -> NDArray[Any]:
        return values


@dataclass(frozen=True, kw_only=True)
class Crop:
    """Cut a window out of the last axes, anywhere; in evaluation from the middle.

    >>> Crop(fields=("x",), size=(2,)).plain(np.arange(6)).tolist()
    [2, 3]
    """

    fields: tuple[str, ...]
    size: tuple[int, ...]

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        leading = len(shape) - len(self.size)
        if leading < 0 or any(window > length for window, length in zip(self.size, shape[leading:], strict=True)):
            raise ConfigError(f"a window of {self.size} from a field of shape {shape}. Allowed: windows that fit in.")
        return (*shape[:leading], *self.size)

    def draw(self, draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
        lengths = shape[len(shape) - len(self.size) :]
        return tuple(draw(length - window + 1) for length, window in zip(lengths, self.size, strict=True))

    def apply(self, values: NDArray[Any], drawn: Sequence[int]) -> NDArray[Any]:
        leading = [slice(None)] * (values.ndim - len(self.size))
        return values[(*leading, *(slice(first, first + size) for first, size in zip(drawn, self.size, strict=True)))]

    def plain(self, values: NDArray[Any]) -> NDArray[Any]:
        lengths = values.shape[values.ndim - len(self.size) :]
        return self.apply(values, [(length - window) // 2 for length, window in zip(lengths, self.size, strict=True)])


@dataclass(frozen=True, kw_only=True)
class Shift:
    """Turn an axis that closes on itself, such as longitude, or any of a periodic box.

    >>> Shift(fields=("x",)).apply(np.arange(4), [1]).tolist()
    [3, 0, 1, 2]
    """

    fields: tuple[str, ...]
    axes: tuple[int, ...] = (-1,)

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return _with_axes(shape, self.axes)

    def draw(self, draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(draw(shape[axis]) for axis in self.axes)

    def apply(self, values: NDArray[Any], drawn: Sequence[int]) -> NDArray[Any]:
        return np.roll(values, tuple(drawn), self.axes)

    def plain(self, values: NDArray[Any]) -> NDArray[Any]:
        return values


@dataclass(frozen=True, kw_only=True)
class CubeSymmetry:
    """One of the 48 symmetries of a cube: the last three axes in any order, each mirrored or not.

    >>> cube = np.arange(8).reshape(2, 2, 2)
    >>> symmetry = CubeSymmetry(fields=("x",))
    >>> len({symmetry.apply(cube, [order, mirror]).tobytes() for order in range(6) for mirror in range(8)})
    48
    """

    fields: tuple[str, ...]

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) < 3 or len(set(shape[-3:])) > 1:
            raise ConfigError(f"symmetries of a cube for a field of shape {shape}. Allowed: last three axes alike.")
        return shape

    def draw(self, draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
        return draw(6), draw(8)

    def apply(self, values: NDArray[Any], drawn: Sequence[int]) -> NDArray[Any]:
        order, mirror = drawn
        leading = values.ndim - 3
        axes = list(itertools.permutations(range(3)))[order]
        turned = values.transpose(*range(leading), *(leading + axis for axis in axes))
        return np.flip(turned, tuple(axis - 3 for axis in range(3) if mirror >> axis & 1))

    def plain(self, values: NDArray[Any]) -> NDArray[Any]:
        return values


def drawing(seed: int, epoch: int, sample: int) -> Draw:
    """Draws for one sample in one epoch: whole numbers by hashing (seed, epoch, sample, count).

    >>> draw = drawing(0, 1, 2)
    >>> [draw(10) for _ in range(5)] == [drawing(0, 1, 2)(10)] * 5
    False
    """
    state = _mixed(_mixed(_mixed(seed) ^ epoch) ^ sample)
    calls = itertools.count(1)
    return lambda limit: (_mixed(state ^ next(calls)) >> 32) * limit >> 32


def _mixed(number: int) -> int:
    """SplitMix64 (Steele, Lea and Flood 2014): neighbouring numbers become unrelated ones of 64 bits."""
    number = (number + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return number ^ number >> 31


def _with_axes(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """The same shape, if it has these axes."""
    if not all(-len(shape) <= axis < 0 for axis in axes):
        raise ConfigError(f"axes {axes} of a field of shape {shape}. Allowed: -1 for the last, to {-len(shape)}.")
    return shape
