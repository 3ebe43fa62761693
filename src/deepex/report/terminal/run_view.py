"""A run drawn for a terminal, as one look at its files found it. It reads no log."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.record.rows import EpochRow
from deepex.record.sinks.progress import describe_diagnosis
from deepex.report.style import PHASE_COLOURS
from deepex.report.terminal.run_state import Condition, Standing
from deepex.text import say_duration, say_list, say_plural, say_share, say_time, say_time_left, say_value
from deepex.train import checkpoint

MOST_HOSTS = 3
CURVE_WIDTH = 32
BLOCKS = "▁▂▃▄▅▆▇█"
COLOURS: Mapping[Condition, str] = {
    "starting": "cyan",
    "running": "green",
    "complete": "green",
    "stopped": "yellow",
    "silent": "red",
}


def describe_run(run: Standing) -> str:
    """What is run, on how many ranks, and where."""
    hosts = list(dict.fromkeys(place.host for place in run.places))
    where = f" on {say_list(hosts, MOST_HOSTS)}" if hosts else ""
    return f"{say_plural(run.num_ranks, 'rank')}{where}, sync {run.recipe.sync}, {run.recipe.precision}"


def describe_condition(run: Standing) -> str:
    """Whether a run goes on, and if not, where it stands and what to do."""
    if run.condition not in ("stopped", "silent"):
        return "complete, without a page yet" if run.awaits_page else run.condition
    kept = checkpoint.latest(run.folder)
    if kept is None:
        return f"{describe_halt(run)} It has no checkpoint; start it again with: deepex run {run.folder.recipe}"
    return f"{describe_halt(run)} Its checkpoint is {kept.name}; go on with: deepex resume {run.folder.path}"


def describe_halt(run: Standing) -> str:
    """Where a run that does not go on stands, and how it came to that."""
    here, kept = run.progress, checkpoint.latest(run.folder)
    where = f"after epoch {run.rows[-1].epoch}" if run.rows else "before its first step"
    if here is not None and run.is_within_epoch:
        where = f"in epoch {here.epoch}, after step {here.step:,} of {here.steps:,}"
    if run.condition == "silent":
        return f"silent {where}: nothing was written for {say_duration(run.quiet_seconds)}, maybe it died."
    if here is not None and kept and kept.name == f"epoch{here.epoch - 1:05d}_step{here.step:06d}":
        return f"stopped early {where}."
    return f"ended early {where}; its own output says why."


def describe_outcome(run: Standing) -> str:
    """The outcome of a complete run in a line."""
    summary = run.summary
    assert summary is not None, "a complete run has a summary"
    after = f"after {say_plural(summary.epochs, 'epoch')} and {say_duration(summary.seconds)}"
    return "; ".join(filter(None, (f"{summary.metric} {say_value(summary.value)} {after}", describe_target(run))))


def draw(run: Standing) -> RenderableType:
    """A run at one moment, for a terminal."""
    title = Text.assemble((run.recipe.task, "bold"), f"  {describe_run(run)}", overflow="fold")
    mark = Text(f"● {describe_condition(run)}", COLOURS[run.condition])
    parts: list[RenderableType] = [title, Text(str(run.folder.path), "dim", overflow="fold"), mark, "", _curves(run)]
    if run.rows:
        parts += ["", _phases(run.rows[-1], run.num_ranks)]
    parts += [Text(line, "yellow") for line in describe_lag(run)]
    if run.diagnosis is not None:
        few = " Few steps were timed so far." if run.diagnosis.thin else ""
        parts += ["", Text(describe_diagnosis(run.diagnosis) + few)]
    return Group(*parts)


def describe_lag(run: Standing) -> list[str]:
    """The ranks that lag, by name and host; of how many, where not all were looked at."""
    hosts = {place.rank: f" on {place.host}" for place in run.places}
    slower = [f"rank {rank}{hosts.get(rank, '')} by {say_share(share)}" for rank, share in run.lag.slower.items()]
    absent = [f"rank {rank}{hosts.get(rank, '')}" for rank in run.lag.absent]
    all_read = run.lag.num_read == run.num_ranks
    of_how_many = "" if all_read else f" ({run.lag.num_read} of {run.num_ranks:,} ranks looked at)"
    lines = []
    if slower:
        lines.append(f"slower than the median rank in their own work: {say_list(slower)}{of_how_many}")
    if absent:
        lines.append(f"without a line for epoch {run.rows[-1].epoch}: {say_list(absent)}{of_how_many}")
    return lines


def _curves(run: Standing) -> Table:
    """How far it is, and its loss, metric and speed over all epochs."""
    table = Table.grid("", "", Column(width=CURVE_WIDTH), "", padding=(0, 2))
    done = run.epochs_done
    total = done if run.condition == "complete" else run.num_epochs
    bar = ProgressBar(total=total, completed=done, width=CURVE_WIDTH, complete_style="green")
    table.add_row(
        "epoch",
        f"{math.ceil(done):,} of {run.num_epochs:,}",
        bar,
        ", ".join(filter(None, (describe_step(run), describe_time_left(run)))),
    )
    if run.rows:
        last = run.rows[-1]
        metric = last.metric if last.metric != "loss" else "held-out loss"
        speeds = [row.samples_per_second for row in run.rows]
        for name, number, values, note in (
            ("loss", say_value(last.loss), [row.loss for row in run.rows], ""),
            (metric, say_value(last.value), [row.value for row in run.rows], describe_target(run)),
            ("samples/s", f"{speeds[-1]:,.0f}", speeds, ""),
        ):
            table.add_row(name, number, Text(sparkline(values), "cyan"), note)
    return table


def describe_step(run: Standing) -> str:
    """How far it is within its epoch; nothing between two."""
    here = run.progress
    return f"step {here.step:,} of {here.steps:,}" if here is not None and run.is_within_epoch else ""


def describe_time_left(run: Standing) -> str:
    """How long it will take at most; nothing where that is not known, or nothing is left."""
    if run.condition == "running" and 0 < run.epochs_done < run.num_epochs:
        return say_time_left(run.epochs_done, run.num_epochs, run.seconds)
    return ""


def describe_target(run: Standing) -> str:
    """The target and when it was reached, or how far away it is; nothing before the run has said what it is."""
    target, summary = run.target, run.summary
    threshold = target.threshold if target else summary.target if summary else None
    if threshold is None:
        return ""
    goal = f"target {target or f'{threshold:g}'}"
    reached = next((row.epoch for row in run.rows if target and target.reached(row.value)), None)
    if summary is not None:
        reached = summary.epochs_to_target
    if reached is not None:
        return f"{goal} reached in epoch {reached}"
    if summary is not None:
        return f"{goal} not reached"
    return f"{goal}: {abs(run.rows[-1].value - threshold):.2g} to go" if target else ""


def _phases(row: EpochRow, num_ranks: int) -> Table:
    """Where an epoch's time went, by phase."""
    title = f"where epoch {row.epoch} went" + (", mean over ranks" if num_ranks > 1 else "")
    table = Table(
        "", "", Column(justify="right"), Column(justify="right"), box=None, show_header=False, padding=(0, 2, 0, 0),
        title=title, title_justify="left", title_style="dim",
    )  # fmt: skip
    seconds = row.phase_seconds
    total, longest = sum(seconds.values()) or 1.0, max(seconds.values()) or 1.0
    for name in (*STEP_PHASES, *(name for name in BESIDE_PHASES if seconds[name])):
        bar = Bar(longest, 0, seconds[name], width=CURVE_WIDTH, color=PHASE_COLOURS[name])
        spent = say_time(seconds[name]) if seconds[name] < 120 else say_duration(seconds[name])
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
