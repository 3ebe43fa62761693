"""Moments of a field, channel by channel, exact enough to merge: blocks, shards and ranks add up in any number."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PIECE = 1 << 15  # values at a time, so that their wider copies stay in cache
EXACT = 256  # squares of so many bytes add up in float32 without rounding


@dataclass(frozen=True, kw_only=True)
class Moments:
    """How many values a channel has, their least, most and mean, and the sum of their squared distances to it.

    >>> moments = Moments.of(np.array([[[1.0, 3.0]], [[2.0, 2.0]]]))
    >>> moments.mean.tolist(), moments.deviation.tolist()
    ([2.0], [0.7071067811865476])
    """

    count: int
    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[Any]) -> "Moments":
        """The moments of N x C x K values, over N and K."""
        if values.dtype == np.bool_:
            values = values.view(np.uint8)
        count = values.shape[0] * values.shape[2]
        with np.errstate(all="ignore"):  # values that are no numbers give moments that are none
            channels = [_Sums(np.ascontiguousarray(values[:, number]).reshape(-1)) for number in range(values.shape[1])]
            mean = np.array([channel.total / count for channel in channels])
            squares = np.array([channel.squares for channel in channels]) - count * mean**2
        return cls(
            count=count,
            minimum=np.array([channel.minimum for channel in channels]),
            maximum=np.array([channel.maximum for channel in channels]),
            mean=mean,
            squares=np.maximum(squares, 0.0),  # rounding alone makes it negative
        )

    @classmethod
    def none(cls, channels: int) -> "Moments":
        """The moments of no values."""
        zeros = np.zeros(channels)
        return cls(count=0, minimum=zeros + np.inf, maximum=zeros - np.inf, mean=zeros, squares=zeros)

    def merge(self, other: "Moments") -> "Moments":
        """The moments of both together (Chan, Golub and LeVeque 1979)."""
        if not self.count or not other.count:
            return self if self.count else other
        count, distance = self.count + other.count, other.mean - self.mean
        return Moments(
            count=count,
            minimum=np.minimum(self.minimum, other.minimum),
            maximum=np.maximum(self.maximum, other.maximum),
            mean=self.mean + distance * (other.count / count),
            squares=self.squares + other.squares + distance**2 * (self.count * other.count / count),
        )

    @property
    def deviation(self) -> NDArray[np.float64]:
        """The standard deviation of each channel."""
        return np.asarray(np.sqrt(self.squares / max(1, self.count)))

    def to_plain(self) -> dict[str, Any]:
        """As values for JSON; numbers survive to the bit."""
        arrays = ("minimum", "maximum", "mean", "squares")
        return {"count": self.count, **{name: getattr(self, name).tolist() for name in arrays}}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> "Moments":
        arrays = {name: np.asarray(value, dtype=np.float64) for name, value in plain.items() if name != "count"}
        return cls(count=plain["count"], **arrays)


class _Sums:
    """Sums over the values of a channel, piece by piece; exact for bytes."""

    def __init__(self, flat: NDArray[Any]) -> None:
        self.total = self.squares = 0.0
        self.minimum, self.maximum = float(flat.min()), float(flat.max())
        for first in range(0, len(flat), PIECE):
            piece = flat[first : first + PIECE]
            if piece.dtype == np.uint8 and len(piece) % EXACT == 0:
                rows = piece.astype(np.float32).reshape(-1, EXACT)
                self.total += float(np.einsum("ij->i", rows).sum(dtype=np.float64))
                self.squares += float(np.einsum("ij,ij->i", rows, rows).sum(dtype=np.float64))
            else:
                wide = piece.astype(np.float64)
                self.total += float(wide.sum())
                self.squares += float(np.einsum("i,i->", wide, wide))  # a product by BLAS may start threads
