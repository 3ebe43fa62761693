"""Progress for people: a live bar on a terminal, plain lines elsewhere, silence on request. Only rank 0 speaks.

Beside it rank 0 keeps a file of where the run stands, for whoever follows it from elsewhere: in another process, or in
the output of a notebook's cell.
"""

import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from deepex.errors import RunFolderError, UsageError, unknown
from deepex.notebook import in_notebook
from deepex.record.folder import RunFolder
from deepex.record.rows import Diagnosis, EpochRow
from deepex.record.typed_json import to_json
from deepex.text import say_ratio, say_time_left

Verbosity = Literal["bar", "lines", "notebook", "quiet"]
"""How progress is told. With `notebook` a run itself is silent: a cell's output follows its directory."""
FOLLOWER = (
    "DEEPEX_NOTEBOOK"  # variable of ranks that a notebook starts: the file to name their runs in, for it to follow
)
SECONDS_BETWEEN_LINES = 60.0
PROGRESS_FILE = "progress.json"
SECONDS_BETWEEN_NOTES = 2.0
NOTES_SHARE = 0.005  # of the time may go into notes, where the file system is slow
MOST_SAID = 20  # sentences that are kept


def choose_verbosity(given: Verbosity | None) -> Verbosity:
    """What was asked for; without that, an output that is updated in a notebook, and lines elsewhere."""
    is_followed = in_notebook() or FOLLOWER in os.environ
    if given is None:
        return "notebook" if is_followed else "lines"
    if given not in get_args(Verbosity):
        raise UsageError(unknown("verbosity", given, get_args(Verbosity)))
    if given == "notebook" and not is_followed:
        raise UsageError("verbosity 'notebook' outside of a notebook. Allowed here: bar, lines, quiet.")
    return given


class Listener(Protocol):
    """What the loop tells while it runs."""

    def say(self, text: str) -> None:
        """One line for people."""

    def step(self, epoch: int, step: int, steps: int, seconds: float) -> None:
        """A step of an epoch is done; `seconds` since training began."""

    def epoch(self, row: EpochRow) -> None:
        """An epoch is done and evaluated; `row` is its line of metrics.jsonl."""

    def close(self) -> None:
        """Nothing more will come."""


class Silent:
    """Says nothing: other ranks, and --quiet."""

    def say(self, text: str) -> None:
        return None

    def step(self, epoch: int, step: int, steps: int, seconds: float) -> None:
        return None

    def epoch(self, row: EpochRow) -> None:
        return None

    def close(self) -> None:
        return None


class News:
    """When what bounds a run is worth a line: once it is known, and again when something else has for two epochs."""

    def __init__(self) -> None:
        self._told = self._last = ""

    def hear(self, row: EpochRow) -> str:
        """The line for an epoch, or nothing."""
        found = row.diagnosis
        if found is None or found.thin:
            return ""
        bound, before, self._last = found.bound, self._last, found.bound
        if bound == self._told or (self._told and bound != before):
            return ""
        self._told = bound
        return describe_diagnosis(found)


class Lines(Silent):
    """A plain line an epoch, for logs, and one a minute within a long one."""

    def __init__(self, epochs: int, target: str) -> None:
        self.epochs, self.target, self.news = epochs, target, News()
        self._last_told = 0.0

    def say(self, text: str) -> None:
        print(text, flush=True)

    def step(self, epoch: int, step: int, steps: int, seconds: float) -> None:
        if seconds - self._last_told > SECONDS_BETWEEN_LINES and step < steps:
            self._last_told = seconds
            left = say_time_left(epoch * steps + step, self.epochs * steps, seconds)
            self.say(f"{_say_epoch(epoch + 1, self.epochs)}  step {step:,} of {steps:,}  {left}")

    def epoch(self, row: EpochRow) -> None:
        print(describe_epoch(row, self.epochs, self.target), flush=True)
        self._last_told = row.seconds
        if news := self.news.hear(row):
            self.say(news)


class Bar(Silent):
    """A live bar over the steps still possible, with the last epoch's figures."""

    def __init__(self, epochs: int, target: str) -> None:
        self.epochs, self.target, self.news = epochs, target, News()
        self.console = Console(file=sys.stdout)
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[left]}"))
        self.progress = Progress(*columns, TimeElapsedColumn(), console=self.console)
        self.bar = self.progress.add_task("epoch 1", total=None, left="")
        self.progress.start()
        self._figures = ""
        self._last_drawn = 0.0

    def say(self, text: str) -> None:
        self.progress.console.print(text, highlight=False, markup=False)

    def step(self, epoch: int, step: int, steps: int, seconds: float) -> None:
        if seconds - self._last_drawn < 0.1 and step + 1 < steps:
            return
        self._last_drawn = seconds
        done, total = epoch * steps + step + 1, self.epochs * steps
        left = say_time_left(done, total, seconds)
        text = f"{_say_epoch(epoch + 1, self.epochs)}{self._figures}"
        self.progress.update(self.bar, completed=done, total=total, description=text, left=left)

    def epoch(self, row: EpochRow) -> None:
        self._figures = (
            f"  loss {row.loss:.4g}  {row.metric} {row.value:.4f}{_say_target(self.target)}"
            f"  {row.samples_per_second:,.0f} samples/s"
        )
        if news := self.news.hear(row):
            self.say(news)

    def close(self) -> None:
        self.progress.stop()


@dataclass(frozen=True, kw_only=True)
class ProgressNote:
    """Where a run stands: progress.json.

    `epoch` counts from 1, as in metrics.jsonl, and is 0 before the first step; `ended` is whether the run has left its
    loop, complete or not; `time` is when it was written, as a unix time; `said` is what the run told people.
    """

    epoch: int
    step: int
    steps: int
    epochs: int
    target: Mapping[str, Any]
    seconds: float
    time: float
    ended: bool = False
    said: tuple[str, ...] = ()


class ProgressFile:
    """Tells another listener everything, and notes in progress.json where the run stands, at most every two seconds.

    A note that can't be written is left out: the run goes on.

    Arguments:
        listener: who else hears it.
        folder: the run directory.
        epochs: how many there are at most.
        target: as plain values.
    """

    def __init__(self, listener: Listener, folder: RunFolder, epochs: int, target: Mapping[str, Any]) -> None:
        self.listener, self.folder, self.epochs, self.target = listener, folder, epochs, target
        self._here, self._due = (-1, 0, 0, 0.0), 0.0
        self._said: tuple[str, ...] = ()
        self._note()

    def say(self, text: str) -> None:
        self.listener.say(text)
        self._said = (*self._said, text)[-MOST_SAID:]

    def step(self, epoch: int, step: int, steps: int, seconds: float) -> None:
        self.listener.step(epoch, step, steps, seconds)
        self._here = epoch, step, steps, seconds
        if seconds >= self._due:
            self._due = seconds + max(SECONDS_BETWEEN_NOTES, self._note() / NOTES_SHARE)

    def epoch(self, row: EpochRow) -> None:
        self.listener.epoch(row)

    def close(self) -> None:
        self.listener.close()
        self._note(ended=True)

    def _note(self, ended: bool = False) -> float:
        """Replace the file; the seconds that it took."""
        epoch, step, steps, seconds = self._here
        began = time.perf_counter()
        note = ProgressNote(
            epoch=epoch + 1,
            step=step,
            steps=steps,
            epochs=self.epochs,
            target=self.target,
            seconds=seconds,
            time=time.time(),
            ended=ended,
            said=self._said,
        )
        with suppress(RunFolderError):
            self.folder.write_json(PROGRESS_FILE, to_json(note))
        return time.perf_counter() - began


def build_listener(verbosity: Verbosity, epochs: int, target: str) -> Listener:
    """The listener for a verbosity; `target` is its text, such as '< 0.14'."""
    if verbosity == "bar":
        return Bar(epochs, target)
    return Lines(epochs, target) if verbosity == "lines" else Silent()


def describe_epoch(row: EpochRow, epochs: int, target: str) -> str:
    """One epoch as a line of text; `target` is empty for a run that has none."""
    return (
        f"{_say_epoch(row.epoch, epochs):>9}  loss {row.loss:<8.4g}  {row.metric} {row.value:.4f}{_say_target(target)}"
        f"  {row.samples_per_second:>7,.0f} samples/s  {row.seconds:6.1f} s"
    )


def _say_epoch(epoch: int, epochs: int) -> str:
    """An epoch of so many; of 0 where nobody has said how many there are."""
    return f"epoch {epoch:>3}/{epochs}" if epochs else f"epoch {epoch:>3}"


def _say_target(target: str) -> str:
    return f" (target {target})" if target and target != "none" else ""


def describe_diagnosis(found: Diagnosis) -> str:
    """What bounds a run and what would help most, as a line of text."""
    if not found.advice:
        return found.verdict
    best = found.advice[0]
    return f"{found.verdict} What would help most: {best.change} (about {say_ratio(best.gain)} the samples/s)."
