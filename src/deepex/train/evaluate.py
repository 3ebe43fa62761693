"""The metric over all validation samples, shared out among the ranks. It knows feeds and tasks, and no files."""

from contextlib import closing

import torch
from torch import nn

from deepex.data import Feed, SequentialPlan
from deepex.fabric import Fabric
from deepex.sample import SampleSpec
from deepex.train.task import Tally, Task, expect
from deepex.world import World

# The batch follows from the samples alone, so that the value does not depend on how many ranks there are.
MOST_SAMPLES, MOST_BYTES = 256, 32 << 20


def plan_evaluation(spec: SampleSpec, num_samples: int, world: World) -> SequentialPlan:
    """Which samples a rank counts; `spec` is of prepared samples."""
    size = max(1, min(MOST_SAMPLES, MOST_BYTES // spec.num_bytes))
    return SequentialPlan(num_samples=num_samples, batch=size, rank=world.rank, size=world.size)


@torch.no_grad()
def evaluate(task: Task, model: nn.Module, feed: Feed, fabric: Fabric) -> Tally:
    """The task's metric: each batch is counted by one rank, and the sums of all add up exactly."""
    model.eval()
    with closing(feed):  # nothing is read ahead while the run trains
        counted = (task.evaluate(model, feed.batch(0, step)) for step in range(feed.plan.steps_per_epoch))
        tallies = [expect(tally, Tally, "evaluate()") for tally in counted]
    return Tally.merge(tally for of_a_rank in fabric.gather(tallies) for tally in of_a_rank)
