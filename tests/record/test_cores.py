"""A thread that shares its core with another knows how long it stood in the queue."""

import subprocess
import sys

BESIDE_A_NEIGHBOUR = """
import os, signal
from time import perf_counter
from deepex.record.cores import CoreWait

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
neighbour = os.fork()
while neighbour == 0:
    pass
queue, start = CoreWait(), perf_counter()
while perf_counter() - start < 0.5:
    pass
print(queue.take(), queue.take())
os.kill(neighbour, signal.SIGKILL)
"""


def test_the_queue_for_a_shared_core_is_timed() -> None:
    done = subprocess.run([sys.executable, "-c", BESIDE_A_NEIGHBOUR], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    waited, since = map(float, done.stdout.split())
    assert 0.05 < waited < 0.6
    assert since < waited
