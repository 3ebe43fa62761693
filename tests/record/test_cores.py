"""A thread that shares its core with another knows how long it stood in the queue."""

import os
import subprocess
import sys
from collections.abc import Iterator
from time import perf_counter

import pytest

from deepex.record.cores import CoreWait

NEIGHBOUR = "print('here', flush=True)\nwhile True: pass"


@pytest.fixture
def neighbour() -> Iterator[None]:
    """A program that never rests, on the only core that this thread has."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    with subprocess.Popen([sys.executable, "-S", "-c", NEIGHBOUR], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        yield
        program.kill()
    os.sched_setaffinity(0, cores)


@pytest.mark.usefixtures("neighbour")
def test_the_queue_for_a_shared_core_is_timed() -> None:
    queue, start = CoreWait(), perf_counter()
    while perf_counter() - start < 0.4:
        pass
    waited = queue.take()
    assert 0.05 < waited < 0.5
    assert queue.take() < waited
