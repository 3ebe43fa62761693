from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepex.config import merge, override, read_toml, to_toml
from deepex.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.1
    kind: Literal["fast", "slow"] = "fast"
    limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class Outer:
    inner: Inner = field(default_factory=Inner)
    steps: int = 3
    name: str = "a"
    on: bool = False
    sizes: tuple[int, ...] = (1, 2)
    span: tuple[float, float] = (0.0, 1.0)


outers = st.builds(
    Outer,
    inner=st.builds(
        Inner,
        rate=st.floats(allow_nan=False),
        kind=st.sampled_from(["fast", "slow"]),
        limit=st.none() | st.integers(-(2**63), 2**63 - 1),
    ),
    steps=st.integers(-(2**63), 2**63 - 1),
    name=st.text(st.characters(codec="utf-8")),
    on=st.booleans(),
    sizes=st.lists(st.integers(0, 9)).map(tuple),
    span=st.tuples(st.floats(allow_nan=False), st.floats(allow_nan=False)),
)


@given(outers)
def test_toml_out_and_in_loses_nothing(config: Outer) -> None:
    # Read into another starting value, so that every field must come from the text.
    start = Outer(inner=Inner(limit=7, rate=9.0), sizes=(5,), on=True)
    assert merge(start, read_toml(to_toml(config), "text")) == config


def test_overrides_take_the_field_s_type() -> None:
    words = ["inner.rate=1", "inner.kind=slow", "inner.limit=4", "on=true", "sizes=3,4", "name=5"]
    changed = override(Outer(), words)
    assert changed == Outer(inner=Inner(rate=1.0, kind="slow", limit=4), on=True, sizes=(3, 4), name="5")
    assert override(changed, ["inner.limit=none"]).inner.limit is None


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("stepz=3", "Did you mean 'steps'? Allowed: inner, name, on, sizes, span, steps."),
        ("inner.rat=3", "Did you mean 'inner.rate'?"),
        ("iner.rate=3", "Did you mean 'inner'?"),
        ("steps=many", "Allowed: a whole number."),
        ("steps=1.5", "Allowed: a whole number."),
        ("inner.kind=fst", "Did you mean 'fast'? Allowed: fast, slow."),
        ("inner.limit=x", "Allowed: a whole number or none."),
        ("on=yes", "Allowed: true or false."),
        ("span=1", "span = [1.0] is a list of 1. Allowed: a list of 2, each a number."),
        ("span=1,2,3", "is a list of 3. Allowed: a list of 2"),
        ("inner=3", "is a table"),
        ("steps.more=3", "is a single value"),
        ("steps", "key=value"),
    ],
)
def test_a_wrong_override_says_what_is_allowed(assignment: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        override(Outer(), [assignment])
    assert said in str(raised.value)


def test_wrong_toml_says_where() -> None:
    with pytest.raises(ConfigError, match="line 1"):
        read_toml("a = = 3", "recipe.toml")
    with pytest.raises(ConfigError, match="steps = 'three' is text"):
        merge(Outer(), {"steps": "three"})
