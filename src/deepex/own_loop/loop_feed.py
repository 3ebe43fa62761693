"""Batches for a user's own loop: planned, cached and read ahead as in any run."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, Protocol

from deepex.data import DataConfig, Feed, Plan, Preparation, SequentialPlan
from deepex.data.dataset import Given, Samples, find_batch, open_samples
from deepex.data.feeding.cache import room_for_samples
from deepex.data.feeding.plan import Last, Shuffle
from deepex.errors import ConfigError, DataError
from deepex.own_loop.session import Session, current_session


def feed(
    data: Given,
    batch_size: int | None = None,
    *,
    shuffle: bool | Shuffle = True,
    last: Last = "drop",
    preparation: Preparation | None = None,
    memory_gib: float | None = None,
) -> "LoopFeed":
    """The batches of this rank: to train, shuffled and anew in each epoch; to evaluate, all samples once, in order.

    Arguments:
        data: as for `dx.task`: a Dataset, a loader, arrays, a packed file, a Source, or a function of any.
        batch_size: samples of one rank in one step; by default the loader's, or 64.
        shuffle: True to train (`"local"`: a rank keeps to its own share of the samples); False to evaluate, with the
            batches dealt out to the ranks.
        last: what becomes of an epoch's last batch if it is not full: `drop` it, or `pad` it.
        preparation: conversions and augmentations between storage and network.
        memory_gib: how much memory this rank may use in all.
    """
    session = current_session("dx.feed()")
    size = batch_size or find_batch(data) or 64
    config = DataConfig(
        batch=size, last=last, memory_gib=memory_gib, shuffle="global" if isinstance(shuffle, bool) else shuffle
    )
    samples = open_samples(data)
    _compare(samples, session)
    kind = TrainingFeed if shuffle else EvaluationFeed
    made: LoopFeed = kind(session, samples, config, preparation or Preparation())
    return made


class LoopFeed(Protocol):
    """Batches, nested as the items of the data are. One is valid until the one after the next is taken."""

    def __len__(self) -> int:
        """Batches of an epoch, on this rank."""

    def __iter__(self) -> Iterator[Any]: ...


class TrainingFeed:
    """An epoch each time it is gone through."""

    def __init__(self, session: Session, samples: Samples, config: DataConfig, preparation: Preparation) -> None:
        self.session, self.samples, self.config, self.preparation = session, samples, config, preparation
        self._feed: Feed | None = None

    def __len__(self) -> int:
        return self._opened.plan.steps_per_epoch

    def __iter__(self) -> Iterator[Any]:
        session = self.session
        if session.leader is not None:
            yield from self._accompany()
            return
        session.close_epoch()
        session.leader = token = object()
        opened, here = self._opened, session.position
        session.steps_per_epoch, session.batch_size = len(self), self.config.batch
        if session.world.rank >= _num_training_ranks(session):
            self._follow()
            return
        try:
            with closing(opened):
                while here.step < len(self):
                    session.open_batch()
                    with session.clock.input:
                        batch = self.samples.structure.nest(opened.batch(here.epoch, here.step))
                    here.step += 1
                    yield batch
        finally:
            if session.leader is token:  # also where the loop was left before its end
                session.leader = None
        session.drain()

    def _accompany(self) -> Iterator[Any]:
        """Batches beside those of another feed, which counts the steps."""
        opened, here = self._opened, self.session.position
        for step in range(here.step - 1, len(self)):
            with self.session.clock.input:
                batch = self.samples.structure.nest(opened.batch(here.epoch, step))
            yield batch

    def _follow(self) -> None:
        """The epoch of a rank that has no batches."""
        session = self.session
        session.follow_only()
        (model,) = session.models.values()
        for _ in range(session.position.step, len(self)):
            session.open_batch()
            session.position.step += 1
            model.follow()
            session.close_step(model, None)
        session.drain()

    @property
    def _opened(self) -> Feed:
        """The feed of this rank, once it is known how many ranks train."""
        if self._feed is None:
            session = self.session
            training = _num_training_ranks(session)
            world = replace(session.world, rank=min(session.world.rank, training - 1), size=training)
            plan = Plan.for_rank(self.config, len(self.samples.source), session.recipe.seed, world)
            self._feed = Feed(self.samples.source, plan, session.device, self.preparation)
            self._feed.start_cache(room_for_samples(self.config.memory_gib, session.world.local_size))
        return self._feed


class EvaluationFeed:
    """All samples once, in order; the batches are dealt out to the ranks, so that theirs add up to the whole."""

    def __init__(self, session: Session, samples: Samples, config: DataConfig, preparation: Preparation) -> None:
        self.session, self.samples = session, samples
        plan = SequentialPlan(
            num_samples=len(samples.source), batch=config.batch, rank=session.world.rank, size=session.world.size
        )
        self._feed = Feed(samples.source, plan, session.device, preparation)
        self._feed.start_cache(room_for_samples(config.memory_gib, session.world.local_size))

    def __len__(self) -> int:
        return self._feed.plan.steps_per_epoch

    def __iter__(self) -> Iterator[Any]:
        with self.session.clock.evaluate, closing(self._feed):
            for step in range(len(self)):
                yield self.samples.structure.nest(self._feed.batch(0, step))


def _num_training_ranks(session: Session) -> int:
    """How many ranks have batches: as the strategy of the loop's models says."""
    numbers = {model.num_training_ranks for model in session.models.values()}
    size = session.world.size
    if len(numbers) > 1 or (numbers - {size} and len(session.models) > 1):
        raise ConfigError(
            "several models, of which one has ranks that only serve. Allowed: strategies in which all ranks train, "
            "such as allreduce, local:H or hybrid:G."
        )
    return numbers.pop() if numbers else size


def _compare(samples: Samples, session: Session) -> None:
    """Refuse to train where ranks have opened different data."""
    found = session.fabric.gather((samples.content_sha256, session.world.host))
    for rank, (digest, host) in enumerate(found):
        if digest != found[0][0]:
            raise DataError(
                f"rank {rank} on {host} has other data than rank 0 on {found[0][1]}: sha256 {digest[:16]} against "
                f"{found[0][0][:16]}. Give all ranks the same data; seed random numbers that it is made of."
            )
