"""Fabrics that any process can open keep the promises of all. MPI has a file of its own: a launcher must start it."""

import pytest
import torch

from deepex.fabric import FabricName, SoloFabric
from deepex.testing.fabric import check_fabric, hold_contract
from deepex.testing.ranks import on_ranks
from deepex.world import World

NAMES: tuple[FabricName, ...] = ("torch", "shared")


@pytest.mark.parametrize("name", NAMES)
def test_three_ranks_keep_the_contract_and_survive_the_loss_of_one(name: FabricName) -> None:
    check_fabric(name, num_ranks=3)


@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_keep_the_contract(name: FabricName) -> None:
    on_ranks(2, hold_contract, fabric=name)


def test_a_fabric_that_breaks_a_promise_is_found_out() -> None:
    def skip_last(fabric: object) -> None:
        """A fabric whose mean leaves out the last element."""
        honest = type(fabric).mean_  # type: ignore[attr-defined]  # every fabric has it
        type(fabric).mean_ = lambda self, tensor: honest(self, tensor[:-1])  # type: ignore[attr-defined]  # as above
        try:
            hold_contract(fabric)  # type: ignore[arg-type]  # it is one
        finally:
            type(fabric).mean_ = honest  # type: ignore[attr-defined]  # as above

    with pytest.raises(AssertionError, match=r"the mean of 1 torch\.float32 in a tensor is wrong"):
        on_ranks(2, skip_last)


def test_a_world_of_one_is_the_identity() -> None:
    fabric = SoloFabric(World())
    tensor = torch.arange(3.0)
    fabric.mean_(tensor).wait()
    fabric.broadcast_(tensor, source=0).wait()
    assert tensor.tolist() == [0, 1, 2]
    assert fabric.group([0]).gather("alone") == ["alone"]
