"""How the items of a data set are nested: tensors and numbers in mappings and tuples, by name and back.

A batch inside deepex is flat, tensors by name. A user's own function gets it as nested as the items of its data set
are. It knows no data set.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deepex.errors import DataError
from deepex.sample import Batch, Field

ALONE = "sample"  # what the only tensor of an item is called
MOST_PARTS = 64


@dataclass(frozen=True, kw_only=True)
class Structure:
    """An item's shape as a tree: a leaf has a name, any other node a way to put its parts together.

    >>> structure = Structure.of((torch.zeros(3), {"label": 7}))
    >>> structure.names()
    ['0', '1.label']
    >>> structure.nest({"0": torch.zeros(2, 3), "1.label": torch.zeros(2)})[1]["label"].shape
    torch.Size([2])
    """

    name: str = ""
    kind: type | None = None
    parts: tuple[tuple[Any, "Structure"], ...] = ()

    @classmethod
    def of(cls, item: Any, name: str = "") -> "Structure":
        """The structure of an item, as torch's default collation understands it."""
        if isinstance(item, Mapping):
            pairs = list(item.items())
        elif isinstance(item, list | tuple):
            pairs = list(enumerate(item))
        else:
            return cls(name=name or ALONE)
        if not pairs or len(pairs) > MOST_PARTS:
            raise DataError(
                f"{f'part {name!r} of an item' if name else 'an item'} is a {type(item).__name__} of {len(pairs)} "
                f"parts. Allowed: 1 to {MOST_PARTS}. Give numbers that belong together as one tensor or array."
            )
        prefix = f"{name}." if name else ""
        made = cls(kind=type(item), parts=tuple((key, cls.of(part, f"{prefix}{key}")) for key, part in pairs))
        if len(set(names := made.names())) < len(names):  # as in {"a.b": …, "a": {"b": …}}
            raise DataError(f"two parts of an item are called the same: {', '.join(names)}. Give one another key.")
        return made

    @property
    def is_flat_mapping(self) -> bool:
        """Whether a nested batch is the flat one itself."""
        return self.kind is dict and all(leaf.kind is None and leaf.name == key for key, leaf in self.parts)

    def names(self) -> list[str]:
        """The names of the leaves, in order."""
        return [self.name] if self.kind is None else [name for _, part in self.parts for name in part.names()]

    def flatten(self, item: Any) -> dict[str, Any]:
        """The leaves of an item by name; ValueError, in words, for one that is nested otherwise."""
        if self.kind is None:
            if isinstance(item, Mapping | list | tuple):
                raise ValueError(f"'{self.name}' is a {type(item).__name__}, and a tensor or number in the first item")
            return {self.name: item}
        if not isinstance(item, Mapping | list | tuple) or type(item) is not self.kind or len(item) != len(self.parts):
            size = f" of {len(item)}" if isinstance(item, Mapping | list | tuple) else ""
            raise ValueError(
                f"it is a {type(item).__name__}{size}, and the first item a {self.kind.__name__} of {len(self.parts)}"
            )
        flat: dict[str, Any] = {}
        for key, part in self.parts:
            if isinstance(item, Mapping) and key not in item:
                raise ValueError(f"it has no {key!r}, which the first item has")
            held: Any = item[key]
            flat |= part.flatten(held)
        return flat

    def nest(self, batch: Batch) -> Any:
        """A flat batch as nested as an item."""
        if self.kind is None:
            return batch[self.name]
        values = [part.nest(batch) for _, part in self.parts]
        if issubclass(self.kind, Mapping):
            return {key: value for (key, _), value in zip(self.parts, values, strict=True)}
        if hasattr(self.kind, "_fields"):  # a named tuple
            return self.kind(*values)
        return values if issubclass(self.kind, list) else tuple(values)


def to_tensor(value: Any) -> Tensor:
    """A leaf as a tensor, of the type that torch's default collation gives it; ValueError for what is no number."""
    if isinstance(value, Tensor):
        if value.is_meta or value.layout != torch.strided:
            raise ValueError("a tensor without numbers" if value.is_meta else "a sparse tensor")
        return value.detach()
    if isinstance(value, bool | int | np.ndarray | np.generic):
        try:
            return torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError) as error:
            kind = getattr(value, "dtype", type(value).__name__)
            raise ValueError(f"an array of {kind}, which torch has no numbers for ({error})") from error
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64)
    raise ValueError(f"a {type(value).__name__}")


def describe_leaf(value: Any, name: str) -> Field:
    """What a leaf is; DataError for what no batch can hold."""
    try:
        tensor = to_tensor(value)
    except ValueError as error:
        raise DataError(
            f"'{name}' of the first item is {error}. Allowed: tensors, NumPy arrays and numbers. Convert it in the "
            "data set, and leave out what a model does not compute with."
        ) from error
    return Field(shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))
