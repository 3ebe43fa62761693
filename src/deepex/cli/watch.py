"""`deepex watch`: follow a run or a study from any shell that sees its directory."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group

from deepex.errors import UsageError
from deepex.record.folder import RunFolder
from deepex.record.sinks.progress import News, describe_epoch
from deepex.record.sinks.tensorboard import EventLog
from deepex.record.study_rows import read_states
from deepex.report.terminal.follow import View, follow
from deepex.report.terminal.run_state import RunReader, Standing
from deepex.report.terminal.run_view import describe_condition, describe_outcome, describe_run, draw
from deepex.report.terminal.study_view import StudyNews, find_running, is_over, show_study, tell_progress
from deepex.study import is_study

PLAIN_WIDTH = 120  # where there is no terminal to ask


def watch(
    path: Annotated[Path, typer.Argument(metavar="RUN|STUDY", help="The directory of a run or a study.")],
    once: Annotated[bool, typer.Option("--once", help="Print how it stands once, and end.")] = False,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write TensorBoard's event files here too, as epochs come.")
    ] = None,
) -> None:
    """Show how a run or a study stands, until it is complete: progress, curves, phases, ranks that lag, what bounds it.

    It reads files and nothing else. Ctrl-C ends the watching, not what is watched.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    if tensorboard is not None and is_study(path):
        raise UsageError(f"--tensorboard with the study {path}. Allowed: a run. Choose one in {path / 'runs'}.")
    with watch_study(path) if is_study(path) else watch_run(path, tensorboard) as look:
        follow(console, look, once)


@contextmanager
def watch_study(path: Path) -> Iterator[Callable[[], View]]:
    """How to look at a study: the table of its runs, and the one that is running."""
    news = StudyNews(path)

    def look() -> View:
        running = find_running(path)
        drawing = show_study(path)
        if running is not None:
            drawing = Group(drawing, "", draw(RunReader(RunFolder.open(running)).read()))
        states, page = read_states(RunFolder(path)), path / "report.html"
        ended = is_over(states) and page.exists()
        return View(
            drawing=drawing, news=news.hear(), ending=[tell_progress(states), f"page: {page}"] if ended else None
        )

    yield look


@contextmanager
def watch_run(path: Path, tensorboard: Path | None) -> Iterator[Callable[[], View]]:
    """How to look at a run; what comes is written for TensorBoard too, if a folder is given for it."""
    reader, news = RunReader(RunFolder.open(path)), RunNews()
    record = reader.read().record
    started = record.started if record is not None else ""
    log = None if tensorboard is None else EventLog(tensorboard, path.resolve().name, started)

    def look() -> View:
        run = reader.read()
        if log is not None:
            log.add(run.rows)
        return View(drawing=draw(run), news=news.hear(run), ending=_end(run))

    with nullcontext() if log is None else closing(log):
        yield look


class RunNews:
    """What is new of a run since the look before, in lines: an epoch each, and when it stops or goes on."""

    def __init__(self) -> None:
        self._bounds, self._condition, self._last_epoch = News(), "", 0

    def hear(self, run: Standing) -> list[str]:
        lines = [] if self._condition else [f"{run.recipe.task}: {describe_run(run)}"]
        for row in run.rows:
            if row.epoch > self._last_epoch:
                lines.append(describe_epoch(row, run.num_epochs, str(run.target or "")))
                lines += [bound] if (bound := self._bounds.hear(row)) else []
        self._last_epoch = run.rows[-1].epoch if run.rows else 0
        if run.condition != self._condition:
            self._condition = run.condition
            lines.append(describe_condition(run))
        return lines


def _end(run: Standing) -> list[str] | None:
    """The last words on a run that is complete and has its page, or has waited for it long enough."""
    if run.summary is None or run.awaits_page:
        return None
    page = run.folder.page
    return [describe_outcome(run), *([f"page: {page}"] if page.exists() else [])]
