"""The metric over a whole split, shared out among the ranks."""

import torch
from torch import nn

from deepex.data import Source
from deepex.data.source import allocate
from deepex.fabric import Fabric
from deepex.train.task import Tally, Task

# The batch follows from the samples alone, so that the value does not depend on how many ranks there are.
MOST_SAMPLES, MOST_BYTES = 256, 32 << 20


@torch.no_grad()
def evaluate(task: Task, model: nn.Module, source: Source, fabric: Fabric) -> Tally:
    """The task's metric: each batch is counted by one rank, and the sums of all add up exactly."""
    world = fabric.world
    model.eval()
    size = max(1, min(MOST_SAMPLES, MOST_BYTES // source.spec.num_bytes))
    buffer = allocate(source.spec, size)
    tallies = []
    for first in range(world.rank * size, len(source), world.size * size):
        indices = range(first, min(first + size, len(source)))
        source.read(indices, buffer)
        batch = {name: tensor[: len(indices)].to(world.torch_device) for name, tensor in buffer.items()}
        tallies.append(task.evaluate(model, batch))
    return Tally.merge(tally for counted in fabric.gather(tallies) for tally in counted)
