"""The metric over a whole split, shared out among the ranks."""

import torch
from torch import nn

from deepex.data import Source
from deepex.data.source import allocate
from deepex.fabric import Fabric
from deepex.train.task import Tally, Task

BATCH = 256  # fixed, so that the value does not depend on how many ranks there are


@torch.no_grad()
def evaluate(task: Task, model: nn.Module, source: Source, fabric: Fabric) -> float:
    """The task's metric: each batch is counted by one rank, and the sums of all add up exactly."""
    world = fabric.world
    model.eval()
    buffer = allocate(source.spec, BATCH)
    tallies = []
    for first in range(world.rank * BATCH, len(source), world.size * BATCH):
        indices = range(first, min(first + BATCH, len(source)))
        source.read(indices, buffer)
        batch = {name: tensor[: len(indices)].to(world.torch_device) for name, tensor in buffer.items()}
        tallies.append(task.evaluate(model, batch))
    return Tally.merge(tally for counted in fabric.gather(tallies) for tally in counted).value
