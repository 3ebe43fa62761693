"""Any torch optimiser: it changes the weights as it does in a plain loop, and goes on as if never stopped."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import deepex as dx
from deepex.errors import ConfigError, Interrupted
from deepex.launch.start import resume, start
from deepex.optim import Optimiser, OptimiserConfig, ScheduleConfig
from deepex.optim.torch_rule import TorchRule
from deepex.record.folder import RunFolder
from deepex.reference import name_object
from deepex.replica import Replica
from deepex.tasks.own import OwnTask
from deepex.train.recipe import Recipe, StopConfig
from tests.optim.training import make_network, train


class Counting(torch.optim.Optimizer):
    """Signs of averaged gradients, whose steps a plain number counts, and a group's own number too."""

    def __init__(self, params: Any, lr: float = 0.01) -> None:
        super().__init__(params, {"lr": lr, "total": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # it has no loss to return
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                state.setdefault("count", 0)
                state.setdefault("average", torch.zeros_like(parameter))
                state["count"] += 1
                group["total"] += float(parameter.grad.abs().sum())
                state["average"].mul_(0.9).add_(parameter.grad, alpha=0.1)
                rate = group["lr"] / (state["count"] ** 0.5 * (1 + group["total"] / 1e3))
                parameter.sub_(state["average"].sign(), alpha=rate)


MAKERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.02),
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.02, momentum=0.9, nesterov=True),
    "NAdam": lambda parameters: torch.optim.NAdam(parameters, lr=3e-3, weight_decay=0.01),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.02),
    "RAdam": lambda parameters: torch.optim.RAdam(parameters, lr=3e-3),
    "Rprop": lambda parameters: torch.optim.Rprop(parameters, lr=1e-3),
    "AMSGrad": lambda parameters: torch.optim.Adam(parameters, lr=3e-3, amsgrad=True),
    "a custom one": lambda parameters: Counting(parameters),
}


def make_groups(parameters: Any) -> torch.optim.Optimizer:
    """Groups with rates of their own, as people write them."""
    weights: list[nn.Parameter] = list(parameters)
    vectors, matrices = [w for w in weights if w.dim() < 2], [w for w in weights if w.dim() >= 2]
    groups: list[dict[str, Any]] = [{"params": vectors, "lr": 1e-2}, {"params": matrices}]
    return torch.optim.RAdam(groups, lr=1e-3)


def build(make: Callable[[Any], torch.optim.Optimizer], replica: Replica, **settings: Any) -> Optimiser:
    """An optimiser of a user's own at work on a replica, as a recipe builds it."""
    return Optimiser(OptimiserConfig(name=name_object(make), **settings), replica)


@pytest.mark.parametrize("make", [*MAKERS.values(), make_groups], ids=[*MAKERS, "groups"])
def test_it_changes_the_weights_as_in_a_plain_loop_bit_for_bit(make: Callable[[Any], torch.optim.Optimizer]) -> None:
    plain, replica = make_network(), Replica(make_network())
    train(plain, None, make(plain.parameters()), steps=20)
    train(replica.model, replica, build(make, replica), steps=20)
    for mine, other in zip(replica.model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, other)
    last = Replica(make_network(), "channels_last")
    train(last.model, last, build(make, last), steps=3)
    plain = make_network()
    train(plain, None, make(plain.parameters()), steps=3)
    for mine, other in zip(last.model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=5e-5)


@pytest.mark.parametrize("make", [*MAKERS.values(), make_groups], ids=[*MAKERS, "groups"])
def test_a_saved_state_goes_on_bit_for_bit(make: Callable[[Any], torch.optim.Optimizer], tmp_path: Path) -> None:
    whole, parts = Replica(make_network(), "channels_last"), Replica(make_network(), "channels_last")
    train(whole.model, whole, (optimiser := build(make, whole)), steps=5)
    parts.block.copy_(whole.block)
    torch.save(optimiser.state_dict(), tmp_path / "state.pt")
    resumed = build(make, parts)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    train(whole.model, whole, optimiser, steps=5)
    train(parts.model, parts, resumed, steps=5)
    assert torch.equal(whole.block, parts.block)
    assert optimiser.state_dict().keys() == resumed.state_dict().keys()


def test_a_class_takes_the_recipe_s_rate_and_a_schedule_multiplies_every_group_s() -> None:
    replica = Replica(make_network())
    optimiser = Optimiser(OptimiserConfig(name="torch.optim:NAdam", learning_rate=0.25), replica)
    assert isinstance(optimiser.rule, TorchRule)
    assert [group["lr"] for group in optimiser.rule.optimizer.param_groups] == [0.25]
    grouped = build(make_groups, replica, learning_rate=0.5)
    assert isinstance(grouped.rule, TorchRule)
    for share in (1.0, 0.5, 0.125):
        grouped.rate = 0.5 * share
        grouped.step()
        assert [group["lr"] for group in grouped.rule.optimizer.param_groups] == [1e-2 * share, 1e-3 * share]


def test_gradients_are_clipped_before_it_steps() -> None:
    replica = Replica(nn.Linear(3, 2))
    before = replica.weights.clone()
    replica.gradients.fill_(100.0)
    build(lambda parameters: torch.optim.SGD(parameters, lr=1.0), replica, clip_norm=2.0).step()
    assert torch.linalg.vector_norm(before - replica.weights).item() == pytest.approx(2.0, rel=1e-5)


def of_another_model(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD([nn.Parameter(torch.zeros(3, 7))])


def in_groups(parameters: Any) -> torch.optim.Optimizer:
    """Goes through the parameters twice, as for a decay of matrices alone."""
    matrices, vectors = ([each for each in parameters if (each.ndim > 1) is wide] for wide in (True, False))
    groups: list[dict[str, Any]] = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors}]
    return torch.optim.SGD(groups, lr=0.1)


def test_groups_may_be_made_of_parameters_by_going_through_them_twice() -> None:
    build(in_groups, Replica(make_network()))


def of_a_part(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(list(parameters)[:-1])


class Closing(torch.optim.SGD):
    def step(self, closure: Any) -> Any:  # type: ignore[override]  # as LBFGS has it
        return closure()


class Remembering(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["history"] = [parameter.clone()]
        return super().step(closure)


@pytest.mark.parametrize(
    ("make", "settings", "said"),
    [
        (lambda parameters: 3, {}, "the optimiser's function returned a int. Allowed: a torch.optim.Optimizer"),
        (of_another_model, {}, "owns 1 parameters that the model has not, of shapes (3, 7)"),
        (of_a_part, {}, "the optimiser does not own 6.bias, which the model trains"),
        (MAKERS["SGD"], {"weight_decay": 0.1}, "optimiser.weight_decay = 0.1 with an optimiser of your own"),
        (Closing, {}, "Closing.step needs a closure"),
        (torch.optim.LBFGS, {}, "LBFGS.step needs a closure"),
        (torch.optim.SparseAdam, {}, "SparseAdam takes sparse gradients"),
    ],
)
def test_an_optimiser_that_can_not_train_this_model_is_refused(
    make: Callable[[Any], Any], settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        build(make, Replica(make_network()), **settings)
    assert said in str(raised.value)


def test_one_that_remembers_what_no_checkpoint_holds_is_refused_at_its_first_step() -> None:
    replica = Replica(make_network())
    with pytest.raises(ConfigError, match=r"Remembering remembers 'history', a list\. A checkpoint holds tensors"):
        train(replica.model, replica, build(lambda parameters: Remembering(parameters), replica), steps=1)


def test_frozen_weights_may_be_given_to_it_and_stay() -> None:
    network = make_network()
    frozen = network.get_parameter("4.weight").requires_grad_(False)
    before, replica = frozen.clone(), Replica(network)
    train(replica.model, replica, build(MAKERS["NAdam"], replica), steps=3)
    assert torch.equal(frozen, before)


def interrupted(line: OwnTask, call: int) -> OwnTask:
    """The task, with a real Ctrl-C in one of its first epochs."""
    calls = 0

    def objective(model: nn.Module, batch: Any) -> Any:
        nonlocal calls
        calls += model.training
        if calls == call:
            os.kill(os.getpid(), signal.SIGINT)
        return line.objective(model, batch)

    return replace(line, objective=objective)


@pytest.mark.parametrize("make", [MAKERS["NAdam"], Counting], ids=["NAdam", "a custom one"])
def test_a_run_that_is_stopped_goes_on_bit_for_bit_with_its_schedule(
    make: Callable[[Any], torch.optim.Optimizer], line: OwnTask, tmp_path: Path
) -> None:
    recipe = dx.build_recipe(Recipe(task=line, stop=StopConfig(epochs=3, target=-1.0)), optimizer=make)
    recipe = replace(recipe, schedule=ScheduleConfig(name="cosine", warmup_epochs=1.0))
    whole = start(recipe, tmp_path / "whole", "quiet")
    with pytest.raises(Interrupted):
        start(replace(recipe, task=interrupted(line, 16 + 11)), tmp_path / "parts", "quiet")
    parts = resume(tmp_path / "parts", "quiet")
    assert _hash(whole) == _hash(parts)
    plain = start(replace(recipe, schedule=ScheduleConfig()), tmp_path / "plain", "quiet")
    assert _hash(plain) != _hash(whole)


def _hash(folder: RunFolder) -> str:
    return str(folder.read_json("summary.json")["weights_sha256"])
