"""Evaluation through the feed: what it reads and how often, and that its value is that of all samples."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

from deepex.data import Feed, Preparation
from deepex.data.feeding.convert import Convert
from deepex.data.source import Indices
from deepex.fabric import Fabric, SoloFabric
from deepex.sample import Batch, Field, SampleSpec
from deepex.tasks.own import OwnTask, task
from deepex.testing.ranks import on_ranks
from deepex.train.evaluate import MOST_BYTES, MOST_SAMPLES, evaluate, plan_evaluation
from deepex.train.task import Tally
from deepex.world import World

COUNT = 9 * MOST_SAMPLES + 44


class SlowSource:
    """A disk that takes its time, and knows what was read from it and by whom."""

    def __init__(self) -> None:
        self.spec = SampleSpec(fields={"x": Field(shape=(3,), dtype="int16")})
        self.reads: list[int] = []
        self.readers: set[str] = set()

    def __len__(self) -> int:
        return COUNT

    def name(self, index: int) -> str:
        return str(index)

    def read(self, indices: Indices, out: Batch) -> None:
        threading.Event().wait(0.002)
        numbers = np.asarray(indices)
        self.reads += numbers.tolist()
        self.readers.add(threading.current_thread().name)
        out["x"][: len(numbers)] = torch.from_numpy(np.stack([numbers, numbers % 7, numbers % 5], axis=1))


def measure(model: nn.Module, batch: Batch) -> torch.Tensor:
    error: torch.Tensor = model(batch["x"]).square().mean()
    return error


def make(source: SlowSource, world: World) -> tuple[OwnTask, nn.Module, Feed]:
    """A task that averages something of its samples, a model that is the same everywhere, and a rank's feed."""
    preparation = Preparation(convert={"x": Convert(scale=(100.0,))})
    own = task(model=lambda: nn.Linear(3, 1), data=source, loss=measure, target=0.0)
    plan = plan_evaluation(preparation.spec(source.spec), len(source), world)
    torch.manual_seed(0)
    return own, own.model(), Feed(source, plan, torch.device("cpu"), preparation)


def value_of_all(task: OwnTask, model: nn.Module) -> float:
    """The metric by plain slices of all samples, as a rank alone would count them."""
    numbers = np.arange(COUNT)
    x = torch.from_numpy(np.stack([numbers, numbers % 7, numbers % 5], axis=1).astype(np.float32) / np.float32(100))
    with torch.no_grad():
        slices = [x[first : first + MOST_SAMPLES] for first in range(0, COUNT, MOST_SAMPLES)]
        return Tally.merge(task.evaluate(model.eval(), {"x": each}) for each in slices).value


@pytest.mark.parametrize("cached", [COUNT, 700, 0, None])
def test_what_memory_holds_is_read_once_and_nothing_is_read_that_nobody_asked_for(cached: int | None) -> None:
    before = set(threading.enumerate())
    source = SlowSource()
    task, model, feed = make(source, World())
    if cached is not None:
        feed.start_cache(cached * source.spec.num_bytes)
    values = []
    for epoch in range(1, 3):
        values.append(evaluate(task, model, feed, SoloFabric(World())).value)
        assert "deepex-feed" not in {thread.name for thread in set(threading.enumerate()) - before}
        times = np.bincount(source.reads, minlength=COUNT)
        assert (times == 1).sum() == (COUNT if epoch == 1 else (cached or 0))
        assert set(times.tolist()) <= {1, epoch}
    assert "deepex-feed" in source.readers  # the disk was read while the model computed
    assert values == [value_of_all(task, model)] * 2


def test_the_value_does_not_depend_on_the_number_of_ranks() -> None:
    def rank(fabric: Fabric) -> tuple[float, list[int]]:
        torch.set_num_threads(1)
        source = SlowSource()
        task, model, feed = make(source, fabric.world)
        return evaluate(task, model, feed, fabric).value, source.reads

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    task, model, _ = make(SlowSource(), World())
    expected = value_of_all(task, model)
    torch.set_num_threads(threads)
    for size in (2, 3):
        ranks = on_ranks(size, rank)
        assert [value for value, _ in ranks] == [expected] * size
        assert sorted(index for _, reads in ranks for index in reads) == list(range(COUNT))


def test_batches_follow_from_the_samples_alone() -> None:
    small, large = (SampleSpec(fields={"x": Field(shape=(size,), dtype="float32")}) for size in (1, MOST_BYTES))
    for world in (World(), World(rank=1, size=3)):
        assert plan_evaluation(small, 1000, world).batch == MOST_SAMPLES
        assert plan_evaluation(large, 1000, world).batch == 1


def test_a_rank_without_a_batch_counts_nothing() -> None:
    plan = plan_evaluation(SlowSource().spec, 10, World(rank=1, size=2))
    assert plan.steps_per_epoch == 0
    assert len(plan.owned()) == 0
