"""Runs and studies in the output of a cell while they go on: one output each, updated in place from their files."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from deepex.errors import Interrupted, RunFolderError
from deepex.notebook import Output, in_notebook
from deepex.record.folder import RunFolder
from deepex.record.sinks.progress import FOLLOWER, Verbosity
from deepex.record.study_rows import STUDY_FILE, read_study
from deepex.report.notebook.run_card import Mark, describe, draw_run
from deepex.report.notebook.study_card import describe_states, draw_states, draw_study
from deepex.report.terminal.run_state import RunReader, Standing

SECONDS_BETWEEN_LOOKS = 0.5
LOOKS_SHARE = 0.02  # of the time may go into looking, where a run of this process computes beside it


@contextmanager
def showing_run(verbosity: Verbosity) -> Iterator[Callable[[RunFolder], None]]:
    """What to call once a run's directory is there: with `notebook`, it is then shown until the block ends.

    A rank that a notebook started names the directory to that notebook, which shows it.
    """
    if verbosity != "notebook":
        yield lambda folder: None
    elif not in_notebook():
        yield _name_to_follower
    else:
        with closing_live(LiveRuns()) as live:
            yield live.add


@contextmanager
def showing_runs_of_ranks() -> Iterator[None]:
    """Show the runs of processes that are started inside the block from a notebook; elsewhere nothing changes."""
    if not in_notebook():
        yield
        return
    with TemporaryDirectory(prefix="deepex-") as folder:
        names = Path(folder) / "runs"
        names.touch()
        os.environ[FOLLOWER] = str(names)
        try:
            with closing_live(LiveRuns(names)):
                yield
        finally:
            os.environ.pop(FOLLOWER, None)  # another thread may have launched beside this one


def _name_to_follower(folder: RunFolder) -> None:
    with open(os.environ[FOLLOWER], "a") as file:
        file.write(f"{folder.path.resolve()}\n")


@contextmanager
def closing_live(live: "LiveRuns") -> Iterator["LiveRuns"]:
    """Show how runs have ended, however that was."""
    try:
        yield live
    except (Interrupted, KeyboardInterrupt):
        live.close("stopped")
        raise
    except BaseException:
        live.close("failed")
        raise
    live.close("stopped")


class LiveRuns:
    """Outputs that follow runs, one each, on a thread of their own.

    Arguments:
        names: a file in which other processes name their runs.
    """

    def __init__(self, names: Path | None = None) -> None:
        self.names = names
        self.runs: dict[Path, LiveRun] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="deepex-notebook", daemon=True)
        self._thread.start()

    def add(self, folder: RunFolder) -> None:
        """Follow a run from here on."""
        live = LiveRun(folder)
        live.look()
        self.runs[folder.path] = live

    def close(self, mark: Mark) -> None:
        """Show each run as it has ended; `mark` is how those stand that are not complete."""
        self._over.set()
        self._thread.join()
        self._look_for_runs()
        for run in self.runs.values():
            run.look(mark)

    def _follow(self) -> None:
        seconds = SECONDS_BETWEEN_LOOKS
        while not self._over.wait(seconds):
            began = perf_counter()
            self._look_for_runs()
            for run in list(self.runs.values()):
                run.look()
            seconds = max(SECONDS_BETWEEN_LOOKS, (perf_counter() - began) / LOOKS_SHARE)

    def _look_for_runs(self) -> None:
        named = self.names.read_text().splitlines() if self.names is not None else []
        here = Path.cwd()
        for path in map(Path, named):
            place = path.relative_to(here) if path.is_relative_to(here) else path
            if place not in self.runs:
                self.add(RunFolder(place))


class LiveRun:
    """One run in one output."""

    def __init__(self, folder: RunFolder) -> None:
        self.reader, self.output = RunReader(folder), Output()

    def look(self, ended: Mark | None = None) -> None:
        """Show the run as its files tell it now; `ended` is how it stands if it is over, but not complete.

        Of one whose directory can't be read, what was shown before stays.
        """
        with suppress(RunFolderError):
            run = self.reader.read()
            mark = _judge(run, ended)
            self.output.show(draw_run(run, mark), describe(run, mark))


def _judge(run: Standing, ended: Mark | None) -> Mark:
    """How a run stands that this process or its children are at; files may still tell of an earlier part of it."""
    if run.summary is not None:
        return "complete"
    return ended or ("running" if run.condition == "running" else "starting")


@contextmanager
def showing_study(path: Path, verbosity: Verbosity) -> Iterator[Callable[[], None]]:
    """What to call about once a second while a study goes on; with `notebook`, its output ends as what it found."""
    if verbosity != "notebook":
        yield lambda: None
        return
    output = Output()

    def look() -> None:
        output.show(draw_states(path), describe_states(path))

    try:
        yield look
    finally:
        if (path / STUDY_FILE).exists():
            output.show(draw_study(read_study(RunFolder(path)), path), describe_states(path))
