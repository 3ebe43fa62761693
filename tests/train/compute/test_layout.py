from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from deepex.config import read_toml
from deepex.launch.start import start
from deepex.models.lenet import LeNet5
from deepex.replica import Layout, Replica
from deepex.sample import Batch
from deepex.tasks.own import OwnTask, task
from deepex.train.compute.layout import resolve_layout
from deepex.train.recipe import Recipe, StopConfig


def never(replica: Replica) -> None:
    raise AssertionError("nothing is to be timed")


def test_the_recipe_goes_before_the_network_and_the_network_before_the_clock() -> None:
    network = LeNet5(shape=(1, 28, 28), classes=10)
    assert resolve_layout("contiguous", network, never) == ("contiguous", "as the recipe says")
    assert resolve_layout("auto", network, never) == ("channels_last", "as the network declares")
    assert resolve_layout("auto", nn.Linear(2, 2), never)[0] == "contiguous"


def test_auto_keeps_the_layout_that_a_clock_finds_faster() -> None:
    network = nn.Conv2d(2, 2, 3)
    spins: dict[Layout, int] = {"contiguous": 1, "channels_last": 1}

    def trial(replica: Replica) -> None:
        a = torch.rand(300, 300)
        for _ in range(spins[replica.layout]):
            a = a @ a
        torch.rand(5)

    torch.manual_seed(3)
    state = torch.get_rng_state()
    spins["contiguous"] = 60
    layout, reason = resolve_layout("auto", network, trial)
    assert layout == "channels_last"
    assert "times as fast as contiguous" in reason
    spins = {"contiguous": 1, "channels_last": 60}
    assert resolve_layout("auto", network, trial)[0] == "contiguous"
    assert torch.equal(torch.get_rng_state(), state)
    assert network.weight.grad is None


def images() -> OwnTask:
    def error(model: nn.Module, batch: Batch) -> Tensor:
        result: Tensor = model(batch["x"]).square().mean()
        return result

    return task(
        name="images",
        model=lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 1)),
        data={"x": torch.randn(100, 3, 8, 8, generator=torch.Generator().manual_seed(0))},
        loss=error,
        target=-1.0,
    )


def test_what_was_settled_is_written_down_so_that_the_recipe_repeats_the_bits(tmp_path: Path) -> None:
    first = start(Recipe(task=images(), stop=StopConfig(epochs=1)), tmp_path / "a", "quiet")
    tree = read_toml(first.recipe.read_text(), "recipe.toml")
    assert tree["layout"] in ("contiguous", "channels_last")
    again = start(Recipe(task=images(), stop=StopConfig(epochs=1), layout=tree["layout"]), tmp_path / "b", "quiet")
    hashes = [folder.read_json("summary.json")["weights_sha256"] for folder in (first, again)]
    assert hashes[0] == hashes[1]


def test_both_layouts_learn_the_same(tmp_path: Path) -> None:
    values = []
    for layout in ("contiguous", "channels_last"):
        recipe = Recipe(task=images(), stop=StopConfig(epochs=2), layout=layout)
        values.append(start(recipe, tmp_path / layout, "quiet").read_json("summary.json")["value"])
    assert values[0] == pytest.approx(values[1], rel=0.01)
