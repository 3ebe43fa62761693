"""The nouns of the data's way: what one sample holds, and a batch of them. They know no file and no task."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from torch import Tensor

Batch: TypeAlias = dict[str, Tensor]
"""Tensors by field name, samples along the first dimension."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """One quantity of a sample: its shape, dtype (a torch name such as `float32`) and unit."""

    shape: tuple[int, ...]
    dtype: str
    unit: str = ""


@dataclass(frozen=True, kw_only=True)
class SampleSpec:
    """What every sample of a source holds.

    >>> SampleSpec(fields={"x": Field(shape=(8,), dtype="float32")}).fields["x"].shape
    (8,)
    """

    fields: Mapping[str, Field] = field(default_factory=dict)


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
