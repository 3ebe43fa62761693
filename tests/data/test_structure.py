"""How items are nested: as torch's default collation nests a batch of them, and back."""

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from deepex.data.source import allocate
from deepex.data.structure import MOST_PARTS, Structure, describe_leaf, to_tensor
from deepex.errors import DataError
from deepex.sample import SampleSpec


class Point(NamedTuple):
    position: torch.Tensor
    is_inside: bool


ITEMS: dict[str, Any] = {
    "a tensor": torch.arange(6.0).reshape(2, 3),
    "a tensor that needs a gradient": torch.ones(2, requires_grad=True) * 2,
    "turned axes": torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
    "bf16": torch.ones(2, dtype=torch.bfloat16),
    "complex numbers": torch.ones(2, dtype=torch.complex64),
    "a float": 1.5,
    "an int": 3,
    "a bool": True,
    "a NumPy float": np.float32(1.5),
    "a NumPy int": np.int16(3),
    "an array without dimensions": np.array(1.5, dtype=np.float32),
    "an array": np.arange(4, dtype=np.uint8),
    "a pair": (torch.zeros(3), 1),
    "a list": [1, 2.0],
    "a mapping": {"x": torch.zeros(2), "y": 1.5},
    "keys that are no texts": {0: 1.0, 1: torch.zeros(1)},
    "an ordered mapping": OrderedDict(a=1, b=2.0),
    "a named tuple": Point(torch.ones(2), True),
    "nested": {"a": (torch.zeros(1), {"b": np.float32(1)}), "c": [np.zeros(2), Point(torch.ones(1), False)]},
}


def batch_of(item: Any, size: int) -> Any:
    """As many of one item as a batch, the way that deepex makes one."""
    structure = Structure.of(item)
    leaves = structure.flatten(item)
    spec = SampleSpec(fields={name: describe_leaf(value, name) for name, value in leaves.items()})
    out = allocate(spec, size)
    for name, value in leaves.items():
        out[name][:] = to_tensor(value)
    return structure.nest(out)


def assert_same(mine: Any, other: Any) -> None:
    """The same tensors in the same places; a tuple may stand for a list, into which torch makes it."""
    if isinstance(other, torch.Tensor):
        assert isinstance(mine, torch.Tensor)
        assert mine.dtype == other.dtype
        assert torch.equal(mine, other)
    elif isinstance(other, dict):
        assert list(mine) == list(other)
        for key in other:
            assert_same(mine[key], other[key])
    else:
        assert len(mine) == len(other)
        assert getattr(mine, "_fields", None) == getattr(other, "_fields", None)
        for one, another in zip(mine, other, strict=True):
            assert_same(one, another)


@pytest.mark.parametrize("item", ITEMS.values(), ids=ITEMS)
def test_a_batch_is_nested_and_typed_as_torch_collates_it(item: Any) -> None:
    assert_same(batch_of(item, 3), default_collate([item] * 3))


def test_only_a_plain_mapping_of_tensors_needs_no_nesting() -> None:
    assert Structure.of({"x": 1, "y": 2}).is_flat_mapping
    for item in ({"x": (1,)}, {0: 1}, (1, 2), 1):
        assert not Structure.of(item).is_flat_mapping


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("text", "a str"),
        (b"bytes", "a bytes"),
        (None, "a NoneType"),
        (1j, "a complex"),
        ({1, 2}, "a set"),
        (np.array(["a"]), "an array of <U1"),
        (np.array([None]), "an array of object"),
        (2**70, "an array of int"),
        (torch.zeros(2, 2).to_sparse(), "a sparse tensor"),
        (torch.zeros(2, device="meta"), "a tensor without numbers"),
    ],
)
def test_what_no_batch_can_hold_is_named_with_its_place(value: Any, said: str) -> None:
    with pytest.raises(DataError) as raised:
        describe_leaf(value, "1.label")
    assert str(raised.value).startswith(f"'1.label' of the first item is {said}")
    assert "Allowed: tensors, NumPy arrays and numbers" in str(raised.value)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ((), "an item is a tuple of 0 parts. Allowed: 1 to 64"),
        ({"x": {}}, "part 'x' of an item is a dict of 0 parts"),
        ([0.0] * (MOST_PARTS + 1), "a list of 65 parts. Allowed: 1 to 64. Give numbers that belong together as one"),
        ({"a.b": 1, "a": {"b": 2}}, "two parts of an item are called the same: a.b, a.b"),
    ],
)
def test_items_that_can_not_be_told_apart_or_counted_are_refused(item: Any, said: str) -> None:
    with pytest.raises(DataError) as raised:
        Structure.of(item)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ((1, 2, 3), "it is a tuple of 3, and the first item a tuple of 2"),
        ([1, {"y": 2}], "it is a list of 2, and the first item a tuple of 2"),
        (5, "it is a int, and the first item a tuple of 2"),
        ((1, {"z": 2}), "it has no 'y', which the first item has"),
        (((1,), {"y": 2}), "'0' is a tuple, and a tensor or number in the first item"),
    ],
)
def test_an_item_that_is_nested_otherwise_than_the_first_is_told_in_words(item: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Structure.of((1, {"y": 2})).flatten(item)
