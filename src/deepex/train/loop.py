"""The training loop, top to bottom: set up, epochs of steps, evaluation, the record, the stop."""

import math
from contextlib import closing
from time import perf_counter

import torch

from deepex import sync as strategies
from deepex.data import Splits
from deepex.data.feeding.cache import used_bytes
from deepex.errors import Interrupted, TrainingError
from deepex.fabric import Fabric
from deepex.optim import Optimiser
from deepex.record.counters import Counters
from deepex.record.folder import RunFolder
from deepex.record.phases import Clock
from deepex.record.sinks.progress import Listener
from deepex.record.weights import Weights, collect_weights
from deepex.train import checkpoint
from deepex.train.checkpoint import Position
from deepex.train.compute.step_cost import measure_step_cost
from deepex.train.evaluate import evaluate
from deepex.train.illustrate import illustrate
from deepex.train.input import Input
from deepex.train.journal import Journal
from deepex.train.recipe import Recipe
from deepex.train.resolve import resolve
from deepex.train.step import Step
from deepex.train.stop import StopRequest
from deepex.train.summary import add_losses, rank_row
from deepex.train.task import Loss


class Loop:
    """One rank's run of a recipe. All ranks build one and call `run`."""

    def __init__(self, recipe: Recipe, splits: Splits, fabric: Fabric, folder: RunFolder, listener: Listener) -> None:
        self.fabric, self.folder, self.listener = fabric, folder, listener
        self.journal = Journal(folder, fabric, listener)
        self.task, self.world, self.clock = recipe.task, fabric.world, Clock()
        self.input = Input(recipe, splits, fabric, listener)
        self.steps, self.feed = max(fabric.gather(self.input.steps)), self.input.feed
        resolved = resolve(recipe, fabric, self.feed.batch(0, 0))
        self.recipe, self.replica = resolved.recipe, resolved.replica
        listener.say(resolved.sentence)
        self.sync = strategies.parse(recipe.sync)
        optimiser = Optimiser(recipe.optimiser, self.replica)
        self.step = Step(self.task, self.replica, optimiser, self.sync, self.recipe.precision, self.clock)
        self.position, self.started = Position(), 0.0
        self.best: Weights | None = None  # of the best epoch so far, on rank 0

    def prepare(self) -> None:
        """Try a step on real data, make all replicas equal, and write down what was resolved."""
        step_cost, advice = measure_step_cost(self.step, self.feed.batch(0, 0))
        for sentence in advice:
            self.listener.say(sentence)
        self.input.begin()
        self.sync.prepare(self.step.context(self.fabric, self.steps, self.recipe.data.batch))
        self.stop = StopRequest(self.sync.lockstep, self.world)
        storage = self.input.storage
        self.journal.begin(self.recipe, self.sync.notes, step_cost, self.replica.weights.nbytes, storage)
        torch.manual_seed(self.recipe.seed + 1 + self.world.rank)  # from here on each rank draws noise of its own

    def run(self) -> None:
        """Train until the target or the last epoch; afterwards the directory holds the whole record."""
        self.prepare()
        self.resume()
        self.started = perf_counter() - self.position.seconds
        self.counters = Counters(self.fabric, whole_epoch=self.position.step == 0)
        with self.stop.listening():  # to the end: a signal after the last step lets the run complete
            with closing(self.feed), closing(self.counters):
                while not self.is_done:
                    self.train_epoch()
                    self.close_epoch()
            self.finish()

    def finish(self) -> None:
        """Keep the last weights, and write the outcome and what the task shows of its model."""
        self.stop.close()
        self.save()
        peak_bytes = self.fabric.gather(used_bytes())
        self.journal.finish(self.position, peak_bytes, self.sync.notes, self.replica.weights_sha256())
        if self.world.is_first and (illustration := illustrate(self.task, self.replica.model, self.input)) is not None:
            self.journal.illustrate(illustration)
        self.fabric.gather(None)  # whoever asks for the outcome next finds it, on any rank

    @property
    def is_done(self) -> bool:
        """Whether the last epoch is over, or the target reached and the recipe ends there."""
        stop, here = self.recipe.stop, self.position
        return here.epoch >= stop.epochs or (stop.at_target and here.epochs_to_target is not None)

    def train_epoch(self) -> None:
        """The steps of an epoch, from wherever it stands to its end."""
        here = self.position
        self.replica.model.train()
        while here.step < self.steps:
            number = here.epoch * self.steps + here.step
            self.step.optimiser.rate = self.recipe.learning_rate(number / self.steps)
            loss = None
            with self.clock.step:
                if here.step < self.input.steps:
                    with self.clock.input:
                        batch = self.feed.batch(here.epoch, here.step)
                    loss = self.step(batch, number)
                else:
                    self.step.follow(number)
                here.step += 1
                if here.step == self.steps:
                    with self.clock.sync:
                        self.sync.drain()
            if loss is not None:
                self.add_loss(loss, number)
            self.listener.step(here.epoch, here.step, self.steps, self.seconds())
            if self.stop.agreed():
                self.leave()

    def close_epoch(self) -> None:
        """Evaluate, write the epoch's lines, look at the target, keep a checkpoint."""
        here = self.position
        with self.clock.evaluate:
            tally = evaluate(self.task, self.replica.model, self.input.validation, self.fabric)
        row = rank_row(here, self.input.steps, self.clock, self.counters, self.sync.noise, self.seconds())
        ranks = self.fabric.gather(row)
        here.epoch, here.step, here.loss_sums = here.epoch + 1, 0, {}
        here.seconds = max(rank.seconds for rank in ranks)
        self.journal.write_epoch(ranks, tally)
        if here.epoch == 1:
            self.input.say_cached(self.listener)
        if here.epochs_to_target is None and self.recipe.target.reached(tally.value):
            here.epochs_to_target, here.seconds_to_target = here.epoch, here.seconds
        self.keep_best(tally.value)
        if not self.is_done and here.epoch % self.recipe.checkpoint_epochs == 0:
            self.save()

    def keep_best(self, value: float) -> None:
        """Keep the weights of an epoch that is better than all before it; a checkpoint writes them."""
        here = self.position
        if math.isfinite(value) and (here.best_value is None or self.recipe.target.is_better(value, here.best_value)):
            here.best_epoch, here.best_value = here.epoch, value
            self.best = collect_weights(self.replica.model) if self.world.is_first else None

    def add_loss(self, loss: Loss, number: int) -> None:
        """Add a step's loss to the epoch's sums; one that is not a number ends the run."""
        wrong = add_losses(self.position.loss_sums, loss)
        if wrong:
            raise TrainingError(
                f"{self.world}: {wrong} in step {number} (epoch {self.position.epoch + 1}). The last good checkpoint "
                f"is {checkpoint.latest(self.folder) or 'none'}. Try a smaller optimiser.learning_rate than "
                f"{self.recipe.optimiser.learning_rate:g}, and look for such values in the data."
            )

    def resume(self) -> None:
        """Go on from the directory's checkpoint, if there is one."""
        path = checkpoint.latest(self.folder)
        if path is not None:
            state = checkpoint.load(path, self.world)
            self.position = checkpoint.restore(state, {"": self.step})
            self.best = checkpoint.load_best(path) if self.world.is_first else None
            self.journal.rewind(self.position.epoch)
            self.listener.say(f"going on from epoch {self.position.epoch + 1}, step {self.position.step}")
        self.fabric.gather(None)  # nobody trains before everybody has restored

    def save(self) -> None:
        with self.clock.checkpoint:
            checkpoint.save(self.folder, self.fabric, {"": self.step}, self.position, self.best)

    def leave(self) -> None:
        """Stop early, where all ranks agreed to, with everything that is needed to go on."""
        self.stop.close()
        self.position.seconds = self.seconds()
        self.save()
        raise Interrupted(
            f"stopped in epoch {self.position.epoch + 1} after step {self.position.step} of {self.steps}; "
            f"a checkpoint is written. Go on with: deepex resume {self.folder.path}"
        )

    def seconds(self) -> float:
        """Seconds of training so far, earlier parts of a resumed run included."""
        return perf_counter() - self.started
