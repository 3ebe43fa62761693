"""A run around a user's own loop: its ranks, its clock, its record, its checkpoints and its end.

It knows no model: `Replicated` makes replicas of models, `feed` brings batches.
"""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from statistics import fmean
from time import perf_counter
from typing import Any, Protocol

import torch
from torch import Tensor

from deepex.config import to_toml
from deepex.data.feeding.cache import used_bytes
from deepex.errors import ConfigError, Interrupted, TrainingError, UsageError
from deepex.fabric import Fabric
from deepex.optim import OptimiserConfig
from deepex.own_loop.loop_task import LoopTask
from deepex.record.counters import Counters
from deepex.record.folder import RunFolder
from deepex.record.phases import Clock
from deepex.record.rows import RankRow, StepCost
from deepex.record.sinks.progress import Listener, ProgressFile, Silent, Verbosity, build_listener
from deepex.train import checkpoint
from deepex.train.checkpoint import Position, Trained
from deepex.train.journal import Journal
from deepex.train.recipe import Recipe, StopConfig
from deepex.train.stop import StopRequest
from deepex.train.summary import rank_row
from deepex.train.task import Tally

_open: list["Session"] = []  # the session of this process, while there is one


class LoopModel(Trained, Protocol):
    """A model of the loop, in training; `count` are its steps so far."""

    name: str
    count: int
    num_training_ranks: int

    def follow(self) -> None:
        """A step of a rank without batches."""

    def release(self) -> None:
        """Give the user's module and optimiser back."""


class Session:
    """What `dx.start` gives: this rank's place among its peers, and the record of the loop.

    Attributes:
        world: rank, size, host and device.
        fabric: how ranks talk, for collectives of one's own.
        path: the run's directory.
        device: where batches come to, and where models must be.
    """

    def __init__(self, recipe: Recipe, fabric: Fabric, folder: RunFolder, verbosity: Verbosity) -> None:
        self.recipe, self.fabric, self.folder, self.verbosity = recipe, fabric, folder, verbosity
        self.world, self.path, self.device = fabric.world, folder.path, fabric.world.torch_device
        self.clock, self.position = Clock(), Position()
        self.listener: Listener = Silent()
        self.models: dict[str, LoopModel] = {}
        self.steps_per_epoch, self.batch_size = 0, 1
        self.leader: object | None = None  # the pass through a feed that counts the steps of this epoch
        self.resumed: dict[str, Any] | None = None  # the state of a checkpoint to go on from
        self._num_epochs, self._trains, self._started = 0, True, perf_counter()
        self._journal: Journal | None = None  # from the first step on
        self._is_step_open = self._is_drained = self.is_feeding = self.is_closed = False
        self._logged: dict[str, float | Tally] = {}
        self._resources = ExitStack()

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which speaks for all."""
        return self.world.is_first

    def epochs(self, count: int) -> Iterator[int]:
        """The numbers of the epochs still to run, from 0; of a resumed run, from the one in which it was stopped."""
        if count < 1:
            raise UsageError(f"run.epochs({count}). Allowed: whole numbers from 1.")
        self._num_epochs = count
        while (number := self.position.epoch) < count:
            yield number
            self.close_epoch()
            if self.position.epoch == number:
                raise ConfigError(
                    f"epoch {number + 1} had no step. Go through a feed in each epoch, with replicated.step() for each "
                    "of its batches."
                )

    def log(self, **values: float | Tensor | Tally) -> None:
        """Figures of this epoch for the record, the metric first. Ranks' figures are averaged, `dx.Tally`s added up.

        Example: `run.log(rmse=0.12, worst=0.9)`
        """
        for name, value in values.items():
            self._logged[name] = value if isinstance(value, Tally) else _to_number(name, value)

    def say(self, text: str) -> None:
        """A line for people, told by rank 0."""
        if self.verbosity == "notebook" and self.is_first:
            print(text, flush=True)
        self.listener.say(text)

    def warn(self, text: str) -> None:
        """A line of rank 0 for people, before there is a listener."""
        if self.world.is_first and self.verbosity != "quiet":
            print(f"deepex: {text}", file=sys.stderr, flush=True)

    def open_batch(self) -> None:
        """A feed is about to read a batch: with it a step begins, unless all ranks stop here."""
        self._leave_if_asked()
        self.is_feeding = self._is_step_open = True
        self.clock.step.__enter__()

    def open_step(self) -> None:
        """A model's step begins: with its batch, as another step with the same batch, or without a feed."""
        if self._is_step_open:
            return
        if self.is_feeding:
            self._is_step_open = True
            self.clock.step.reopen()
        else:
            if self.position.step == self.position.epoch == 0 and self.world.size > 1:
                self.warn("batches don't come from dx.feed: see that each rank has its own share of the samples")
            self._leave_if_asked()
            self.position.step += 1
            self._is_step_open = True
            self.clock.step.__enter__()

    def begin(self, model: LoopModel, sync: str, optimiser: OptimiserConfig, step_cost: StepCost) -> None:
        """Before the first update: what is known by now goes into the record."""
        if self._journal is not None:
            return
        stop = StopConfig(epochs=max(1, self._num_epochs))
        data = replace(self.recipe.data, batch=self.batch_size)
        self.recipe = replace(self.recipe, stop=stop, data=data, optimiser=optimiser, sync=sync)
        if self.world.is_first:
            told = build_listener(self.verbosity, self._num_epochs, "")
            self.listener = ProgressFile(told, self.folder, self._num_epochs, asdict(self.recipe.target))
        self._journal = Journal(self.folder, self.fabric, self.listener)
        weights_bytes = model.replica.weights.nbytes
        self._journal.begin(self.recipe, model.sync.notes, step_cost, weights_bytes, "given", own_loop=True)
        if self.resumed is not None:
            self._journal.rewind(self.position.epoch)
        self._stop = StopRequest(model.sync.lockstep, self.world)
        self._resources.enter_context(self._stop.listening())
        self._counters = Counters(self.fabric, whole_epoch=self.position.step == 0)
        self._resources.callback(self._counters.close)
        self._started = perf_counter() - self.position.seconds

    def close_step(self, model: LoopModel, last_loss: Tensor | None, *, is_timed: bool = True) -> None:
        """A step of a model is done. One that set things up is not timed."""
        self.clock.step.__exit__(None, None, None)
        self._is_step_open = self._is_drained = False
        number = model.count - 1
        if not is_timed:
            self.clock.take()
        if last_loss is not None:
            if not math.isfinite(loss := last_loss.item()):
                raise TrainingError(
                    f"{self.world}: the loss is {loss} in step {number} (epoch {self.position.epoch + 1}). The last "
                    f"good checkpoint is {checkpoint.latest(self.folder) or 'none'}. Try a smaller learning rate, and "
                    "look for such values in the data."
                )
            for name in ["loss", *([model.name] if model.name else [])]:
                self.position.loss_sums[name] = self.position.loss_sums.get(name, 0.0) + loss
        self.listener.step(self.position.epoch, self.position.step, self.steps_per_epoch, self.seconds())

    def drain(self) -> None:
        """All steps of an epoch are done: make all replicas equal."""
        if self._is_drained or not self.models:
            return
        self.clock.step.reopen()
        with self.clock.sync:
            for model in self.models.values():
                if model.count:
                    model.replica.check_parameters()
                    model.sync.drain()
        self.clock.step.__exit__(None, None, None)
        self._is_drained, self.is_feeding, self.leader = True, False, None

    def close_epoch(self) -> None:
        """Write the epoch's lines and a checkpoint, if it has had steps."""
        here, journal = self.position, self._journal
        self.leader = None
        if journal is None or not here.step:
            return
        if self._trains and not here.loss_sums:
            raise ConfigError(
                f"epoch {here.epoch + 1} had {here.step} batches and no step. Train with replicated.step() for each "
                "batch."
            )
        self.drain()
        first = next(iter(self.models.values()))
        steps = here.step if self._trains else 0
        row = rank_row(here, steps, self.clock, self._counters, first.sync.noise, self.seconds())
        ranks = self.fabric.gather(row)
        name, tally = _judge(self.fabric.gather(self._logged), ranks)
        here.epoch, here.step, here.loss_sums, self._logged = here.epoch + 1, 0, {}, {}
        here.seconds = max(rank.seconds for rank in ranks)
        self.recipe = journal.recipe = replace(self.recipe, task=LoopTask(name=self.recipe.task.name, metric=name))
        journal.write_epoch(ranks, tally)
        if here.epoch % self.recipe.checkpoint_epochs == 0:
            self.save()

    def save(self) -> None:
        """Write a checkpoint; all ranks call it."""
        self.position.counts = {name: model.count for name, model in self.models.items()}
        self.position.threads = torch.get_num_threads()
        with self.clock.checkpoint:
            checkpoint.save(self.folder, self.fabric, self.models, self.position)

    def finish(self) -> None:
        """The loop has ended: the outcome, and the page."""
        self.close_epoch()
        if self._journal is None or not self.position.epoch:
            raise TrainingError(
                f"the loop ended without a finished epoch, so {self.path} has no outcome. Go through a feed, with "
                "replicated.step() for each of its batches."
            )
        self._stop.close()
        if self.position.epoch % self.recipe.checkpoint_epochs:
            self.save()
        peak_bytes = self.fabric.gather(used_bytes())
        first = next(iter(self.models.values()))
        self._journal.finish(self.position, peak_bytes, first.sync.notes, first.replica.weights_sha256())
        if self.world.is_first:
            as_run = replace(self.recipe, stop=StopConfig(epochs=self.position.epoch))
            self.folder.write_text("recipe.toml", to_toml(as_run))
        self.fabric.gather(None)  # whoever asks for the outcome next finds it, on any rank

    def _leave_if_asked(self) -> None:
        """Stop early between two batches, where all ranks agree to, with everything that is needed to go on."""
        if self._journal is None or not self._stop.agreed():
            return
        self._stop.close()
        here = self.position
        here.seconds = self.seconds()
        if here.step or here.epoch % self.recipe.checkpoint_epochs:  # else the epoch has just left one
            self.save()
        where = f"in epoch {here.epoch + 1} after step {here.step} of {self.steps_per_epoch}"
        raise Interrupted(
            f"stopped {where if here.step else f'after epoch {here.epoch}'}; a checkpoint is written. Go on with "
            f'dx.start(resume="{self.path}").'
        )

    def seconds(self) -> float:
        """Seconds of training so far, earlier parts of a resumed run included."""
        return perf_counter() - self._started

    def follow_only(self) -> None:
        """This rank has no batches: it serves the others."""
        self._trains = False

    def close(self) -> None:
        """Give back signals, threads and models, however the loop ended."""
        self.is_closed = True
        self._resources.close()
        for model in self.models.values():
            model.release()
        self.listener.close()


def current_session(what: str) -> Session:
    """The session of this process; an error that names what needs one, if there is none."""
    if not _open:
        raise UsageError(f"{what} outside of a run. Put the loop into: with dx.start() as run: …")
    return _open[-1]


@contextmanager
def opened(session: Session) -> Iterator[Session]:
    """Let a session be this process's, and close it however its loop ends."""
    _open.append(session)
    try:
        yield session
        session.finish()
    finally:
        _open.remove(session)
        session.close()


def refuse_second() -> None:
    """Refuse a session inside of another."""
    if _open:
        raise UsageError("dx.start() inside of another. Allowed: one run at a time in a process.")


def _judge(logged: Sequence[Mapping[str, float | Tally]], ranks: Sequence[RankRow]) -> tuple[str, Tally]:
    """The metric's name and value, and what was logged beside it; the loss where nothing was."""
    names = list(logged[0])
    if any(list(each) != names for each in logged):
        raise ConfigError(
            f"ranks logged different figures: {', '.join(names) or 'nothing'} on rank 0, and others elsewhere. Call "
            "run.log with the same names on all ranks."
        )
    if not names:
        loss = fmean(rank.losses["loss"] for rank in ranks if rank.trains)
        return LoopTask().metric, Tally(total=loss, count=1)
    values = {name: _merge([each[name] for each in logged]) for name in names}
    first, *others = names
    return first, Tally(total=values[first], count=1, beside={name: values[name] for name in others})


def _to_number(name: str, value: Any) -> float:
    try:
        return float(torch.as_tensor(value).detach())
    except (TypeError, ValueError, RuntimeError):
        given = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise UsageError(f"run.log({name}=…) was given {given}. Allowed: one number, or a dx.Tally.") from None


def _merge(values: Sequence[float | Tally]) -> float:
    tallies = [value for value in values if isinstance(value, Tally)]
    return Tally.merge(tallies).value if tallies else fmean(value for value in values if not isinstance(value, Tally))
