"""Source: where samples come from, by index. Here the protocol, arrays in memory, and a part of another source."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepex.data.feeding.gather import take_rows
from deepex.errors import DataError, SampleError
from deepex.sample import Batch, Field, SampleSpec

Indices = Sequence[int] | NDArray[np.int64]


class Source(Protocol):
    """Samples by index.

    A source travels to other processes by pickle and may be read by a thread; it opens its files where it is read.
    """

    spec: SampleSpec

    def __len__(self) -> int: ...

    def read(self, indices: Indices, out: Batch) -> None:
        """Fill the first `len(indices)` places of `out`, a buffer for each field, in the order of `indices`."""

    def name(self, index: int) -> str:
        """What this sample is called: no other has this name, and it keeps it when samples are added."""


@runtime_checkable
class RandomSource(Protocol):
    """A source that may draw its samples at random, as a data set with augmentations of its own does.

    `draws` is whether it does. Its samples are not cached, and are read by the step itself: reading one draws from
    generators that the model draws from too.
    """

    draws: bool

    def read_drawn(self, indices: Indices, out: Batch, draw_for: tuple[int, int] | None) -> None:
        """As `read`, with what is drawn following from (seed, epoch) and the sample alone."""


class ArraySource:
    """Samples that stand in memory, one array a field, samples along the first dimension.

    `fields` may say more of them (units, classes), and `names` what each sample is called, if not by its number.

    >>> source = ArraySource({"x": torch.zeros(10, 3)})
    >>> len(source), source.spec.fields["x"].shape
    (10, (3,))
    """

    def __init__(
        self,
        arrays: Mapping[str, Tensor | NDArray[np.generic]],
        fields: Mapping[str, Field] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.tensors = {name: torch.as_tensor(array).detach().cpu().contiguous() for name, array in arrays.items()}
        lengths = {name: len(tensor) for name, tensor in self.tensors.items()}
        if not lengths or len(set(lengths.values())) != 1 or not next(iter(lengths.values())):
            raise DataError(f"arrays have {lengths} samples. Give at least one array, all with the same number > 0.")
        self._arrays = {name: as_array(tensor) for name, tensor in self.tensors.items()}
        self._names = names
        self.spec = SampleSpec(
            fields=fields
            or {
                name: Field(shape=tuple(tensor.shape[1:]), dtype=str(tensor.dtype).removeprefix("torch."))
                for name, tensor in self.tensors.items()
            }
        )

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))

    def read(self, indices: Indices, out: Batch) -> None:
        for name, buffer in out.items():
            take_rows(self._arrays[name], np.asarray(indices), as_array(buffer)[: len(indices)])

    def __getstate__(self) -> dict[str, Any]:
        # As arrays: on the way to another process, torch would move a tensor's memory away from under its array.
        dtypes = {name: tensor.dtype for name, tensor in self.tensors.items()}
        return {**self.__dict__, "tensors": dtypes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.tensors = {
            name: torch.from_numpy(self._arrays[name]).view(dtype) for name, dtype in state["tensors"].items()
        }

    def name(self, index: int) -> str:
        return str(index) if self._names is None else self._names[index]


class Subset:
    """Some samples of another source."""

    def __init__(self, source: Source, indices: NDArray[np.int64]) -> None:
        self.source, self.indices, self.spec = source, indices, source.spec

    def __len__(self) -> int:
        return len(self.indices)

    def read(self, indices: Indices, out: Batch) -> None:
        self.source.read(self.indices[np.asarray(indices)], out)

    def read_drawn(self, indices: Indices, out: Batch, draw_for: tuple[int, int] | None) -> None:
        assert isinstance(self.source, RandomSource), "asked only where samples are drawn"
        self.source.read_drawn(self.indices[np.asarray(indices)], out, draw_for)

    @property
    def draws(self) -> bool:
        return draws(self.source)

    def name(self, index: int) -> str:
        return self.source.name(int(self.indices[index]))


def draws(source: Source) -> bool:
    """Whether a source draws its samples at random."""
    return isinstance(source, RandomSource) and source.draws


def read_all(source: Source, limit: int | None = None) -> Batch:
    """Samples of a source as one batch: all, or `limit` of them evenly spaced."""
    count = len(source) if limit is None else min(limit, len(source))
    out = allocate(source.spec, count)
    source.read(np.linspace(0, len(source) - 1, count).round().astype(np.int64), out)
    return out


def read_good(source: Source, indices: Indices, batch: Batch) -> dict[int, str]:
    """Read samples into a batch; returns what is wrong with those that can't be read, by their place in it."""
    try:
        source.read(indices, batch)
    except SampleError:
        bad: dict[int, str] = {}
        for place, index in enumerate(indices):
            try:
                source.read([int(index)], {name: tensor[place : place + 1] for name, tensor in batch.items()})
            except SampleError as error:
                bad[place] = str(error)
        return bad
    return {}


def read_field(source: Source, name: str) -> NDArray[Any]:
    """One field of all samples."""
    fields = SampleSpec(fields={name: source.spec.fields[name]})
    out = allocate(fields, len(source))
    source.read(range(len(source)), out)
    return as_array(out[name])


def as_array(tensor: Tensor) -> NDArray[Any]:
    """A tensor's memory for NumPy; bf16, which NumPy has not, as whole numbers of the same size."""
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def allocate(spec: SampleSpec, size: int) -> Batch:
    """Buffers for `size` samples."""
    return {
        name: torch.empty((size, *field.shape), dtype=getattr(torch, field.dtype))
        for name, field in spec.fields.items()
    }
