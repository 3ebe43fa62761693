"""The contract of a task. `check_task` holds any task to it, in this process."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from deepex.config import merge, to_tree
from deepex.data import Preparer, Splits
from deepex.data.source import read_all
from deepex.launch.recipes import from_code
from deepex.sample import Batch
from deepex.train.recipe import Recipe
from deepex.train.task import Loss, Tally, Task

NUM_SAMPLES = 16  # of each split are read
MAX_NAMES = 10_000


def check_task(make: Callable[[], Task] | str) -> None:
    """Raise AssertionError unless the task keeps its promises.

    1. Its settings go through a recipe.toml and come back.
    2. It has samples to train on and others to validate with, the same ones whenever it is asked.
    3. Its model is a fresh module, with the same weights for the same seed.
    4. Its loss is a finite scalar that gives gradients to trainable weights.
    5. Its metric is a tally that adds up: that of two halves is that of the whole.

    Arguments:
        make: makes the task, or `file.py:name` of what does.

    Example: `check_task(lambda: default_recipe("protein").task)`
    """
    if isinstance(make, str):
        make = partial(_from_code, make)
    build, task = make, make()
    assert merge(Recipe(task=build()), {"task": to_tree(task)}).task == task, "settings don't come back from a recipe"
    splits = task.data()
    _check_splits(splits, build().data())
    batch = _read(splits, NUM_SAMPLES)
    _check_model(task, build())
    model = task.model()
    _check_loss(task, model, batch)
    _check_metric(task, model.eval(), batch)


def _from_code(text: str) -> Task:
    return from_code(text).task


def _check_splits(splits: Splits, again: Splits) -> None:
    assert len(splits.train) > 0, "there are no samples to train on"
    assert len(splits.validation) > 0, "there are no samples to validate with"
    assert splits.content_sha256 == again.content_sha256, "the content's hash is another when the data is opened again"
    names = [
        [source.name(i) for i in range(min(len(source), MAX_NAMES))] for source in (splits.train, splits.validation)
    ]
    shared = sorted(set(names[0]) & set(names[1]))
    assert not shared, f"samples are trained on and validated with: {', '.join(shared[:3])}"
    assert names[0] == [again.train.name(i) for i in range(len(names[0]))], "other samples train the second time"


def _read(splits: Splits, count: int) -> Batch:
    return read_all(Preparer(splits.train, splits.preparation), limit=count)


def _check_model(task: Task, again: Task) -> None:
    torch.manual_seed(0)
    first = task.model()
    torch.manual_seed(0)
    second = again.model()
    assert isinstance(first, nn.Module), f"model() returned a {type(first).__name__}, not an nn.Module"
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs), "the same seed gives other weights the second time"
    assert first is not task.model(), "model() returns the same module twice; it makes a new one each time"


def _check_loss(task: Task, model: nn.Module, batch: Batch) -> None:
    loss = task.loss(model.train(), batch)
    assert isinstance(loss, Loss), f"loss() returned a {type(loss).__name__}, not a Loss"
    assert loss.total.numel() == 1, f"the loss has shape {tuple(loss.total.shape)}, and is no scalar"
    assert bool(torch.isfinite(loss.total)), f"the loss of fresh weights is {loss.total.item()}"
    loss.total.backward()  # type: ignore[no-untyped-call]  # torch leaves backward untyped
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert any(parameter.grad is not None for parameter in trained), "the loss gives no weight a gradient"


@torch.no_grad()
def _check_metric(task: Task, model: nn.Module, batch: Batch) -> None:
    whole = task.evaluate(model, batch)
    assert isinstance(whole, Tally), f"evaluate() returned a {type(whole).__name__}, not a Tally"
    size = len(next(iter(batch.values()))) // 2
    halves = [{name: part[:size] for name, part in batch.items()}, {name: part[size:] for name, part in batch.items()}]
    merged = Tally.merge(task.evaluate(model, half) for half in halves)
    difference = abs(merged.value - whole.value)
    assert difference <= 1e-4 * max(1.0, abs(whole.value)), "the metric of two halves is not that of the whole"
