"""The nouns of the data's way: what one sample holds, and a batch of them. They know no file and no task."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

Batch: TypeAlias = dict[str, Tensor]
"""Tensors by field name, samples along the first dimension."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """One quantity of a sample.

    Attributes:
        shape: of one sample; a single number has none.
        dtype: a torch name such as `float32`.
        unit: as in `K`.
        description: what it is, in words.
        channels: names along the first dimension, if that dimension counts channels.
        classes: names of the classes, if the number is one of them.
    """

    shape: tuple[int, ...]
    dtype: str
    unit: str = ""
    description: str = ""
    channels: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.channels and (not self.shape or len(self.channels) != self.shape[0]):
            raise ValueError(f"{len(self.channels)} channel names for a field of shape {self.shape}")

    @property
    def num_bytes(self) -> int:
        """Bytes of one sample."""
        return math.prod(self.shape) * int(getattr(torch, self.dtype).itemsize)


@dataclass(frozen=True, kw_only=True)
class SampleSpec:
    """What every sample of a source holds.

    >>> SampleSpec(fields={"x": Field(shape=(8,), dtype="float32")}).fields["x"].shape
    (8,)
    """

    fields: Mapping[str, Field] = field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        """Bytes of one sample."""
        return sum(field.num_bytes for field in self.fields.values())


def describe_batch(batch: Batch) -> str:
    """Names, dtypes, shapes and ranges, as an error tells them.

    >>> import torch
    >>> describe_batch({"label": torch.tensor([0, 9])})
    'label: int64 of shape (2,), 0 to 9'
    """
    parts = []
    for name, tensor in batch.items():
        numbers = f", {tensor.min().item():g} to {tensor.max().item():g}" if tensor.numel() else ""
        parts.append(f"{name}: {str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}{numbers}")
    return "; ".join(parts)
