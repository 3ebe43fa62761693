"""The runs of a study, one after the other: what is done is left alone, what fails is told, what stops can go on."""

import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from types import FrameType
from typing import Any, Literal

from deepex.errors import Interrupted
from deepex.record.folder import RunFolder
from deepex.study.executor import Place, Process
from deepex.study.folder import SECONDS_TO_SAVE, StudyFolder
from deepex.study.plan import Cell
from deepex.train import checkpoint

State = Literal["left", "running", "stopped", "done", "failed"]
SECONDS_BETWEEN_LOOKS = 1.0
STOPPED = Interrupted.exit_code


@dataclass(kw_only=True)
class PlannedRun:
    """One run of a study: a cell with a seed, and how far it is.

    `seconds` is how long its process took, start included; `began` is when it began, for whoever watches;
    `oversubscribed` is whether its ranks had no cores of their own.
    """

    cell: Cell
    seed: int
    state: State = "left"
    seconds: float = 0.0
    began: float | None = None
    error: str = ""
    oversubscribed: bool = False

    @property
    def name(self) -> str:
        return f"{self.cell.name}_seed{self.seed}"

    def to_json(self) -> dict[str, Any]:
        cell = self.cell
        return {
            "name": self.name,
            "cell": cell.name,
            "ranks": cell.ranks,
            "series": cell.series,
            "settings": list(cell.settings),
            "seed": self.seed,
            "state": self.state,
            "seconds": self.seconds,
            "began": self.began,
            "error": self.error,
            "oversubscribed": self.oversubscribed,
        }


def plan_runs(
    folder: StudyFolder, cells: Sequence[Cell], seeds: Sequence[int], *, retry: bool = False, at_work: bool = False
) -> list[PlannedRun]:
    """All runs in their order, every cell once before any a second time, each as the directory shows it.

    Arguments:
        folder, cells, seeds: of the study.
        retry: whether runs that failed are to be run again.
        at_work: whether another process is at work on the study, so that what it says is running is.
    """
    known = {state["name"]: state for state in folder.read_states()}
    runs = [PlannedRun(cell=cell, seed=seed) for seed in seeds for cell in cells]
    for run in runs:
        before = known.get(run.name, {})
        run.seconds, run.error = before.get("seconds", 0.0), before.get("error", "")
        if is_done(folder.runs / run.name, run.cell.ranks):
            run.state, run.error = "done", ""
            run.oversubscribed = before.get("oversubscribed", False)
        elif before.get("state") == "running" and at_work:
            run.state, run.began = "running", before.get("began")
        elif before.get("state") == "failed" and not retry:
            run.state = "failed"
        elif (folder.runs / run.name).exists():
            run.state = "stopped"
    return runs


def is_done(path: Path, ranks: int) -> bool:
    """Whether a run has ended well, on as many ranks as it should have."""
    files = all((path / name).exists() for name in ("summary.json", "metrics.jsonl", "record.json"))
    return files and len(RunFolder(path).read_json("record.json").get("places", [])) == ranks


class Sweep:
    """Does what is left of a study.

    Arguments:
        folder: where it is.
        runs: from `plan_runs`.
        place: where they go.
        look: called about once a second, and whenever something has changed.
    """

    def __init__(
        self, folder: StudyFolder, runs: Sequence[PlannedRun], place: Place, look: Callable[[], None] = lambda: None
    ) -> None:
        self.folder, self.runs, self.place, self.look = folder, runs, place, look
        self._asked = False
        self._process: Process | None = None

    def run(self, lock: int) -> None:
        """Run what is left; Interrupted if a signal came."""
        with self.folder.files.writing():
            self.folder.runs.mkdir(exist_ok=True)
            self.folder.logs.mkdir(exist_ok=True)
        with self._listening():
            for run in self.runs:
                if run.state in ("left", "stopped"):
                    self._do(run, lock)
                if self._asked:
                    self._tell()
                    raise Interrupted(f"stopped; what is done is kept. Go on with: deepex study {self.folder.path}")
        self._tell()

    def _do(self, run: PlannedRun, lock: int) -> None:
        path, log = self.folder.runs / run.name, self.folder.logs / f"{run.name}.txt"
        words = self._words(run, path)
        begun, before = monotonic(), run.seconds if words[0] == "resume" else 0.0
        run.state, run.began, run.error = "running", time(), ""
        self._tell()
        self._process = self.place.start(words, run.cell.ranks, log, lock)
        if self._asked:  # while it was started
            self._process.send_signal(signal.SIGTERM)
        code = self._wait(self._process)
        self._process, run.began = None, None
        run.seconds = before + monotonic() - begun
        if is_done(path, run.cell.ranks):
            run.state = "done"
        elif (path / "summary.json").exists():
            run.state = "failed"
            run.error = f"it did not run on {run.cell.ranks} ranks: deepex did not find them under its launcher"
        elif self._asked or code == STOPPED:
            run.state = "stopped"
            self._asked = True  # whoever stopped the run wants the study to stop
        else:
            run.state, run.error = "failed", last_words(log, code)
        self._tell()

    def _words(self, run: PlannedRun, path: Path) -> list[str]:
        """The command for a run: from its beginning, or from the checkpoint that it left."""
        if path.exists():
            if (path / "record.json").exists() and checkpoint.latest(RunFolder(path)) is not None:
                return ["resume", str(path), "--quiet", "--no-page"]
            shutil.rmtree(path)  # it had nothing to keep
        recipe = str(self.folder.files.recipe)
        seed = ["--seed", str(run.seed), "--out", str(path), "--quiet", "--no-page"]
        return ["run", recipe, *run.cell.words(), *seed]

    def _wait(self, process: Process) -> int:
        """The exit code of a run; a look at it now and then. After a signal it has some minutes to save itself."""
        asked_at: float | None = None
        while True:
            try:
                return process.wait(SECONDS_BETWEEN_LOOKS)
            except subprocess.TimeoutExpired:
                self.look()
            if self._asked:
                asked_at = asked_at or monotonic()
                if monotonic() - asked_at > SECONDS_TO_SAVE:
                    process.send_signal(signal.SIGKILL)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM asks the run to save itself; the next ends this process, and the run with it."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only a main thread receives signals
            return

        def ask(number: int, frame: FrameType | None) -> None:
            self._asked = True
            for known, handler in before.items():
                signal.signal(known, handler)
            if self._process is not None:
                self._process.send_signal(signal.SIGTERM)

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _tell(self) -> None:
        self.folder.write_states([run.to_json() for run in self.runs])
        self.look()


def last_words(log: Path, code: int) -> str:
    """Why a run failed: what deepex said of it, or the last line that was printed."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    told = [line.partition("error: ")[2] for line in lines if line.startswith("deepex: error: ")]
    told = [f"{line} {lines[-1]}" if line.endswith(":") else line for line in told]  # a traceback follows
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{told[0] if told else lines[-1] if lines else 'it said nothing'} ({how})"
