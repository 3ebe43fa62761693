"""What a task shows of its trained model, from samples of both splits. It knows no file and no page."""

from torch import nn

from deepex.data import Preparer
from deepex.data.source import read_all
from deepex.record.illustration import Illustration
from deepex.train.input import Input
from deepex.train.task import Illustrated, Task

MOST_SAMPLES = 4000  # of each split: enough to see a distribution, few enough to turn smoothly on a page
MOST_BYTES = 1 << 30  # of each split, for samples that are large


def illustrate(task: Task, model: nn.Module, samples: Input) -> Illustration | None:
    """The task's illustration of its model; None for a task that has none."""
    if not isinstance(task, Illustrated):
        return None
    splits = samples.splits
    prepared = [Preparer(source, splits.preparation) for source in (splits.train, splits.validation)]
    limit = max(1, min(MOST_SAMPLES, MOST_BYTES // prepared[0].spec.num_bytes))
    train, validation = (read_all(source, limit=limit) for source in prepared)
    return task.illustrate(model.eval(), train, validation)
