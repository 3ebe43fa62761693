"""What a run decides for itself before its first step, layout and precision, and the replica that follows from it."""

from dataclasses import dataclass, replace

import torch
from torch import nn

from deepex.fabric import Fabric
from deepex.replica import Replica
from deepex.sample import Batch
from deepex.train.compute.layout import resolve_layout
from deepex.train.compute.precision import autocast, resolve_precision
from deepex.train.recipe import Recipe
from deepex.train.task import Loss, Resolvable, expect


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """The recipe with nothing left open, its replica, and a line for people on how it will compute."""

    recipe: Recipe
    replica: Replica
    sentence: str


def resolve(recipe: Recipe, fabric: Fabric, batch: Batch) -> Resolved:
    """Build the replica; what is open is decided by rank 0, and all ranks follow."""
    device = fabric.world.torch_device
    precision = resolve_precision(recipe.precision, device)
    torch.manual_seed(recipe.seed)  # every rank begins with the same weights
    model = expect(recipe.task.model(), nn.Module, "model()").to(device)

    def trial(replica: Replica) -> None:
        with autocast(precision, device):
            loss = expect(recipe.task.loss(replica.model, batch), Loss, "loss()").total
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves backward untyped

    mine = resolve_layout(recipe.layout, model, trial) if fabric.world.is_first else None
    decided = fabric.gather(mine)[0]
    assert decided is not None, "rank 0 decides"
    layout, reason = decided
    task = recipe.task.resolved() if isinstance(recipe.task, Resolvable) else recipe.task
    stands_in = f" (this device has no {recipe.precision})" if precision != recipe.precision else ""
    return Resolved(
        recipe=replace(recipe, task=task, precision=precision, layout=layout),
        replica=Replica(model, layout, fabric.empty),
        sentence=f"computing in {precision}{stands_in}, {layout.replace('_', ' ')}: {reason}",
    )
