"""The runs of a study, one after the other: what is done is left alone, what fails is told, what stops can go on."""

import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time

from deepex.errors import Interrupted
from deepex.launch.signals import hand_over_signals
from deepex.record.folder import RunFolder
from deepex.record.provenance import read_record
from deepex.record.study_rows import RunState, State, read_states, write_states
from deepex.study.executor import Executor, Process
from deepex.study.folder import SECONDS_TO_SAVE, StudyFolder
from deepex.study.plan import Cell
from deepex.train import checkpoint

SECONDS_BETWEEN_UPDATES = 1.0
STOPPED = Interrupted.exit_code


@dataclass(kw_only=True)
class PlannedRun:
    """One run of a study: a cell with a seed, and how far it is, as `RunState` says."""

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

    @property
    def row(self) -> RunState:
        """What cells.json says of it."""
        cell = self.cell
        return RunState(
            name=self.name,
            cell=cell.name,
            ranks=cell.ranks,
            series=cell.series,
            settings=cell.settings,
            seed=self.seed,
            state=self.state,
            seconds=self.seconds,
            began=self.began,
            error=self.error,
            oversubscribed=self.oversubscribed,
        )


def plan_runs(
    folder: StudyFolder, cells: Sequence[Cell], seeds: Sequence[int], *, retry: bool = False, at_work: bool = False
) -> list[PlannedRun]:
    """All runs in their order, every cell once before any a second time, each as the directory shows it.

    Arguments:
        folder, cells, seeds: of the study.
        retry: whether runs that failed are to be run again.
        at_work: whether another process is at work on the study, so that what it says is running is.
    """
    known = {state.name: state for state in read_states(folder.files)}
    runs = [PlannedRun(cell=cell, seed=seed) for seed in seeds for cell in cells]
    for run in runs:
        before = known.get(run.name, run.row)
        run.seconds, run.error = before.seconds, before.error
        if is_done(folder.runs / run.name, run.cell.ranks):
            run.state, run.error = "done", ""
            run.oversubscribed = before.oversubscribed
        elif before.state == "running" and at_work:
            run.state, run.began = "running", before.began
        elif before.state == "failed" and not retry:
            run.state = "failed"
        elif (folder.runs / run.name).exists():
            run.state = "stopped"
    return runs


def is_done(path: Path, ranks: int) -> bool:
    """Whether a run has ended well, on as many ranks as it should have."""
    files = all((path / name).exists() for name in ("summary.json", "metrics.jsonl", "record.json"))
    return files and len(read_record(RunFolder(path)).places) == ranks


class Sweep:
    """Does what is left of a study.

    Arguments:
        folder: where it is.
        runs: from `plan_runs`.
        executor: where they go.
        on_progress: called about once a second, and whenever something has changed.
    """

    def __init__(
        self,
        folder: StudyFolder,
        runs: Sequence[PlannedRun],
        executor: Executor,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder, self.runs, self.executor, self.on_progress = folder, runs, executor, on_progress
        self._is_stopping = False
        self._process: Process | None = None

    def run(self, lock: int) -> None:
        """Run what is left; Interrupted if a signal came."""
        with self.folder.files.writing():
            self.folder.runs.mkdir(exist_ok=True)
            self.folder.logs.mkdir(exist_ok=True)
        with hand_over_signals(self._stop):
            for run in self.runs:
                if run.state in ("left", "stopped"):
                    self._run(run, lock)
                if self._is_stopping:
                    self._write_states()
                    raise Interrupted(f"stopped; what is done is kept. Go on with: deepex study {self.folder.path}")
        self._write_states()

    def _run(self, run: PlannedRun, lock: int) -> None:
        path, log = self.folder.runs / run.name, self.folder.logs / f"{run.name}.txt"
        words = self._command(run, path)
        begun, before = monotonic(), run.seconds if words[0] == "resume" else 0.0
        run.state, run.began, run.error = "running", time(), ""
        self._write_states()
        self._process = self.executor.start(words, run.cell.ranks, log, lock)
        if self._is_stopping:  # while it was started
            self._process.send_signal(signal.SIGTERM)
        code = self._wait(self._process)
        self._process, run.began = None, None
        run.seconds = before + monotonic() - begun
        if is_done(path, run.cell.ranks):
            run.state = "done"
        elif (path / "summary.json").exists():
            run.state = "failed"
            run.error = f"it did not run on {run.cell.ranks} ranks: deepex did not find them under its launcher"
        elif self._is_stopping or code == STOPPED:
            run.state = "stopped"
            self._is_stopping = True  # whoever stopped the run wants the study to stop
        else:
            run.state, run.error = "failed", describe_failure(log, code)
        self._write_states()

    def _command(self, run: PlannedRun, path: Path) -> list[str]:
        """The command for a run: from its beginning, or from the checkpoint that it left."""
        if path.exists():
            if (path / "record.json").exists() and checkpoint.latest(RunFolder(path)) is not None:
                return ["resume", str(path), "--quiet", "--no-page"]
            shutil.rmtree(path)  # it had nothing to keep
        recipe = str(self.folder.files.recipe)
        seed = ["--seed", str(run.seed), "--out", str(path), "--quiet", "--no-page"]
        return ["run", recipe, *run.cell.words(), *seed]

    def _wait(self, process: Process) -> int:
        """The exit code of a run; it is shown meanwhile. After a signal it has some minutes to save itself."""
        stopped_at: float | None = None
        while True:
            try:
                return process.wait(SECONDS_BETWEEN_UPDATES)
            except subprocess.TimeoutExpired:
                self.on_progress()
            if self._is_stopping:
                stopped_at = stopped_at or monotonic()
                if monotonic() - stopped_at > SECONDS_TO_SAVE:
                    process.send_signal(signal.SIGKILL)

    def _stop(self, number: signal.Signals) -> None:
        """Let the run save itself, and start no other."""
        self._is_stopping = True
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def _write_states(self) -> None:
        write_states(self.folder.files, [run.row for run in self.runs])
        self.on_progress()


def describe_failure(log: Path, code: int) -> str:
    """Why a run failed: what deepex said of it, or the last line that was printed."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    told = [line.partition("error: ")[2] for line in lines if line.startswith("deepex: error: ")]
    told = [f"{line} {lines[-1]}" if line.endswith(":") else line for line in told]  # a traceback follows
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{told[0] if told else lines[-1] if lines else 'it said nothing'} ({how})"
