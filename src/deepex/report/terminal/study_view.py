"""A study in the terminal: which runs are done, running and left, and how long it will take. It reads files only."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from time import time

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from deepex.record.folder import RunFolder
from deepex.record.logs import read_last_row
from deepex.record.rows import EPOCHS_FILE, EpochRow
from deepex.record.study_rows import RunState, read_states
from deepex.text import say_duration, say_plural

STYLES = {"done": "green", "running": "bold cyan", "left": "dim", "stopped": "yellow", "failed": "bold red"}


def is_over(states: Sequence[RunState]) -> bool:
    """Whether nothing is left to do."""
    return bool(states) and all(state.state in ("done", "failed") for state in states)


def show_study(path: Path) -> RenderableType:
    """The table of a study, and what is left."""
    states = read_states(RunFolder(path))
    if not states:
        return Text(f"{path.name}: no run has begun yet")
    seeds = list(dict.fromkeys(state.seed for state in states))
    table = Table(box=None, padding=(0, 2, 0, 0), title=f"study {path.name}", title_justify="left")
    table.add_column("ranks", justify="right")
    table.add_column("sync")
    for seed in seeds:
        table.add_column(f"seed {seed}")
    ordered = sorted(states, key=lambda state: (state.ranks, state.series, state.settings, state.seed))
    for _, runs in groupby(ordered, key=lambda state: state.cell):
        row = list(runs)
        mark = Text("  more ranks than cores", style="red") if row[0].oversubscribed else Text("")
        name = Text(", ".join([row[0].series or "alone", *row[0].settings])).append_text(mark)
        table.add_row(str(row[0].ranks), name, *(tell_run(path, state) for state in row))
    failures = [Text(f"{each.name} failed: {each.error}", style="red") for each in states if each.error]
    return Group(table, *failures, Text(tell_progress(states)))


def tell_progress(states: Sequence[RunState]) -> str:
    """One line: how many runs are done and left, and the time it will take.

    >>> first = RunState(name="a_seed0", cell="a", ranks=1, seed=0, state="done", seconds=30.0)
    >>> second = RunState(name="a_seed1", cell="a", ranks=1, seed=1, state="left")
    >>> tell_progress([first, second])
    '1 of 2 runs done, 1 left; about 30.0 s to go'
    """
    counts = {kind: sum(state.state == kind for state in states) for kind in STYLES}
    told = [f"{counts['done']} of {len(states)} runs done"]
    told += [f"{count} {kind}" for kind, count in counts.items() if count and kind != "done"]
    seconds = guess_seconds_left(states)
    return ", ".join(told) + (f"; about {say_duration(seconds)} to go" if seconds else "")


def guess_seconds_left(states: Sequence[RunState]) -> float | None:
    """What is left, by runs of the same cell that are done, or else by all that are; None if nothing tells."""
    done = [state for state in states if state.state == "done" and state.seconds]
    if not done:
        return None
    total = 0.0
    for state in states:
        if state.state in ("done", "failed"):
            continue
        same = [each.seconds for each in done if each.cell == state.cell] or [each.seconds for each in done]
        spent = time() - state.began if state.began else 0.0
        total += max(0.0, sum(same) / len(same) - spent)
    return total


class StudyNews:
    """What is new of a study since the look before, a line for each run that has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, str] = {}

    def hear(self) -> list[str]:
        lines, states = [], read_states(RunFolder(self.path))
        for state in states:
            if self._known.get(state.name, "left") != state.state:
                self._known[state.name] = state.state
                rest = "" if state.state == "running" or is_over(states) else f"  [{tell_progress(states)}]"
                lines.append(f"{state.name}: {tell_run(self.path, state).plain}{rest}")
                lines += [f"  {state.error}"] if state.error else []
        return lines


def find_running(path: Path) -> Path | None:
    """The directory of the run that a study is at, if that has begun."""
    names = [state.name for state in read_states(RunFolder(path)) if state.state == "running"]
    folder = path / "runs" / names[0] if names else None
    return folder if folder is not None and (folder / "record.json").exists() else None


def tell_run(path: Path, run: RunState) -> Text:
    """How far a run of a study is, and what it has learned."""
    kind, text = run.state, str(run.state)
    if kind in ("done", "running", "stopped"):
        folder = RunFolder(path / "runs" / run.name)
        if row := read_last_row(folder.path / EPOCHS_FILE):
            last = folder.understand(EPOCHS_FILE, EpochRow.read, row)
            epochs = f"epoch {last.epoch}" if kind != "done" else say_plural(last.epoch, "epoch")
            text = f"{kind}, {epochs}, {last.metric} {last.value:.4f}"
    if kind == "done":
        text += f", {say_duration(run.seconds)}"
    return Text(text, style=STYLES[kind])
