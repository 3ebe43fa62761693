"""A run as a card for the output of a cell: where it stands while it goes on, its outcome when it is complete.

It draws what `RunReader` found, and reads no file.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from html import escape
from typing import Literal

from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.record.rows import Diagnosis
from deepex.record.sinks.progress import describe_epoch
from deepex.report.html import typeset
from deepex.report.notebook import elements as html
from deepex.report.terminal.run_state import Condition, Standing
from deepex.report.terminal.run_view import (
    describe_halt,
    describe_lag,
    describe_outcome,
    describe_run,
    describe_step,
    describe_target,
    describe_time_left,
)
from deepex.text import say_duration, say_figure, say_ratio, say_value
from deepex.train import checkpoint

Mark = Condition | Literal["failed"]
COLOURS: Mapping[Mark, str] = {
    "starting": html.BUSY,
    "running": html.BUSY,
    "complete": html.GOOD,
    "stopped": html.OPEN,
    "silent": html.BAD,
    "failed": html.BAD,
}


def draw_run(run: Standing, mark: Mark | None = None) -> str:
    """A run at one moment, as HTML.

    Arguments:
        run: from `RunReader`.
        mark: how it stands, told by who has started it; what stopped it is then told there too.
    """
    is_own, condition = mark is not None, mark or run.condition
    parts = [html.show_title(run.recipe.task, describe_run(run), condition, COLOURS[condition])]
    parts.append(html.show_tiles(_find_tiles(run, condition)))
    if condition in ("starting", "running") and _num_epochs(run):
        parts.append(html.show_bar(run.epochs_done / _num_epochs(run)))
    if run.rows:
        parts += [_show_curve(run), html.show_phases(_add_up(run))]
    parts += [html.show_text(line, f"color:{html.OPEN}") for line in describe_lag(run)]
    if run.diagnosis is not None:
        parts.append(_show_diagnosis(run.diagnosis))
    if condition in ("stopped", "silent") and not is_own:
        halt = describe_halt(run)
        parts.append(html.show_line(f"{typeset(halt[:1].upper() + halt[1:])} {_say_how_to_go_on(run)}"))
    if run.progress is not None:
        parts.append(html.show_hidden("notes", run.progress.said))
    return html.show_card(*parts, _show_end(run))


def describe(run: Standing, mark: Mark | None = None) -> str:
    """A run at one moment in a line, for those who see no HTML; `mark` as above."""
    if run.summary is not None:
        told = describe_outcome(run)
    elif run.rows:
        last = describe_epoch(run.rows[-1], _num_epochs(run), str(run.target or "")).strip()
        told = f"{mark or run.condition}, {last}"
    else:
        told = mark or run.condition
    return f"{run.recipe.task}, {describe_run(run)}: {told}"


def _num_epochs(run: Standing) -> int:
    """How many there are at most; 0 where a loop of the user's own has not said so."""
    return run.num_epochs if run.progress is None or run.progress.epochs else 0


def _find_tiles(run: Standing, condition: Mark) -> list[tuple[str, str]]:
    """The figures that matter most, with their words."""
    total, tiles = _num_epochs(run), []
    if run.rows:
        last = run.rows[-1]
        goal = describe_target(run)
        tiles.append((say_value(last.value), f"{last.metric}, {goal}" if goal else last.metric))
        if last.metric != "training_loss":
            tiles.append((say_value(last.loss), "training loss"))
    done = math.ceil(run.epochs_done)
    if condition == "complete" or not total:
        tiles.append((f"{done:,}", "epoch" if done == 1 else "epochs"))
    else:
        tiles.append((f"{done:,} of {total:,}", ", ".join(filter(None, ("epoch", describe_step(run))))))
    if run.rows:
        speed = run.summary.samples_per_second if run.summary else run.rows[-1].samples_per_second
        tiles.append((say_figure(speed), "samples/s"))
    if run.seconds:
        left = describe_time_left(run) if condition == "running" and total else ""
        tiles.append((say_duration(run.seconds), left or "of training"))
    return tiles


def _show_curve(run: Standing) -> str:
    metric, first, last = run.rows[-1].metric, run.rows[0].epoch, run.rows[-1].epoch
    threshold = run.target.threshold if run.target else run.summary.target if run.summary else None
    goal = "" if threshold is None else "; dashed: the target"
    caption = f"{metric}, epochs {first} to {last}{goal}"
    return html.show_curve([row.value for row in run.rows], threshold, caption)


def _add_up(run: Standing) -> Mapping[str, float]:
    """Seconds by phase over all epochs, the mean over ranks."""
    if run.summary is not None:
        seconds = run.summary.phase_seconds
    else:
        seconds = sum((Counter(row.phase_seconds) for row in run.rows), start=Counter())
    return {name: seconds[name] for name in STEP_PHASES + BESIDE_PHASES if name in seconds}


def _show_diagnosis(found: Diagnosis) -> str:
    shown = f"{typeset(found.verdict)}{' Few steps were timed.' if found.thin else ''}"
    if found.advice:
        best = found.advice[0]
        gain = typeset(f"(about {say_ratio(best.gain)} the samples/s)")
        shown += f" What would help most: {html.show_code(in_python(best.change))} {gain}."
    return html.show_line(shown)


def in_python(change: str) -> str:
    """A change of a run as arguments of Python; words stay as they are.

    >>> in_python("--ranks 2 --sync local:8"), in_python("data.batch=128"), in_python("data.memory_gib=2")
    ('ranks=2, sync="local:8"', 'batch_size=128', 'settings={"data.memory_gib": 2}')
    >>> in_python("give each rank cores of its own")
    'give each rank cores of its own'
    """
    if options := re.fullmatch(r"((?:--\w+ [^\s,]+ ?)+)(.*)", change):
        pairs = re.findall(r"--(\w+) (\S+)", options[1])
        return ", ".join(f"{name}={_quote(value)}" for name, value in pairs) + options[2]
    if setting := re.fullmatch(r"(\w+\.\w+)=(\S+)", change):
        key, value = setting[1], _quote(setting[2])
        return f"batch_size={value}" if key == "data.batch" else f'settings={{"{key}": {value}}}'
    return change


def _quote(value: str) -> str:
    return value if re.fullmatch(r"[\d.]+", value) else f'"{value}"'


def _say_how_to_go_on(run: Standing) -> str:
    path, is_loop = run.folder.path, run.recipe.code.endswith(".py")
    if checkpoint.latest(run.folder) is None:
        return "It has no checkpoint: start it again."
    how = f'dx.start(resume="{path}")' if is_loop else f'dx.resume_run("{path}")'
    return f"Go on with {html.show_code(how)}"


def _show_end(run: Standing) -> str:
    """The page, the model and the directory, as far as they are there."""
    parts = [html.show_link(run.folder.page, "the page of the run")] if run.folder.page.exists() else []
    if run.summary is not None:
        is_loop = run.recipe.code.endswith(".py")
        how = f'dx.load("{run.folder.path}", model=…)' if is_loop else "run.model()"
        parts.append(f"the model: {html.show_code(how)}")
    parts.append(f'<span style="{html.DIM};overflow-wrap:anywhere">{escape(str(run.folder.path))}</span>')
    return html.show_line(" · ".join(parts), "font-size:12px")
