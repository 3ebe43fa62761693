"""Frozen values through JSON: exact there and back, and a clear word where a file holds something else."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pytest

from deepex.record.typed_json import from_json, read_rows, to_json


@dataclass(frozen=True, kw_only=True)
class Part:
    name: str
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Whole:
    count: int
    parts: tuple[Part, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)
    best: Part | None = None
    kind: Literal["small", "large"] = "small"


WHOLE = Whole(count=2, parts=(Part(name="a", seconds=0.1), Part(name="b")), shares={"x": 1.0}, best=Part(name="c"))


def test_values_come_back_as_they_were() -> None:
    assert from_json(Whole, json.loads(json.dumps(to_json(WHOLE)))) == WHOLE


def test_what_is_left_out_has_its_default_and_what_is_unknown_is_passed_over() -> None:
    assert from_json(Whole, {"count": 1, "of a later version": 3}) == Whole(count=1)


def test_a_whole_number_is_a_number_too() -> None:
    found = from_json(Part, {"name": "a", "seconds": 3})
    assert (found.seconds, type(found.seconds)) == (3.0, float)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({}, "'count' is missing"),
        ({"count": "two"}, "'count' is 'two'"),
        ({"count": 1, "parts": [{"seconds": 1.0}]}, "'name' is missing"),
        ({"count": 1, "shares": {"x": "much"}}, "'shares.x' is 'much'"),
        ({"count": 1, "parts": {"name": "a"}}, "'parts' is {'name': 'a'}"),
        ({"count": 1, "kind": "huge"}, "'kind' is 'huge'"),
    ],
)
def test_what_is_missing_or_of_another_type_is_named(tree: Mapping[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_json(Whole, tree)


def test_rows_to_be_changed_first_are_checked_too() -> None:
    assert read_rows({"parts": [{"name": "a"}]}, "parts") == [{"name": "a"}]
    for tree, message in (
        ({}, "'parts' is missing"),
        ({"parts": "a"}, "'parts' is 'a'"),
        ({"parts": ["a"]}, "'parts' is 'a'"),
    ):
        with pytest.raises(ValueError, match=message):
            read_rows(tree, "parts")
