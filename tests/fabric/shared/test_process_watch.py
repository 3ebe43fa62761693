import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepex.fabric.shared.process_watch import ProcessWatch


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until its input ends."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield process


def end(child: subprocess.Popen[bytes]) -> None:
    """Let it end, and leave it as a zombie: its parent does not ask for its exit code yet."""
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize("is_watched", [True, False], ids=["by descriptor", "by /proc"])
def test_a_process_has_ended_before_and_after_its_parent_has_noticed(
    child: subprocess.Popen[bytes], is_watched: bool
) -> None:
    watch = ProcessWatch([child.pid] if is_watched else [])
    assert not watch.has_ended(child.pid)
    end(child)
    assert watch.has_ended(child.pid)
    child.wait()
    assert watch.has_ended(child.pid)
    watch.close()


def test_a_process_that_was_never_there_has_ended() -> None:
    largest = int(Path("/proc/sys/kernel/pid_max").read_text())
    assert ProcessWatch([largest + 1]).has_ended(largest + 1)


def test_it_closes_what_it_has_opened(child: subprocess.Popen[bytes]) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # a number is what is compared
    watch = ProcessWatch([child.pid, os.getpid()])
    assert len(os.listdir("/proc/self/fd")) == before + 2  # noqa: PTH208
    watch.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert not watch.has_ended(child.pid)
