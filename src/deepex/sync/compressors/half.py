"""`bf16` and `fp16`: half the bytes; every number is rounded to 16 bits, travels, and is float32 again."""

import math
from typing import Self

import torch
from torch import Tensor

from deepex.fabric import Fabric, Work
from deepex.replica import Replica

HIGHEST = 15  # numbers below 2^15 stay below fp16's 65504; a fabric divides before it adds, or adds in float32
AIM = 11  # where the largest should stand: gradients may grow sixteen times from one call to the next
LOWEST = 5  # below, too much of a slice would vanish under fp16's least number, 2^-24
NOTHING = -89  # exponent of zero, and of all that no scale in float32 could lift
PIECE = 2**18


class BFloat16:
    """Numbers rounded to bf16, which reaches as far as float32 and keeps 8 of its 24 bits.

    g <- (1/P) sum_p r(g_p), r(x) = x (1 + e), |e| <= 2^-8. A rounding goes up as often as down and differs from call to
    call, so that errors cancel where gradients add up, and nothing is kept for later: measured, a mean of two ranks is
    off by 0.2 % (root mean square), and by less than 0.001 % in one direction. Where a fabric adds in bf16 too, rank
    after rank as torch's does, that grows to 0.7 % with 64 ranks; beyond 256 what all have in common gets lost, and
    ranks of a host should mix first.

    Reference: Kalamkar et al., A study of bfloat16 for deep learning training, 2019.
    """

    exact = False
    delays = False
    name = "bf16"

    @classmethod
    def parse(cls, argument: str) -> Self:
        _refuse_argument(cls.name, argument)
        return cls()

    def prepare(self, replica: Replica, fabric: Fabric) -> None:
        self.fabric = fabric
        self._buffers = _Buffers(fabric, torch.bfloat16)

    def mean_(self, tensor: Tensor, start: int) -> Work:
        buffer = self._buffers.get(start, tensor.numel()).copy_(tensor)
        return _Rounded(self.fabric.mean_(buffer), buffer, tensor)

    def state(self) -> dict[str, Tensor]:
        return {}


class Float16:
    """Numbers rounded to fp16, which keeps 11 bits but only reaches from 6e-8 to 65504, so that they are scaled.

    g <- 2^-s (1/P) sum_p r(2^s g_p), |r(x) - x| <= 2^-11 |x|, or 2^-25 near zero. The scale is a power of two, so it
    rounds nothing itself, and follows from the largest number that any rank sent in the call before. With a slice each
    rank sends the exponent of its largest number, in a place of its own, so all ranks know all of them without another
    message. Where these show that numbers came too close to either end of fp16's range, the slice travels once more,
    with the scale that they ask for: nothing overflows, and what vanishes is 2^-29 P of the slice's largest at most. An
    infinity or NaN of one rank reaches all.

    Reference: Micikevicius et al., Mixed precision training, ICLR 2018, for scaling.
    """

    exact = False
    delays = False
    name = "fp16"

    def __init__(self) -> None:
        self._shifts = torch.zeros(0)

    @classmethod
    def parse(cls, argument: str) -> Self:
        _refuse_argument(cls.name, argument)
        return cls()

    def prepare(self, replica: Replica, fabric: Fabric) -> None:
        self.fabric = fabric
        self._buffers = _Buffers(fabric, torch.float16)
        self._places = {entry.start: place for place, entry in enumerate(replica.entries)}
        if fabric.world.size > 1:
            self._shifts = torch.zeros(len(self._places))

    def mean_(self, tensor: Tensor, start: int) -> Work:
        numel, size = tensor.numel(), self.fabric.world.size
        buffer = self._buffers.get(start, numel + size)
        return _Scaled(self.fabric, buffer, tensor, self._shifts[self._places[start]])

    def state(self) -> dict[str, Tensor]:
        """s for each parameter at which a slice begins: how slices are cut is not known before."""
        return {"shifts": self._shifts} if len(self._shifts) else {}


class _Buffers:
    """Blocks of 16 bits an element where the fabric averages fastest, one a slice, made at its first call."""

    def __init__(self, fabric: Fabric, dtype: torch.dtype) -> None:
        self.fabric, self.dtype = fabric, dtype
        self._made: dict[tuple[int, int], Tensor] = {}

    def get(self, start: int, numel: int) -> Tensor:
        if (start, numel) not in self._made:
            self._made[start, numel] = self.fabric.empty((numel + 1) // 2).view(self.dtype)[:numel]
        return self._made[start, numel]


class _Rounded:
    """A mean under way in a buffer, which goes back into the slice."""

    def __init__(self, work: Work, buffer: Tensor, tensor: Tensor) -> None:
        self.work: Work | None = work
        self.buffer, self.tensor = buffer, tensor

    def wait(self) -> None:
        if self.work is None:
            return
        self.work.wait()
        self.work = None
        self.tensor.copy_(self.buffer)


class _Scaled:
    """A mean under way of scaled numbers, and of the exponents that say whether their scale was right.

    Arguments:
        buffer: as long as the slice, and a place more for each rank's exponent.
        shift: s, which is written anew for the next call.
    """

    def __init__(self, fabric: Fabric, buffer: Tensor, tensor: Tensor, shift: Tensor) -> None:
        self.fabric, self.tensor, self.shift = fabric, tensor, shift
        self.numbers, self.exponents = buffer[: tensor.numel()], buffer[tensor.numel() :]
        self.buffer = buffer
        self._exponent = _exponent(tensor)
        self._scale = 2.0 ** float(shift)
        self._work: Work | None = self._send()

    def wait(self) -> None:
        if self._work is None:
            return
        self._work.wait()
        self._work = None
        size = self.fabric.world.size
        largest = float(self.exponents.float().mul_(size).round_().max())
        shift = float(self.shift)
        if largest > NOTHING:  # neither zeros everywhere nor a NaN somewhere
            self.shift.fill_(AIM - largest)
            if not LOWEST <= largest + shift <= HIGHEST:
                self._scale = 2.0 ** (AIM - largest)
                self._send().wait()
        self.tensor.copy_(self.numbers).div_(self._scale)

    def _send(self) -> Work:
        """The slice stays as it is, for another try; pieces of it are scaled where caches hold them."""
        for begin in range(0, self.tensor.numel(), PIECE):
            self.numbers[begin : begin + PIECE].copy_(self.tensor[begin : begin + PIECE] * self._scale)
        self.exponents.zero_()
        self.exponents[self.fabric.world.rank] = self._exponent
        return self.fabric.mean_(self.buffer)


def _refuse_argument(name: str, argument: str) -> None:
    if argument:
        raise ValueError(f"{name} takes no argument. Write +{name}.")


def _exponent(tensor: Tensor) -> float:
    """The least e with |x| < 2^e for all x, as a whole number; NaN if one of them is not finite.

    >>> _exponent(torch.tensor([0.3, -5.0])), _exponent(torch.zeros(2))
    (3.0, -89.0)
    """
    least, most = torch.aminmax(tensor)  # 25 times as fast as a norm
    largest = max(abs(float(least)), abs(float(most)))
    if not math.isfinite(largest):
        return math.nan
    return float(max(NOTHING, math.frexp(largest)[1])) if largest else float(NOTHING)
