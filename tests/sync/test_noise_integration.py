"""The noise scale that strategies find on real ranks, against gradients whose noise is known."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from deepex.fabric import Fabric, FabricName
from deepex.optim import Optimiser, OptimiserConfig
from deepex.replica import Replica
from deepex.sync import SyncContext, parse
from deepex.sync.noise import noise_scale
from deepex.testing.ranks import on_ranks
from tests.conftest import Command

SIZES = (300, 500, 200, 1000)  # weights of each layer
BATCH, STEPS = 8, 512
SIGNAL, NOISE = 2.0, 80.0  # |G|^2, and s of a sample
Seen = dict[str, float] | None


class Slopes(nn.Module):
    """A loss that is linear in the weights, so that its gradient is whatever it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ParameterList(torch.zeros(size) for size in SIZES)

    def forward(self, slopes: Tensor) -> Tensor:
        parts = slopes.split(SIZES)  # type: ignore[no-untyped-call]  # torch leaves split untyped
        return torch.stack([torch.dot(*pair) for pair in zip(self.layers, parts, strict=True)]).sum()


def draw_gradient(rank: int, step: int) -> Tensor:
    """A mean over BATCH samples: what all have in common, and what is left of their noise."""
    numel = sum(SIZES)
    drawn = torch.randn(numel, generator=torch.Generator().manual_seed(10_000 * rank + step))
    return math.sqrt(SIGNAL / numel) + drawn * math.sqrt(NOISE / BATCH / numel)


def train(
    text: str, fabric: Fabric, *, momentum: float = 0.0, measures_noise: bool = True, stop: int | None = None
) -> tuple[Seen, Tensor]:
    """An epoch of gradient descent; at `stop` another strategy goes on from the first one's state."""
    replica, sync = Replica(Slopes(), empty=fabric.empty), parse(text)
    optimiser = Optimiser(OptimiserConfig(name="sgd", learning_rate=0.01, momentum=momentum), replica)
    context = SyncContext(
        replica=replica,
        fabric=fabric,
        moments=optimiser.state_dict(),
        steps_per_epoch=STEPS,
        batch=BATCH,
        momentum=momentum,
        measures_noise=measures_noise,
    )
    sync.prepare(context)
    for step in range(STEPS):
        if step == stop:
            kept, state, sync = replica.block.clone(), sync.state(), parse(text)
            sync.prepare(context)
            replica.block.copy_(kept)
            for name, tensor in sync.state().items():
                tensor.copy_(state[name])
        replica.gradients.zero_()
        replica.model(draw_gradient(fabric.world.rank, step)).backward()
        if sync.mix_gradients(step):
            optimiser.step()
        sync.mix_weights(step)
    sync.drain()
    return sync.noise.take(), replica.block.clone()


CASES: list[tuple[str, int, FabricName, int | None]] = [  # strategy, ranks, fabric, ranks of a host
    ("allreduce", 2, "shared", None),
    ("allreduce,bucket=0.001", 3, "torch", None),  # several slices, which leave during backward
    ("allreduce+bf16", 2, "torch", None),
    ("lagged", 2, "shared", None),
    ("lagged+fp16", 2, "torch", None),
    ("local:1", 2, "shared", None),
    ("local:7", 3, "torch", None),
    ("local:epoch", 2, "torch", None),
    ("local:8,outer=nesterov", 2, "shared", None),
    ("local:8+bf16", 2, "torch", None),
    ("hierarchical(allreduce,local:8)", 4, "torch", 2),
    ("hybrid:2", 4, "shared", None),
    ("auto", 2, "torch", None),
]


@pytest.mark.parametrize(("text", "num_ranks", "fabric", "ranks_per_host"), CASES)
def test_noise_that_is_known_is_found(
    text: str, num_ranks: int, fabric: FabricName, ranks_per_host: int | None
) -> None:
    ranks = on_ranks(num_ranks, lambda peers: train(text, peers)[0], fabric=fabric, ranks_per_host=ranks_per_host)
    found = noise_scale(ranks)
    assert found == pytest.approx(NOISE / SIGNAL, rel=0.2)


@pytest.mark.parametrize("text", ["allreduce", "local:1", "local:8", "local:epoch"])
def test_momentum_does_not_hide_noise(text: str) -> None:
    ranks = on_ranks(2, lambda peers: train(text, peers, momentum=0.9)[0], fabric="shared")
    assert noise_scale(ranks) == pytest.approx(NOISE / SIGNAL, rel=0.2)


@pytest.mark.parametrize("text", ["background:4", "async", "allreduce+topk:0.1", "local:4+powersgd:1"])
def test_what_can_t_be_told_is_not_told(text: str) -> None:
    assert on_ranks(2, lambda peers: train(text, peers)[0], fabric="shared") == [None, None]


@pytest.mark.parametrize("text", ["allreduce", "lagged", "local:8", "local:8,outer=momentum+bf16", "local:epoch"])
def test_looking_changes_no_bit(text: str) -> None:
    def both(fabric: Fabric) -> tuple[tuple[Seen, Tensor], tuple[Seen, Tensor]]:
        return train(text, fabric), train(text, fabric, measures_noise=False)

    for (seen, looked), (unseen, blind) in on_ranks(2, both, fabric="shared"):
        assert seen is not None
        assert unseen is None
        assert torch.equal(looked, blind)


def test_a_change_that_began_before_a_stop_is_not_looked_at() -> None:
    assert on_ranks(2, lambda peers: train("local:epoch", peers, stop=100)[0]) == [None, None]


@pytest.mark.parametrize("text", ["local:64", "allreduce", "lagged"])
def test_a_resumed_epoch_is_looked_at_from_there(text: str) -> None:
    assert noise_scale(on_ranks(2, lambda peers: train(text, peers, stop=100)[0])) == pytest.approx(40.0, rel=0.2)


def test_a_run_records_its_noise_scale(deepex: Command, tmp_path: Path) -> None:
    done = deepex("run", "protein", "--ranks", "2", "--until", "0", "--out", "run", "stop.epochs=2", "--no-page")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    found = [row["noise_scale"] for row in rows if row["noise_scale"] is not None]
    assert found
    assert all(0 < each < math.inf for each in found)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["noise_scale"] == found[-1]
