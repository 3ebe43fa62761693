"""The contract of an optimiser's rule. `check_rule` holds any rule to it, on a small replica."""

from collections.abc import Callable

import torch
from torch import nn

from deepex.optim import OptimiserConfig, Rule
from deepex.replica import Replica

STEPS = 200
RATE = 0.01

Make = Callable[[Replica], Rule]


def check_rule(make: Make | str) -> None:
    """Raise AssertionError unless the rule keeps its promises.

    1. It changes weights in place, and not the gradients' place; by a rate of 0 it changes nothing.
    2. It descends: a square falls to less than half of its value.
    3. What it remembers stands in `state`: copied into a fresh rule's, that one goes on bit for bit.

    Arguments:
        make: makes the rule for a replica, or the optimiser's name, as in `adam` or `file.py:name`.

    Example: `check_rule("adam")`
    """
    build = OptimiserConfig(name=make).build if isinstance(make, str) else make
    _check_places(build)
    first, last = _descend(build, STEPS)
    assert last < 0.5 * first, f"after {STEPS} steps at rate {RATE} a square has gone from {first:.4g} to {last:.4g}"
    _check_state(build)


def _check_places(build: Make) -> None:
    replica = _replica()
    rule = build(replica)
    place, before = replica.weights.data_ptr(), replica.weights.clone()
    replica.gradients.fill_(1.0)
    rule.update(replica.weights, replica.gradients, 0.0, 0.0)
    assert torch.equal(replica.weights, before), "a rate of 0 changes the weights"
    rule.update(replica.weights, replica.gradients, RATE, 0.0)
    assert not torch.equal(replica.weights, before), "the weights don't change"
    assert replica.weights.data_ptr() == place, "the weights have moved to another place"
    replica.check_gradients()


def _descend(build: Make, steps: int) -> tuple[float, float]:
    replica = _replica()
    rule = build(replica)
    first = float(replica.weights.square().sum())
    for _ in range(steps):
        _step(rule, replica)
    return first, float(replica.weights.square().sum())


def _check_state(build: Make) -> None:
    one, two = _replica(), _replica()
    first = build(one)
    for _ in range(5):
        _step(first, one)
    second = build(two)
    _step(second, two)  # some make their state in the first step
    two.block.copy_(one.block)
    for name, tensor in second.state.items():
        assert name in first.state, f"'{name}' of the state has another name in a second rule"
        tensor.copy_(first.state[name])
    for _ in range(5):
        _step(first, one)
        _step(second, two)
    assert torch.equal(one.weights, two.weights), "with the state of another, a rule goes on differently"


def _step(rule: Rule, replica: Replica) -> None:
    """Downhill on the square of all weights."""
    replica.gradients.copy_(2 * replica.weights)
    rule.update(replica.weights, replica.gradients, RATE, 0.0)


def _replica() -> Replica:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Replica(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)))
