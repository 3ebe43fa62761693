"""Local SGD on real ranks: its mathematics, and what it writes down of a run."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from deepex.fabric import Fabric
from deepex.replica import Replica
from deepex.sync import SyncContext, parse
from deepex.testing.ranks import on_ranks
from tests.conftest import Command

STEPS = 4


def train(text: str, fabric: Fabric) -> tuple[dict[str, Any], Tensor]:
    """Two epochs on gradients that differ from rank to rank, in several slices."""
    torch.manual_seed(0)
    replica, sync = Replica(nn.Sequential(*(nn.Linear(200, 200) for _ in range(8)))), parse(text)
    context = SyncContext(replica=replica, fabric=fabric, moments={}, steps_per_epoch=STEPS, batch=4)
    sync.prepare(context)
    noise = torch.Generator().manual_seed(fabric.world.rank)
    for step in range(2 * STEPS):
        replica.gradients.copy_(torch.randn(len(replica.gradients), generator=noise))
        sync.mix_gradients(step)
        replica.weights.sub_(replica.gradients, alpha=0.1)
        sync.mix_weights(step)
        if step % STEPS == STEPS - 1:
            sync.drain()
    return sync.notes, replica.weights.clone()


def average_by_hand(outer: str, rate: float, mu: float) -> Tensor:
    """Where two ranks come that go 1 and 3 downhill in each of four steps, averaged after every second one."""
    anchor, velocity = torch.zeros(1), torch.zeros(1)
    for _ in range(2):
        change = torch.tensor([2 * (1.0 + 3.0) / 2])  # anchor minus the mean of the ranks' weights
        velocity = mu * velocity + change
        step = {"average": change, "momentum": rate * velocity, "nesterov": rate * (change + mu * velocity)}
        anchor = anchor - step[outer]
    return anchor


@pytest.mark.parametrize("outer", ["average", "momentum", "nesterov"])
def test_the_outer_optimiser_takes_the_mean_change_as_its_gradient(outer: str) -> None:
    def descend(fabric: Fabric) -> Tensor:
        replica, sync = Replica(nn.Linear(1, 1, bias=False)), parse(f"local:2,outer={outer},rate=0.5,mu=0.8")
        replica.weights.zero_()
        sync.prepare(SyncContext(replica=replica, fabric=fabric, moments={}, steps_per_epoch=4, batch=4))
        for step in range(4):
            replica.weights.sub_(1.0 + 2.0 * fabric.world.rank)
            sync.mix_weights(step)
        return replica.weights.clone()

    expected = average_by_hand(outer, 0.5, 0.8)
    assert [torch.allclose(found, expected) for found in on_ranks(2, descend)] == [True, True]


@pytest.mark.parametrize("text", ["local:3,after=1", "local:3,outer=nesterov,after=1+bf16", "allreduce+bf16"])
def test_what_is_written_down_as_run_is_the_whole_strategy_with_the_same_bits(text: str) -> None:
    notes, weights = on_ranks(3, lambda fabric: train(text, fabric))[0]
    head, plus, compression = text.partition("+")
    assert notes["as_run"] == f"{head},bucket={notes['bucket_mib']:g}{plus}{compression}"
    again, same = on_ranks(3, lambda fabric: train(notes["as_run"], fabric))[0]
    assert torch.equal(same, weights)
    assert "as_run" not in again  # nothing was left to find: the recipe says it already
    assert again["bucket_mib"] == notes["bucket_mib"]


def test_nodes_write_down_both_levels_as_run() -> None:
    text = "hierarchical(lagged,allreduce)+bf16"
    notes = on_ranks(4, lambda fabric: train(text, fabric)[0], ranks_per_host=2)[0]
    assert notes["as_run"].startswith("hierarchical(lagged,allreduce,bucket=")
    assert notes["as_run"].endswith("+bf16)")
    assert parse(notes["as_run"]).traits == parse(text).traits


def test_without_synchronous_epochs_there_is_nothing_to_write_down() -> None:
    assert on_ranks(2, lambda fabric: train("local:3", fabric)[0]) == [{}, {}]


def test_the_recipe_of_a_run_names_the_strategy_that_it_was_run_with(deepex: Command, tmp_path: Path) -> None:
    given = ("--sync", "local:8,after=1", "--fabric", "torch", "stop.epochs=1", "data.batch=512")
    done = deepex("run", "protein", "--ranks", "2", *given, "--no-page", "--out", "run")
    assert done.returncode == 0, done.stderr
    written = tomllib.loads((tmp_path / "run" / "recipe.toml").read_text())["sync"]
    assert written.startswith("local:8,after=1,bucket=")
    assert parse(written).traits == parse("local:8,after=1").traits
