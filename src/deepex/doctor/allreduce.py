"""All-reduce between two ranks of this machine, by each fabric: whether it works, and how fast.

The ranks are processes of their own (allreduce_rank.py). They can't hang this one: it ends them when their time is up.
"""

import json
import subprocess
import sys
from time import monotonic
from typing import Any

from torch._C._distributed_c10d import TCPStore  # torch.distributed leaves it out of its types

from deepex.doctor.machine import AllReduceTime, FabricCheck, rounded

FABRICS = ("torch", "shared")  # mpi's ranks need MPI's own launcher
NUM_RANKS = 2
REPEATS = {4 * 2**10: 100, 64 * 2**10: 100, 2**20: 40, 8 * 2**20: 15, 64 * 2**20: 7}  # bytes of the buffer: times
COLLECTIVE_SECONDS = 10.0
TOTAL_SECONDS = 25.0


def check_fabric(name: str, timeout_seconds: float = TOTAL_SECONDS) -> FabricCheck:
    """Start two ranks that average buffers of five sizes; medians of what they tell, or the reason why they can't."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    end = monotonic() + timeout_seconds
    command = [sys.executable, "-m", "deepex.doctor.allreduce_rank", name, f"127.0.0.1:{store.port}"]
    ranks = [
        subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in range(NUM_RANKS)
    ]
    try:
        told = [_hear(rank, end - monotonic()) for rank in ranks]
    except subprocess.TimeoutExpired:
        told = [{"error": f"its ranks were not done within {timeout_seconds:g} s", "peer": False}]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    errors = sorted((answer for answer in told if "error" in answer), key=lambda answer: bool(answer["peer"]))
    if errors:
        return FabricCheck(name=name, ranks=NUM_RANKS, reason=errors[0]["error"], times=())
    times = tuple(_time(int(size), seconds) for size, seconds in told[0]["median_seconds"].items())
    return FabricCheck(name=name, ranks=NUM_RANKS, reason=None, times=times)


def _hear(rank: "subprocess.Popen[str]", seconds: float) -> dict[str, Any]:
    """A rank's last line: its medians or its error; of a rank that died without one, what else it said."""
    out, complaints = rank.communicate(timeout=max(0.0, seconds))
    if out:
        return dict(json.loads(out.splitlines()[-1]))
    last = (complaints.strip().splitlines() or ["without a word"])[-1]
    return {"error": f"a rank ended with exit code {rank.returncode}: {last}", "peer": False}


def _time(num_bytes: int, seconds: float) -> AllReduceTime:
    rate = rounded(num_bytes / seconds / 1e9)
    return AllReduceTime(bytes=num_bytes, median_seconds=rounded(seconds), gb_per_second=rate)
