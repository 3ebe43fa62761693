"""The torch fabric on real ranks."""

import torch

from deepex.fabric import Fabric, SoloFabric
from deepex.testing.ranks import on_ranks
from deepex.world import World


def talk(fabric: Fabric) -> dict[str, object]:
    rank = fabric.world.rank
    mean, sent = torch.full((1000,), float(rank)), torch.full((3,), rank)
    first = fabric.mean_(mean)
    second = fabric.broadcast_(sent, source=fabric.world.size - 1)
    first.wait()
    second.wait()
    return {"mean": mean[0].item(), "sent": sent.tolist(), "gathered": fabric.gather(f"rank {rank}")}


def test_collectives() -> None:
    expected = {"mean": 1.0, "sent": [2, 2, 2], "gathered": ["rank 0", "rank 1", "rank 2"]}
    assert on_ranks(3, talk) == [expected] * 3


def test_a_world_of_one_is_the_identity() -> None:
    assert talk(SoloFabric(World())) == {"mean": 0.0, "sent": [0, 0, 0], "gathered": ["rank 0"]}
