"""Where a study's runs go: ranks of this machine, or those of a launcher. It knows processes, and no measures."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from deepex.errors import UsageError
from deepex.study import parent_death_signal


class Process(Protocol):
    """A run that was started, on however many ranks."""

    def wait(self, timeout_seconds: float | None = None) -> int:
        """The exit code; subprocess.TimeoutExpired if it goes on for longer."""

    def send_signal(self, number: signal.Signals) -> None:
        """Ask all ranks to stop, or end them."""


class Executor(Protocol):
    """Starts `deepex WORDS` on some ranks; their output goes to a file."""

    def fits(self, ranks: int) -> bool:
        """Whether so many ranks have cores of their own, as far as that is known beforehand."""

    def start(self, words: Sequence[str], ranks: int, log: Path, lock: int) -> Process:
        """`lock` is an open file that the run inherits, so that the study counts as held while it lives."""


class LocalExecutor:
    """Ranks of this machine, on `cores_per_rank` cores each as far as there are so many."""

    def __init__(self, cores_per_rank: int) -> None:
        self.available = sorted(os.sched_getaffinity(0))
        self.cores_per_rank = cores_per_rank

    def fits(self, ranks: int) -> bool:
        return ranks * self.cores_per_rank <= len(self.available)

    def start(self, words: Sequence[str], ranks: int, log: Path, lock: int) -> Process:
        number = ["--ranks", str(ranks)] if words[0] == "run" else []
        # A process is born with the cores of the thread that starts it.
        os.sched_setaffinity(0, self.available[: ranks * self.cores_per_rank])
        try:
            return start_process([*deepex_command(), *words, *number], log, lock)
        finally:
            os.sched_setaffinity(0, self.available)


class LauncherExecutor:
    """Ranks that a launcher starts: srun, mpirun, jsrun, …"""

    def __init__(self, launcher: str) -> None:
        words = shlex.split(launcher)
        if shutil.which(words[0]) is None:
            raise UsageError(
                f"--launcher '{launcher}': there is no program {words[0]} on the PATH. "
                "Allowed: srun, mpirun, jsrun or any other that starts ranks. Load its module first."
            )
        self.launcher = launcher

    def fits(self, ranks: int) -> bool:
        return True  # its runs tell

    def start(self, words: Sequence[str], ranks: int, log: Path, lock: int) -> Process:
        before = [word.replace("{ranks}", str(ranks)) for word in shlex.split(self.launcher)]
        return start_process([*before, *deepex_command(), *words, *let_launcher_count(words)], log, lock)


def choose_cores_per_rank(ranks: Sequence[int]) -> int:
    """As many cores for each rank as the largest number of ranks that fits leaves to each; at least one."""
    cores = len(os.sched_getaffinity(0))
    return max(1, cores // max((number for number in ranks if number <= cores), default=cores))


def let_launcher_count(words: Sequence[str]) -> list[str]:
    """Whatever the recipe says, the launcher's number of ranks holds; a rank that does not find it stays alone."""
    return ["--ranks", "1"] if words[0] == "run" else []


def deepex_command() -> list[str]:
    """This very program."""
    return [sys.executable, "-m", "deepex"]


def start_process(command: Sequence[str], log: Path, lock: int) -> Process:
    """A command that ends with this process, whatever happens to that; what it prints goes to `log`."""
    ends_with_us = [sys.executable, "-I", "-S", parent_death_signal.__file__, str(os.getpid())]
    with open(log, "w") as output:
        started = subprocess.Popen(
            [*ends_with_us, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(lock,),
            process_group=0,  # Ctrl-C is for the study, which asks its run to stop
        )
    return _ProcessGroup(started)


class _ProcessGroup:
    """A process and all that it started in its group."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def wait(self, timeout_seconds: float | None = None) -> int:
        return self._process.wait(timeout_seconds)

    def send_signal(self, number: signal.Signals) -> None:
        if number == signal.SIGKILL:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
        else:
            self._process.send_signal(number)
