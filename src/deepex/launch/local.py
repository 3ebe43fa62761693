"""Local ranks, started and watched by torch's elastic agent."""

import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from deepex import errors
from deepex.errors import DeepexError, Interrupted, PeerError, TrainingError
from deepex.record.folder import RunFolder
from deepex.record.rows import SUMMARY_FILE
from deepex.record.sinks.progress import Verbosity
from deepex.train import checkpoint

CURES = {
    "SIGKILL": "Memory may have run out: use a smaller data.batch or data.memory_gib, or fewer ranks.",
    "SIGBUS": "A file was cut off or its disk failed while it was read: look at it with deepex data check.",
}
SECONDS_TO_SAVE = 300  # how long a stopped rank may take to write its checkpoint


def start_local_ranks(folder: RunFolder, num_ranks: int, verbosity: Verbosity) -> None:
    """Run the recipe in `folder` on this machine with `num_ranks` ranks; an error of a rank is raised here."""
    try:
        start_ranks(["-m", "deepex.launch", "run", str(folder.path), verbosity], num_ranks)
    except SignalException as signalled:
        if not (folder.path / SUMMARY_FILE).exists():  # else the signal came when the last step was done
            raise _stopped(folder, signalled) from None


def start_ranks(words: Sequence[str], num_ranks: int) -> None:
    """Run the interpreter with these words on this machine as `num_ranks` ranks, and wait for them.

    An error of a rank is raised here, and a SignalException when this process is signalled, once ranks have ended.
    """
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_ranks,
        run_id=secrets.token_hex(8),
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        max_restarts=0,
        shutdown_timeout=SECONDS_TO_SAVE,
    )
    for module in ("", ".agent.server.api"):  # errors and signals are told below, once
        logging.getLogger(f"torch.distributed.elastic{module}").setLevel(logging.CRITICAL)
    try:
        with _handlers_put_back(), _environment_for(num_ranks):
            elastic_launch(config, sys.executable)(*words)
    except ChildFailedError as failed:
        raise _first_cause(list(failed.failures.values())) from None


@contextmanager
def _environment_for(num_ranks: int) -> Iterator[None]:
    """What ranks inherit: threads, and where this process finds modules, so that they find a user's own too."""
    threads = max(1, len(os.sched_getaffinity(0)) // num_ranks)
    ours = {
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),  # else the agent sets 1 and says so
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
    }
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def _handlers_put_back() -> Iterator[None]:
    """Signals do afterwards what they did before: torch's agent leaves handlers of its own."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


def _stopped(folder: RunFolder, signalled: SignalException) -> Interrupted:
    path = checkpoint.latest(folder)
    if path is None:
        return Interrupted(f"stopped by {signalled.sigval.name} before there was anything to keep. Start it again.")
    return Interrupted(f"stopped; the checkpoint is {path}. Go on with: deepex resume {folder.path}")


def _first_cause(failures: list[ProcessFailure]) -> DeepexError:
    """The error to show: one that names its own cause, rather than one that tells of a peer's."""
    raised = sorted((_raised(failure) for failure in failures), key=lambda error: isinstance(error, PeerError))
    return raised[0]


def _raised(failure: ProcessFailure) -> DeepexError:
    """A rank's error as it was raised there."""
    told: Any = failure.error_file_data.get("message", {}) if failure.error_file_data else {}
    details = told.get("extraInfo", {}) if isinstance(told, dict) else {}
    kind = getattr(errors, details.get("kind", ""), None)
    if kind is not None:
        error: DeepexError = kind(told["message"])
        return error
    if details.get("py_callstack"):
        return TrainingError(f"rank {failure.local_rank} failed in the task's own code:\n{details['py_callstack']}")
    if failure.exitcode < 0:
        name = failure.signal_name()
        return TrainingError(f"rank {failure.local_rank} was killed by {name}. {CURES.get(name, 'Try again.')}")
    return PeerError(f"rank {failure.local_rank} ended with exit code {failure.exitcode}.")
