"""`topk:F`: only the largest numbers travel, with their places; the rest waits in a residual until it has grown."""

from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor

from deepex.fabric import Fabric, Work
from deepex.replica import Replica

SMALL = 2**16  # elements among which torch finds the largest in half a millisecond
SAMPLE, PIECE = 2**14, 2**20


class TopK:
    """The share F of a slice that is largest, with error feedback.

    x_p = g_p + r_p;  S_p: the places of the k = max(1, F n) largest |x_p|;  g <- (1/P) sum_p x_p[S_p];  r_p <- x_p
    without S_p. What doesn't travel is added to the next call's numbers: nothing is lost, but it comes about 1/F calls
    late. That narrows the rates which are stable: with F = 0.01 and momentum, one diverged that does well uncompressed.

    A rank sends 8 k bytes, a place and a number each, and receives as many from each other rank, so that it pays for F
    well below 1/P. Numbers are added in the order of ranks, so that all get the same bits. An infinity or NaN is among
    the largest and reaches all ranks; the residual stays free of it.

    Arguments:
        share: F, above 0 and below 1.

    References: Stich et al., Sparsified SGD with memory, NeurIPS 2018; Lin et al., Deep gradient compression, ICLR
    2018, for the threshold from a sample (not its momentum correction, clipping and warm-up).
    """

    exact = False
    delays = True

    def __init__(self, share: float) -> None:
        self.share = share
        self.name = f"topk:{share}"
        self._residual = torch.zeros(0)

    @classmethod
    def parse(cls, argument: str) -> Self:
        try:
            share = float(argument)
        except ValueError:
            share = 0.0
        if not 0 < share < 1:
            raise ValueError("F must be the share of numbers that travel, above 0 and below 1. Write +topk:0.01.")
        return cls(share)

    def prepare(self, replica: Replica, fabric: Fabric) -> None:
        self.fabric = fabric
        self._messages: dict[tuple[int, int], Tensor] = {}
        if fabric.world.size > 1:
            self._residual = torch.zeros_like(replica.weights)

    def mean_(self, tensor: Tensor, start: int) -> Work:
        world, numel = self.fabric.world, tensor.numel()
        messages = self._get_messages(start, numel)
        residual = self._residual[start : start + numel]
        places = largest(tensor.add_(residual), messages.shape[-1])
        numbers = tensor[places]
        if numbers.isfinite().all():
            residual.copy_(tensor)
            residual[places] = 0
        messages[world.rank, 0].copy_(places)
        messages[world.rank, 1].view(torch.float32).copy_(numbers)
        works = [self.fabric.broadcast_(messages[source], source) for source in range(world.size)]
        return _Scattered(works, messages, tensor)

    def state(self) -> dict[str, Tensor]:
        return {"residual": self._residual} if len(self._residual) else {}

    def _get_messages(self, start: int, numel: int) -> Tensor:
        """Each rank's places and numbers for a slice, P x 2 x k words of 32 bits, made at its first call."""
        if (start, numel) not in self._messages:
            size, count = self.fabric.world.size, max(1, int(self.share * numel))
            words = self.fabric.empty(size * 2 * count).view(torch.int32)
            self._messages[start, numel] = words.view(size, 2, count)
        return self._messages[start, numel]


class _Scattered:
    """Messages of all ranks under way, which add up in the slice."""

    def __init__(self, works: Sequence[Work], messages: Tensor, tensor: Tensor) -> None:
        self.works, self.messages, self.tensor = list(works), messages, tensor

    def wait(self) -> None:
        if not self.works:
            return
        for work in self.works:
            work.wait()
        self.works.clear()
        self.tensor.zero_()
        for places, numbers in self.messages.unbind():
            self.tensor.index_add_(0, places, numbers.view(torch.float32))
        self.tensor.div_(len(self.messages))


def largest(tensor: Tensor, count: int) -> Tensor:
    """Where the `count` elements of largest magnitude stand, in no order; NaN is larger than all.

    torch.topk takes 340 ms for 1 % of 5 million elements; a threshold from a sample leaves few to choose from, and that
    takes 9 ms. Should the sample mislead, torch looks at all of them.

    >>> largest(torch.tensor([1.0, -3.0, 0.5, 2.0]), 2).sort().values
    tensor([1, 3])
    """
    numel = tensor.numel()
    if numel > SMALL:
        sample = tensor[:: numel // SAMPLE | 1].abs()  # an odd stride visits all columns of a matrix
        expected = len(sample) * count / numel
        safe = int(expected + 4 * expected**0.5 + 4)  # four standard deviations more: too few once in 30,000 calls
        if safe < len(sample):
            threshold = sample.kthvalue(len(sample) - safe).values
            places = _beyond(tensor, threshold)
            if len(places) >= count:
                return places[tensor[places].abs().topk(count, sorted=False).indices]
            if threshold == 0:  # all but a few are zeros
                return torch.cat([places, _where(tensor == 0)[: count - len(places)]])
    return tensor.abs().topk(count, sorted=False).indices


def _beyond(tensor: Tensor, threshold: Tensor) -> Tensor:
    """Where magnitudes are not below or at a threshold, piece by piece, so that caches hold what comes in between."""
    found = [
        _where(tensor[begin : begin + PIECE].abs().le(threshold).logical_not_()).add_(begin)
        for begin in range(0, tensor.numel(), PIECE)
    ]
    return torch.cat(found)


def _where(mask: Tensor) -> Tensor:
    if mask.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(mask.numpy()))  # six times as fast as torch's nonzero
    return mask.nonzero().flatten()
