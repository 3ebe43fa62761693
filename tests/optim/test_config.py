from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import nn

from deepex.errors import ConfigError
from deepex.optim import OPTIMISERS, OptimiserConfig
from deepex.optim.config import keys_of
from deepex.replica import Replica


@pytest.mark.parametrize("name", OPTIMISERS)
def test_each_optimiser_of_the_table_is_built_from_keys_that_a_recipe_has(name: str) -> None:
    replica = Replica(nn.Linear(3, 2))
    rule = OptimiserConfig(name=name).build(replica)
    assert isinstance(rule, OPTIMISERS[name])  # type: ignore[arg-type]  # a class
    assert set(keys_of(name)) <= {field.name for field in fields(OptimiserConfig)}
    assert 0 <= rule.momentum < 1
    assert all(torch.count_nonzero(tensor) == 0 for tensor in rule.state.values())


def test_a_name_that_is_not_in_the_table_is_answered_with_those_that_are() -> None:
    allowed = ", ".join(sorted([*OPTIMISERS, "file.py:name"]))
    with pytest.raises(ConfigError, match=rf"Did you mean 'rmsprop'\? Allowed: {allowed}"):
        OptimiserConfig(name="rmsprob")


def test_an_option_that_an_optimiser_has_not_is_answered_with_the_one_that_has_it() -> None:
    with pytest.raises(ConfigError, match=r"with adamw and momentum 0.9. Allowed: with optimiser.name=sgd"):
        OptimiserConfig(name="adamw", nesterov=True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"betas": (0.9,)},
        {"betas": (0.9, 1.0)},
        {"weight_decay": -1.0},
        {"momentum": 1.0},
        {"clip_norm": 0.0},
        {"nesterov": True},
        {"name": "sgd", "nesterov": True, "momentum": 0.0},
    ],
)
def test_numbers_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="Allowed"):
        OptimiserConfig(**wrong)
