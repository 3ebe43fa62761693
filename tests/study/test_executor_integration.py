"""Processes that a study starts: asked to stop, killed, and left alone by the one that started them."""

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from deepex.errors import UsageError
from deepex.study.executor import LauncherExecutor, LocalExecutor, Process, choose_cores_per_rank, start_process
from tests.interpreter import PYTHON

READY = "import os, signal; print(os.getpid(), flush=True); signal.pause()"


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[int]:
    with open(tmp_path / "lock", "w") as file:
        yield file.fileno()


def read_number(log: Path, process: Process) -> int:
    """The process that has printed its number, once it has."""
    while not log.read_text().endswith("\n"):
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"it ended before it was ready, with exit code {process.wait(0.05)}")
    return int(log.read_text())


def has_ended(number: int) -> bool:
    """Whether a process has ended, or does within a minute."""
    try:
        watched = os.pidfd_open(number)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], 60.0)[0])
    finally:
        os.close(watched)


def test_the_cores_of_this_machine_are_shared_out() -> None:
    cores = len(os.sched_getaffinity(0))
    assert choose_cores_per_rank([1, cores]) == 1
    assert choose_cores_per_rank([1]) == cores
    assert choose_cores_per_rank([cores + 1]) == 1
    assert LocalExecutor(1).fits(cores)
    assert not LocalExecutor(1).fits(cores + 1)


def test_a_launcher_that_is_not_there_is_named_with_the_cure() -> None:
    with pytest.raises(UsageError, match=r"no program nosuch on the PATH.* Load its module first"):
        LauncherExecutor("nosuch -n {ranks}")


def test_a_process_is_asked_to_stop_and_ends(tmp_path: Path, lock: int) -> None:
    process = start_process([PYTHON, "-c", READY], tmp_path / "log.txt", lock)
    read_number(tmp_path / "log.txt", process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM


def test_killing_takes_along_what_a_process_has_started(tmp_path: Path, lock: int) -> None:
    command = ["sh", "-c", f"{PYTHON} -c '{READY}'; true"]
    process = start_process(command, tmp_path / "log.txt", lock)
    inner = read_number(tmp_path / "log.txt", process)
    process.send_signal(signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    assert has_ended(inner)


def test_a_process_gets_sigterm_when_the_one_that_started_it_dies(tmp_path: Path) -> None:
    program = f"""
import os, subprocess, sys
from pathlib import Path
from deepex.study.executor import start_process
lock = open("lock", "w")
started = start_process([sys.executable, "-c", {READY!r}], Path("log.txt"), lock.fileno())
while not Path("log.txt").read_text():
    try:
        started.wait(0.05)
    except subprocess.TimeoutExpired:
        pass
os._exit(0)
"""
    subprocess.run([PYTHON, "-c", program], cwd=tmp_path, check=True, timeout=100)
    assert has_ended(int((tmp_path / "log.txt").read_text()))
