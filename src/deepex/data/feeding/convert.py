"""Conversion: from the numbers that are stored to those that a network likes, in place in a batch's buffer."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from deepex.data.statistics import Moments
from deepex.errors import ConfigError
from deepex.sample import Field

SERIAL = 1 << 15  # torch computes so many values on the thread that asks, and starts others for more


@dataclass(frozen=True, kw_only=True)
class Convert:
    """y = (g(x) - shift) / scale, where g is log(1 + x) or nothing; shift and scale one for all, or one a channel.

    >>> field = Field(shape=(1, 2), dtype="uint8")
    >>> out = np.empty((1, 1, 2), dtype=np.float32)
    >>> Convert(scale=(255.0,)).apply(np.array([[[0, 255]]], dtype=np.uint8), out)
    >>> out.tolist()
    [[[0.0, 1.0]]]
    """

    log1p: bool = False
    shift: tuple[float, ...] = (0.0,)
    scale: tuple[float, ...] = (1.0,)
    dtype: Literal["float32", "float64"] = "float32"

    def __post_init__(self) -> None:
        if 0.0 in self.scale or not all(np.isfinite(self.scale)) or not all(np.isfinite(self.shift)):
            raise ConfigError(
                f"a conversion by shift {self.shift} and scale {self.scale}. Allowed: numbers, scale not 0."
            )

    @classmethod
    def z_score(cls, moments: Moments) -> "Convert":
        """Mean 0 and deviation 1 in each channel; a constant channel becomes 0."""
        return cls(shift=_plain(moments.mean), scale=_not_zero(moments.deviation))

    @classmethod
    def min_max(cls, moments: Moments) -> "Convert":
        """From 0, the least value of a channel, to 1, its most."""
        return cls(shift=_plain(moments.minimum), scale=_not_zero(moments.maximum - moments.minimum))

    def field(self, field: Field) -> Field:
        """What a field is after conversion."""
        wrong = {len(self.shift), len(self.scale)} - {1, field.shape[0] if field.shape else 1}
        if wrong:
            raise ConfigError(
                f"{wrong.pop()} numbers convert a field of shape {field.shape}. Allowed: 1, or one a channel, which "
                "is the first dimension."
            )
        return Field(shape=field.shape, dtype=self.dtype, description=field.description, channels=field.channels)

    def apply(self, values: NDArray[Any], out: NDArray[Any]) -> None:
        """Convert N samples into `out`."""
        np.copyto(out, values, casting="unsafe")
        self.finish(out)

    def finish(self, out: NDArray[Any]) -> None:
        """Convert, in place, values that were only cast so far."""
        if self.log1p:
            flat = torch.from_numpy(out.reshape(-1))
            for first in range(0, len(flat), SERIAL):
                flat[first : first + SERIAL].log1p_()
        if any(self.shift):
            out -= self._by_channel(self.shift, out)
        if any(number != 1.0 for number in self.scale):
            out *= 1.0 / self._by_channel(self.scale, out)

    def undo(self, converted: NDArray[Any]) -> NDArray[Any]:
        """Stored values again (N samples), but for rounding."""
        scaled: NDArray[Any] = converted * self._by_channel(self.scale, converted)
        scaled += self._by_channel(self.shift, converted)
        return np.asarray(np.expm1(scaled)) if self.log1p else scaled

    def _by_channel(self, numbers: tuple[float, ...], out: NDArray[Any]) -> NDArray[Any]:
        """Numbers so that they meet their channels."""
        shape = (len(numbers), *(1 for _ in out.shape[2:])) if out.ndim > 1 else (1,)
        return np.asarray(numbers, dtype=out.dtype).reshape(shape)


def _plain(numbers: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(float(number) for number in numbers)


def _not_zero(numbers: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(float(number) or 1.0 for number in numbers)
