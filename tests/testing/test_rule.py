"""The contract of a rule holds every optimiser of the table and a user's own, and finds what is broken."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from deepex.optim import OPTIMISERS
from deepex.replica import Replica
from deepex.testing.rule import check_rule

RULES = Path(__file__).parents[1] / "files" / "own" / "rules.py"


@pytest.mark.parametrize("name", [*OPTIMISERS, f"{RULES}:SignSGD", "torch.optim:Adagrad"])
def test_rules_keep_it(name: str) -> None:
    check_rule(name)


class Good:
    """Descent with a running mean, which the rules below break."""

    decouples_decay, momentum = False, 0.5

    def __init__(self, replica: Replica) -> None:
        self.state: dict[str, Tensor] = {"mean": torch.zeros_like(replica.weights)}

    def update(self, weights: Tensor, gradients: Tensor, rate: float, weight_decay: float) -> None:
        weights.sub_(self.state["mean"].mul_(0.5).add_(gradients), alpha=rate)


class Forgets(Good):
    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self.hidden, self.state = self.state["mean"], {}

    def update(self, weights: Tensor, gradients: Tensor, rate: float, weight_decay: float) -> None:
        weights.sub_(self.hidden.mul_(0.5).add_(gradients), alpha=rate)


class Ascends(Good):
    def update(self, weights: Tensor, gradients: Tensor, rate: float, weight_decay: float) -> None:
        weights.add_(gradients, alpha=rate)


class OwnRate(Good):
    def update(self, weights: Tensor, gradients: Tensor, rate: float, weight_decay: float) -> None:
        super().update(weights, gradients, 0.01, weight_decay)


class Stands(Good):
    def update(self, weights: Tensor, gradients: Tensor, rate: float, weight_decay: float) -> None:
        pass


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (Forgets, "a rule goes on differently"),
        (Ascends, "a square has gone from"),
        (OwnRate, "a rate of 0 changes the weights"),
        (Stands, "the weights don't change"),
    ],
)
def test_what_is_broken_is_found(rule: type[Good], said: str) -> None:
    check_rule(Good)
    with pytest.raises(AssertionError, match=said):
        check_rule(rule)
