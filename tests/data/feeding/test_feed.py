import threading
from collections.abc import Callable
from contextlib import closing

import numpy as np
import pytest
import torch

from deepex.data import ArraySource, Feed, Plan, Preparation, Subset
from deepex.data.feeding.augment import Flip
from deepex.data.feeding.cache import Cache
from deepex.data.feeding.convert import Convert
from deepex.data.source import Indices, allocate
from deepex.errors import DataError
from deepex.sample import Batch, Field, SampleSpec

CPU = torch.device("cpu")


class Watched:
    """A source that tells who reads what, and takes as long as a disk would."""

    def __init__(self, count: int = 60, wrong: int = -1, wait: Callable[[], object] = lambda: None) -> None:
        self.spec = SampleSpec(fields={"x": Field(shape=(2,), dtype="int16"), "y": Field(shape=(), dtype="int64")})
        self.count, self.wrong, self.wait = count, wrong, wait
        self.reads: list[int] = []
        self.readers: set[str] = set()

    def __len__(self) -> int:
        return self.count

    def name(self, index: int) -> str:
        return str(index)

    def read(self, indices: Indices, out: Batch) -> None:
        self.wait()
        numbers = np.asarray(indices)
        if self.wrong in numbers:
            raise DataError(f"sample {self.wrong} is gone")
        self.reads += numbers.tolist()
        self.readers.add(threading.current_thread().name)
        out["x"][: len(numbers)] = torch.from_numpy(np.stack([numbers, numbers * 2], axis=1))
        out["y"][: len(numbers)] = torch.from_numpy(numbers)


def slow() -> None:
    threading.Event().wait(0.002)


def feed(source: Watched) -> Feed:
    preparation = Preparation(convert={"x": Convert(scale=(2.0,))})
    return Feed(source, Plan(num_samples=60, batch=7, seed=1), CPU, preparation)


def test_a_feed_delivers_the_plan_s_samples() -> None:
    source = Subset(ArraySource({"x": torch.arange(100), "y": np.arange(100.0)}), np.arange(50, 100))
    plan = Plan(num_samples=50, batch=8, seed=0)
    feed = Feed(source, plan, CPU)
    for epoch, step in [(0, 0), (0, 5), (2, 1), (0, 0)]:
        batch = feed.batch(epoch, step)
        assert np.array_equal(batch["x"].numpy(), plan.indices(epoch)[step] + 50)
        assert batch["y"].dtype == torch.float64


@pytest.mark.parametrize("cached_bytes", [None, 0, 20 * 12, 1 << 20])
def test_batches_are_the_plan_s_converted_whoever_reads_them(cached_bytes: int | None) -> None:
    before = set(threading.enumerate())
    source = Watched(wait=slow)
    feeding = feed(source)
    feeding.batch(0, 0)
    if cached_bytes is not None:
        feeding.start_cache(cached_bytes)
    for epoch in range(3):
        for step in range(feeding.plan.steps_per_epoch):
            batch = feeding.batch(epoch, step)
            expected = feeding.plan.indices(epoch)[step]
            assert np.array_equal(batch["x"].numpy(), np.stack([expected / 2, expected], axis=1).astype(np.float32))
            assert np.array_equal(batch["y"].numpy(), expected)
    feeding.close()
    assert "deepex-feed" in source.readers
    assert "deepex-feed" not in {thread.name for thread in set(threading.enumerate()) - before}


def test_what_is_cached_is_read_once() -> None:
    source = Watched()
    feeding = feed(source)
    feeding.start_cache(1 << 20)
    for epoch in range(6):
        for step in range(8):
            feeding.batch(epoch, step)
    feeding.close()
    assert len(source.reads) == len(set(source.reads)) <= 60


def test_a_feed_can_be_asked_for_any_batch_at_any_time() -> None:
    source = Watched(wait=slow)
    feeding = feed(source)
    for key in [(0, 0), (0, 1), (0, 2), (0, 3), (4, 5), (4, 6), (4, 7), (5, 0), (5, 0), (0, 0), (0, 1), (0, 2)]:
        assert np.array_equal(feeding.batch(*key)["y"].numpy(), feeding.plan.indices(key[0])[key[1]])
    feeding.close()
    feeding.close()


@pytest.mark.parametrize("wait", [slow, lambda: None])
def test_a_batch_stays_intact_while_the_next_one_is_used(wait: Callable[[], object]) -> None:
    feeding = feed(Watched(wait=wait))
    last = before = None
    for step in range(8):
        batch = feeding.batch(0, step)["y"]
        if last is not None and before is not None:
            assert torch.equal(last, before)
        last, before = batch, batch.clone()
    feeding.close()


def test_reading_goes_on_while_a_step_computes() -> None:
    """While the step holds a batch, the next ones are read without anybody asking."""
    read = threading.Semaphore(0)

    def wait() -> None:
        slow()
        read.release()

    source = Watched(wait=wait)
    feeding = feed(source)
    for step in range(5):
        feeding.batch(0, step)
    for _ in range(6):  # five were asked for, one more at least comes by itself
        assert read.acquire(timeout=10)
    feeding.close()


def test_what_is_quick_to_read_needs_no_thread() -> None:
    def starts_a_thread() -> bool:
        before = set(threading.enumerate())
        with closing(Feed(ArraySource({"x": torch.zeros(60, 2)}), Plan(num_samples=60, batch=2), CPU)) as feeding:
            for step in range(30):
                feeding.batch(0, step)
            return "deepex-feed" in {thread.name for thread in set(threading.enumerate()) - before}

    assert not all(starts_a_thread() for _ in range(5))  # where others have the cores, nothing is quick


def test_an_error_while_reading_ahead_reaches_who_takes_the_batch() -> None:
    plan = Plan(num_samples=60, batch=7, seed=1)
    feeding = feed(Watched(wrong=int(plan.indices(0)[5][3]), wait=slow))
    for step in range(5):
        feeding.batch(0, step)
    with pytest.raises(DataError, match="is gone"):
        feeding.batch(0, 5)
    feeding.close()


def test_augmentation_does_not_depend_on_the_number_of_ranks() -> None:
    source = ArraySource({"x": torch.arange(48 * 4).reshape(48, 4)})
    preparation = Preparation(augment=[Flip(fields=("x",), axes=(-1,))])

    def samples(size: int) -> dict[int, list[int]]:
        found = {}
        for rank in range(size):
            plan = Plan(num_samples=48, batch=24 // size, rank=rank, size=size)
            feeding = Feed(source, plan, CPU, preparation)
            for step in range(plan.steps_per_epoch):
                for row in feeding.batch(1, step)["x"].tolist():
                    found[min(row)] = row
            feeding.close()
        return found

    assert samples(1) == samples(2) == samples(3) == samples(8)


def test_a_cache_mixes_what_it_has_and_what_it_has_not() -> None:
    source = Watched()
    cache = Cache(source, num_bytes=1 << 20)
    cache.read([1, 2, 3], allocate(cache.spec, 3))
    out = allocate(cache.spec, 6)
    cache.read([9, 2, 9, 1, 40], out)
    assert out["y"][:5].tolist() == [9, 2, 9, 1, 40]
    assert cache.num_cached == 5
    assert source.reads == [1, 2, 3, 9, 9, 40]
    cache.read([40, 3], out)
    assert out["x"][:2].tolist() == [[40, 80], [3, 6]]
    assert len(source.reads) == 6
