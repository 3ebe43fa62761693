"""`powersgd:R`: a matrix travels as two thin ones, whose product is close to its best approximation of rank R."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import normalize

from deepex.fabric import Done, Fabric, Work
from deepex.replica import Entry, Replica

SEED = 1
LEAST_NORM = 1e-30  # a Q of zeros stays zeros; the next base is orthonormal all the same


class PowerSGD:
    """One step of a power iteration for every matrix, with error feedback.

    M_p = G_p + E_p, n x m;  B = orthonormal columns of (1/P) sum_p M_p Q;  Q_p = M_p^T B;  Q <- (1/P) sum_p Q_p;
    G <- B Q^T;  E_p <- M_p - B Q_p^T. Each call begins with the Q of the one before, so that over calls B finds the
    largest singular vectors. R (n + m) numbers travel for n m, in two messages a slice; vectors, and matrices that
    would not become smaller, travel as they are in the first.

    E_p is what the rank's own matrix has lost, and the mean of all is what the mean has lost. (M_p - G would have the
    same mean, but where ranks' data differ it grows without end: measured, 700 times as large after 20,000 calls.)

    A matrix is a parameter's first dimension against the others, as they stand in memory; channels-last strides
    permute its columns, to which the iteration is blind. All ranks compute B from the same bits, which gives the same
    bits on processors of one kind. An infinity or NaN of one rank makes the slice NaN on all, and leaves Q and E alone.

    Arguments:
        rank: R, from 1.

    Reference: Vogels et al., PowerSGD, NeurIPS 2019.
    """

    exact = False
    delays = True

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.name = f"powersgd:{rank}"
        self._kept: dict[str, Tensor] = {}

    @classmethod
    def parse(cls, argument: str) -> Self:
        if not argument.isdecimal() or int(argument) < 1:
            raise ValueError("R must be the rank of a matrix that travels, a whole number from 1. Write +powersgd:4.")
        return cls(int(argument))

    def prepare(self, replica: Replica, fabric: Fabric) -> None:
        self.fabric, self._entries = fabric, replica.entries
        self._matrices: dict[int, tuple[Tensor, Tensor]] = {}
        self._slices: dict[tuple[int, int], Slice] = {}
        self._under_way: list[_Chain] = []
        if fabric.world.size > 1:
            self._claim_matrices(replica.weights)

    def mean_(self, tensor: Tensor, start: int) -> Work:
        stop = start + tensor.numel()
        if (start, stop) not in self._slices:
            inside = [entry for entry in self._entries if start <= entry.start and entry.stop <= stop]
            self._slices[start, stop] = lay_out(inside, self._matrices, self.fabric)
        chain = _Chain(self._slices[start, stop], tensor, self.fabric, self._under_way)
        self._under_way.append(chain)
        return chain

    def state(self) -> dict[str, Tensor]:
        return self._kept

    def _claim_matrices(self, weights: Tensor) -> None:
        """Give each matrix its E, as large as itself, and its Q^T, R x m, with which the first call begins."""
        shapes = {entry.start: shape for entry in self._entries if (shape := as_matrix(entry, self.rank))}
        numel = self.rank * sum(columns for _, columns in shapes.values())
        noise = torch.randn(numel, generator=torch.Generator().manual_seed(SEED))
        factors, errors = noise.to(weights.device), torch.zeros_like(weights)
        self._kept = {"residual": errors, "factors": factors}
        place = 0
        for start, (rows, columns) in shapes.items():
            error = errors[start : start + rows * columns].view(rows, columns)
            factor = factors[place : place + self.rank * columns].view(self.rank, columns)
            self._matrices[start] = error, factor
            place += factor.numel()


@dataclass(frozen=True, kw_only=True)
class Thin:
    """A matrix of a slice: where it stands, what is kept of it, and its places in the messages.

    Q stands transposed, R x m: torch multiplies such shapes four to forty times as fast.
    """

    begin: int
    error: Tensor
    factor: Tensor
    left: Tensor
    right: Tensor

    def of(self, tensor: Tensor) -> Tensor:
        """The matrix inside a slice."""
        return tensor[self.begin : self.begin + self.error.numel()].view_as(self.error)


@dataclass(frozen=True, kw_only=True)
class Slice:
    """The two messages of a slice, the matrices in it, and the vectors: where they stand, and in the first message."""

    first: Tensor
    second: Tensor
    matrices: list[Thin]
    vectors: list[tuple[slice, Tensor]]


def as_matrix(entry: Entry, rank: int) -> tuple[int, int] | None:
    """Rows and columns of a parameter that is worth two thin matrices; None for all others."""
    numel = entry.stop - entry.start
    rows = entry.parameter.shape[0] if entry.parameter.dim() > 1 else 1
    return (rows, numel // rows) if numel and rank * (rows + numel // rows) < numel else None


def lay_out(entries: Sequence[Entry], matrices: dict[int, tuple[Tensor, Tensor]], fabric: Fabric) -> Slice:
    """Make the messages for neighbouring parameters: in the order of the block, one behind the other."""
    kept = {entry.start: matrices[entry.start] for entry in entries if entry.start in matrices}
    lefts = [len(error) * len(factor) for error, factor in kept.values()]
    rights = [factor.numel() for _, factor in kept.values()]
    plain = [entry for entry in entries if entry.start not in kept]
    first = fabric.empty(sum(lefts) + sum(entry.stop - entry.start for entry in plain))
    second = fabric.empty(sum(rights))
    origin = entries[0].start
    thin = [
        Thin(
            begin=start - origin,
            error=error,
            factor=factor,
            left=left.view(-1, len(factor)),
            right=right.view_as(factor),
        )
        for (start, (error, factor)), left, right in zip(
            kept.items(), first[: sum(lefts)].split_with_sizes(lefts), second.split_with_sizes(rights), strict=True
        )
    ]
    places = first[sum(lefts) :].split_with_sizes([entry.stop - entry.start for entry in plain])
    spans = [slice(entry.start - origin, entry.stop - origin) for entry in plain]
    return Slice(first=first, second=second, matrices=thin, vectors=list(zip(spans, places, strict=True)))


class _Chain:
    """Two messages, one after the other. M_p stands in the slice itself until the end.

    The first wait for any slice makes all that are under way send their second message, so that these overlap; ranks
    call and wait in the same order, so they send in the same order too.
    """

    def __init__(self, parts: Slice, tensor: Tensor, fabric: Fabric, under_way: list["_Chain"]) -> None:
        self.parts, self.tensor, self.fabric, self.under_way = parts, tensor, fabric, under_way
        self._bases: list[Tensor] | None = None
        self._finite = True
        for matrix in parts.matrices:
            torch.mm(matrix.of(tensor).add_(matrix.error), matrix.factor.t(), out=matrix.left)
        for span, place in parts.vectors:
            place.copy_(tensor[span])
        self._work = fabric.mean_(parts.first)

    def advance(self) -> None:
        """Send the Q's, once the P's have come."""
        if self._bases is not None:
            return
        self._work.wait()
        self._work, self._bases = Done(), []
        self._finite = bool(self.parts.first.isfinite().all())  # from the same bits on all ranks
        if not self._finite or not self.parts.matrices:
            return
        for matrix in self.parts.matrices:
            own = matrix.of(self.tensor)
            base = torch.linalg.qr(matrix.left).Q  # Householder's: orthonormal even where columns are zero or equal
            torch.mm(base.t(), own, out=matrix.right)
            torch.addmm(own, base, matrix.right, alpha=-1, out=matrix.error)
            self._bases.append(base)
        self._work = self.fabric.mean_(self.parts.second)

    def wait(self) -> None:
        if self not in self.under_way:
            return
        for chain in self.under_way:
            chain.advance()
        self.under_way.remove(self)
        self._work.wait()
        if not self._finite:
            self.tensor.fill_(torch.nan)
            return
        assert self._bases is not None
        for matrix, base in zip(self.parts.matrices, self._bases, strict=True):
            torch.mm(base, matrix.right, out=matrix.of(self.tensor))
            normalize(matrix.right, dim=1, eps=LEAST_NORM, out=matrix.factor)  # lest gradients' squares overflow
        for span, place in self.parts.vectors:
            self.tensor[span] = place
