"""A run while it goes on, from its files alone: where it stands, whether it still lives, which ranks lag.

It draws that for a terminal. `follow` shows anything that can be looked at again and again, and knows no runs.
"""

import json
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean, median
from threading import Event, current_thread, main_thread
from typing import Any, Literal

from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from deepex.config import read_toml
from deepex.errors import RunFolderError
from deepex.record.folder import RunFolder
from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.record.rows import ChangingFiles, parse_rows, read_last_row
from deepex.record.sinks.progress import PROGRESS_FILE, describe_diagnosis, say_seconds, say_time_left
from deepex.report.run.sentences import say_count, say_share, say_value
from deepex.report.style import PHASE_COLOURS
from deepex.text import say_time
from deepex.train import checkpoint
from deepex.train.task import Target

Row = Mapping[str, Any]
Condition = Literal["starting", "running", "complete", "stopped", "silent"]

SECONDS_BETWEEN_LOOKS = 1.0
MAX_RANKS_READ, MAX_RANKS_NAMED, MAX_HOSTS_NAMED = 256, 4, 3
LAG = 0.1  # more work of its own than the median rank has, by which a rank lags
OWN_WORK = ("input", "forward", "backward", "update")
PATIENCE_SECONDS = 60.0  # at least, before a run is called silent
FIRST_PATIENCE_SECONDS = 600.0  # while it starts and in its first epoch: data may be staged, evaluations may be long
GRACE_SECONDS = 10.0  # for a rank to write an epoch that rank 0 has written
PAGE_SECONDS = 120.0  # for a page to be drawn after its run is complete
CURVE_WIDTH = 32
BLOCKS = "▁▂▃▄▅▆▇█"
COLOURS: Mapping[Condition, str] = {
    "starting": "cyan",
    "running": "green",
    "complete": "green",
    "stopped": "yellow",
    "silent": "red",
}


@dataclass(frozen=True, kw_only=True)
class View:
    """What one look found: a drawing for a terminal, its news in plain lines, and the last words once it is over."""

    drawing: RenderableType
    news: Sequence[str] = ()
    ending: Sequence[str] | None = None


def follow(console: Console, look: Callable[[], View], once: bool) -> None:
    """Show what `look` finds once a second, until it is over or Ctrl-C: in place on a terminal, its news elsewhere."""
    view = look()
    if once:
        console.print(view.drawing)
        return
    with _until_interrupted() as interrupted:
        if console.is_interactive:
            with Live(view.drawing, console=console, auto_refresh=False) as live:
                while view.ending is None and not interrupted.wait(SECONDS_BETWEEN_LOOKS):
                    view = look()
                    live.update(view.drawing, refresh=True)
        else:
            _print(console, view.news)
            while view.ending is None and not interrupted.wait(SECONDS_BETWEEN_LOOKS):
                view = look()
                _print(console, view.news)
        _print(console, view.ending or ())


@contextmanager
def _until_interrupted() -> Iterator[Event]:
    """What Ctrl-C sets, in place of an exception that may come at any line."""
    interrupted = Event()
    if current_thread() is not main_thread():
        yield interrupted  # only a main thread receives signals
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupted.set())
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _print(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(Text(line), soft_wrap=True)


@dataclass(frozen=True, kw_only=True)
class Lag:
    """Ranks that lag in an epoch: by their share of work beyond the median's, the slowest first, or without a line."""

    num_read: int = 0
    slower: Mapping[int, float] = field(default_factory=dict)
    absent: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A run at one moment, as its files tell it; `quiet_seconds` is for how long nothing was written."""

    folder: RunFolder
    recipe: Row
    record: Row
    progress: Row
    summary: Row | None
    rows: Sequence[Row]
    lag: Lag
    quiet_seconds: float

    @property
    def num_epochs(self) -> int:
        """How many there are at most."""
        return int(self.recipe["stop"]["epochs"])

    @property
    def num_ranks(self) -> int:
        return int(self.recipe["world"]["ranks"])

    @property
    def target(self) -> Target | None:
        return Target(**self.progress["target"]) if self.progress else None

    @property
    def is_within_epoch(self) -> bool:
        """Whether the steps of an epoch are under way whose line is not written yet."""
        last = self.rows[-1]["epoch"] if self.rows else 0
        return bool(self.progress and self.progress["steps"] and self.progress["epoch"] > last)

    @property
    def epochs_done(self) -> float:
        """Whole epochs, and the part of the one that is under way."""
        if self.is_within_epoch:
            return float(self.progress["epoch"] - 1 + self.progress["step"] / self.progress["steps"])
        return float(self.rows[-1]["epoch"]) if self.rows else 0.0

    @property
    def seconds(self) -> float:
        """Of training so far."""
        if self.is_within_epoch:
            return float(self.progress["seconds"])
        return float(self.rows[-1]["seconds"]) if self.rows else 0.0

    @property
    def condition(self) -> Condition:
        """Whether it runs, by what was written last and when."""
        if self.summary is not None:
            return "complete"
        if self.progress.get("ended"):
            return "stopped"
        if self.quiet_seconds > self._patience_seconds():
            return "silent"
        return "running" if self.epochs_done else "starting"

    @property
    def awaits_page(self) -> bool:
        """Whether the run is complete and its page may still come."""
        return self.summary is not None and not self.folder.page.exists() and self.quiet_seconds < PAGE_SECONDS

    def _patience_seconds(self) -> float:
        """How long a run that lives may write nothing: a few steps, or an evaluation and a checkpoint."""
        if not self.rows or not self.progress.get("steps", 1):
            return FIRST_PATIENCE_SECONDS + 10 * self.seconds / max(int(self.progress.get("step", 0)), 1)
        last = self.rows[-1]
        needed: float = 3 * last["seconds"] / last["epoch"]
        if self.progress:
            beside = sum(last["phase_seconds"][name] for name in BESIDE_PHASES)
            needed = 3 * beside + 10 * last["step_wall_seconds"] / max(last["steps"], 1)
        return max(PATIENCE_SECONDS, needed)


class RunReader:
    """Looks at a run again and again, and reads only what has changed."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder, self.files = folder, ChangingFiles(folder.path)
        self._lag, self._lag_epoch = Lag(), 0

    def read(self) -> Standing:
        """The run at this moment."""
        rows: Sequence[Row] = self.files.read("metrics.jsonl", parse_rows, [])
        recipe: Row = self.files.read("recipe.toml", self._parse_recipe, {})
        progress: Row = self.files.read(PROGRESS_FILE, json.loads, {})
        record, summary = (self.files.read(name, json.loads, None) for name in ("record.json", "summary.json"))
        return Standing(
            folder=self.folder,
            recipe=recipe,
            record=record or {},
            progress=progress,
            summary=summary,
            rows=rows,
            lag=self._find_lag(rows, recipe["world"]["ranks"]),
            quiet_seconds=time.time() - max(self.files.written(), progress.get("time", 0.0)),
        )

    def _parse_recipe(self, text: str) -> Row:
        tree = read_toml(text, str(self.folder.recipe))
        missing = [key for key in ("task", "sync", "precision", "stop", "world") if key not in tree]
        if missing:
            raise RunFolderError(
                f"{self.folder.path} is not a run directory: its recipe.toml has no {missing[0]}, as those that "
                "deepex run writes have. Give one that deepex run made."
            )
        return tree

    def _find_lag(self, rows: Sequence[Row], num_ranks: int) -> Lag:
        """Which ranks lag, looked up once an epoch, and again while lines of ranks are missing."""
        if num_ranks == 1 or not rows:
            return Lag()
        epoch = rows[-1]["epoch"]
        if epoch != self._lag_epoch or self._lag.absent:
            self._lag, self._lag_epoch = find_lag(self.folder, num_ranks, epoch), epoch
        is_fresh = time.time() - self.files.written("metrics.jsonl") < GRACE_SECONDS
        return replace(self._lag, absent=()) if is_fresh else self._lag


def find_lag(folder: RunFolder, num_ranks: int, epoch: int) -> Lag:
    """Which ranks lag in an epoch, by the last line of each rank's phases; of very many ranks, some are looked at."""
    count = min(num_ranks, MAX_RANKS_READ)
    chosen = [index * num_ranks // count for index in range(count)]
    lines = {rank: read_last_row(folder.path / f"phases/rank{rank:05d}.jsonl") for rank in chosen}
    there = {rank: line for rank, line in lines.items() if line is not None and line["epoch"] >= epoch}
    work = {
        rank: sum(line["phase_seconds"][name] for name in OWN_WORK)
        for rank, line in there.items()
        if line.get("trains", True)
    }
    usual = median(work.values()) if work else 0.0
    beyond = {rank: seconds / usual - 1 for rank, seconds in work.items()} if usual else {}
    slowest = sorted(beyond, key=lambda rank: -beyond[rank])
    return Lag(
        num_read=count,
        slower={rank: beyond[rank] for rank in slowest if beyond[rank] > LAG},
        absent=[rank for rank in chosen if rank not in there],
    )


def describe_run(run: Standing) -> str:
    """What is run, on how many ranks, and where."""
    hosts = list(dict.fromkeys(place["host"] for place in run.record.get("places", [])))
    where = f" on {', '.join(hosts[:MAX_HOSTS_NAMED])}" if hosts else ""
    if len(hosts) > MAX_HOSTS_NAMED:
        where += f" and {say_count(len(hosts) - MAX_HOSTS_NAMED, 'more host')}"
    return f"{say_count(run.num_ranks, 'rank')}{where}, sync {run.recipe['sync']}, {run.recipe['precision']}"


def describe_condition(run: Standing) -> str:
    """Whether a run goes on, and if not, where it stands and what to do."""
    if run.condition not in ("stopped", "silent"):
        return "complete; its page is being drawn" if run.awaits_page else run.condition
    here, kept = run.progress, checkpoint.latest(run.folder)
    where = f"after epoch {run.rows[-1]['epoch']}" if run.rows else "before its first step"
    if run.is_within_epoch:
        where = f"in epoch {here['epoch']}, after step {here['step']:,} of {here['steps']:,}"
    cure = f"It has no checkpoint; start it again with: deepex run {run.folder.recipe}"
    if kept:
        cure = f"Its checkpoint is {kept.name}; go on with: deepex resume {run.folder.path}"
    if run.condition == "silent":
        return f"silent {where}: nothing was written for {say_seconds(run.quiet_seconds)}, maybe it died. {cure}"
    if kept and kept.name == f"epoch{here['epoch'] - 1:05d}_step{here['step']:06d}":
        return f"stopped early {where}. {cure}"
    return f"ended early {where}; its own output says why. {cure}"


def describe_outcome(run: Standing) -> str:
    """The outcome of a complete run in a line."""
    summary = run.summary or {}
    after = f"after {say_count(summary['epochs'], 'epoch')} and {say_seconds(summary['seconds'])}"
    return f"{summary['metric']} {say_value(summary['value'])} {after}; {_describe_target(run)}"


def draw(run: Standing) -> RenderableType:
    """A run at one moment, for a terminal."""
    title = Text.assemble((str(run.recipe["task"]["name"]), "bold"), f"  {describe_run(run)}", overflow="fold")
    mark = Text(f"● {describe_condition(run)}", COLOURS[run.condition])
    parts: list[RenderableType] = [title, Text(str(run.folder.path), "dim", overflow="fold"), mark, "", _curves(run)]
    if run.rows:
        parts += ["", _phases(run.rows[-1], run.num_ranks)]
    parts += [Text(line, "yellow") for line in describe_lag(run)]
    found = (run.summary or (run.rows[-1] if run.rows else {})).get("diagnosis")
    if found:
        few = " Few steps were timed so far." if found["thin"] else ""
        parts += ["", Text(describe_diagnosis(found) + few)]
    return Group(*parts)


def describe_lag(run: Standing) -> list[str]:
    """The ranks that lag, by name and host; of how many, where not all were looked at."""
    hosts = {place["rank"]: f" on {place['host']}" for place in run.record.get("places", [])}
    slower = [f"rank {rank}{hosts.get(rank, '')} by {say_share(share)}" for rank, share in run.lag.slower.items()]
    absent = [f"rank {rank}{hosts.get(rank, '')}" for rank in run.lag.absent]
    all_read = run.lag.num_read == run.num_ranks
    of_how_many = "" if all_read else f" ({run.lag.num_read} of {run.num_ranks:,} ranks looked at)"
    lines = []
    if slower:
        lines.append(f"slower than the median rank in their own work: {_name_few(slower)}{of_how_many}")
    if absent:
        lines.append(f"without a line for epoch {run.rows[-1]['epoch']}: {_name_few(absent)}{of_how_many}")
    return lines


def _name_few(names: Sequence[str]) -> str:
    more = len(names) - MAX_RANKS_NAMED
    return ", ".join(names[:MAX_RANKS_NAMED]) + (f" and {more} more" if more > 0 else "")


def _curves(run: Standing) -> Table:
    """How far it is, and its loss, metric and speed over all epochs."""
    table = Table.grid("", "", Column(width=CURVE_WIDTH), "", padding=(0, 2))
    done = run.epochs_done
    total = done if run.condition == "complete" else run.num_epochs
    bar = ProgressBar(total=total, completed=done, width=CURVE_WIDTH, complete_style="green")
    table.add_row("epoch", f"{math.ceil(done):,} of {run.num_epochs:,}", bar, _describe_steps(run))
    if run.rows:
        last = run.rows[-1]
        for name, key, note in (
            ("loss", "loss", ""),
            (last["metric"] if last["metric"] != "loss" else "held-out loss", "value", _describe_target(run)),
            ("samples/s", "samples_per_second", ""),
        ):
            number = f"{last[key]:,.0f}" if key == "samples_per_second" else say_value(last[key])
            table.add_row(name, number, Text(sparkline([row[key] for row in run.rows]), "cyan"), note)
    return table


def _describe_steps(run: Standing) -> str:
    parts = [f"step {run.progress['step']:,} of {run.progress['steps']:,}"] if run.is_within_epoch else []
    if run.condition == "running" and 0 < run.epochs_done < run.num_epochs:
        parts.append(say_time_left(run.epochs_done, run.num_epochs, run.seconds))
    return ", ".join(parts)


def _describe_target(run: Standing) -> str:
    """The target and when it was reached, or how far away it is; nothing before the run has said what it is."""
    target, summary = run.target, run.summary
    goal = f"target {target or (summary or {}).get('target', '')}"
    reached = next((row["epoch"] for row in run.rows if target and target.reached(row["value"])), None)
    if summary is not None:
        reached = summary["epochs_to_target"]
    if reached is not None:
        return f"{goal} reached in epoch {reached}"
    if summary is not None:
        return f"{goal} not reached"
    return f"{goal}: {abs(run.rows[-1]['value'] - target.threshold):.2g} to go" if target else ""


def _phases(row: Row, num_ranks: int) -> Table:
    """Where an epoch's time went, by phase."""
    title = f"where epoch {row['epoch']} went" + (", mean over ranks" if num_ranks > 1 else "")
    table = Table(
        "", "", Column(justify="right"), Column(justify="right"), box=None, show_header=False, padding=(0, 2, 0, 0),
        title=title, title_justify="left", title_style="dim",
    )  # fmt: skip
    seconds = row["phase_seconds"]
    total, longest = sum(seconds.values()) or 1.0, max(seconds.values()) or 1.0
    for name in (*STEP_PHASES, *(name for name in BESIDE_PHASES if seconds[name])):
        bar = Bar(longest, 0, seconds[name], width=CURVE_WIDTH, color=PHASE_COLOURS[name])
        spent = say_time(seconds[name]) if seconds[name] < 120 else say_seconds(seconds[name])
        table.add_row(name, bar, spent, say_share(seconds[name] / total))
    return table


def sparkline(values: Sequence[float]) -> str:
    """Values as little bars, several to one where there are very many.

    >>> sparkline([3.0, 2.0, 1.0, float("nan")])
    '█▅▁ '
    """
    width = min(len(values), CURVE_WIDTH)
    bounds = [index * len(values) // width for index in range(width + 1)]
    means = [fmean(values[start:end]) for start, end in pairwise(bounds)]
    known = [mean for mean in means if math.isfinite(mean)]
    low, span = min(known, default=0.0), (max(known, default=0.0) - min(known, default=0.0)) or 1.0
    return "".join(
        BLOCKS[round((mean - low) / span * (len(BLOCKS) - 1))] if math.isfinite(mean) else " " for mean in means
    )
