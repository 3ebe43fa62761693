"""The program of one rank of the all-reduce check: `python -m deepex.doctor.allreduce_rank FABRIC HOST:PORT RANK`.

Its last line is JSON: the median seconds of each size, the slower rank's of each round, or an error.
"""

import json
import sys
from statistics import median
from time import perf_counter
from typing import Any

import torch

from deepex.doctor.allreduce import COLLECTIVE_SECONDS, NUM_RANKS, REPEATS
from deepex.errors import DeepexError, PeerError, TrainingError
from deepex.fabric import FABRICS, Fabric, Rendezvous
from deepex.launch.rank import count_threads, leave, share_cores
from deepex.world import World


def main() -> None:
    """Measure, print one line, and end without waiting for anyone."""
    name, address, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
    world = World(rank=rank, size=NUM_RANKS, local_rank=rank, local_size=NUM_RANKS, launcher="doctor")
    answer: dict[str, Any]
    try:
        rendezvous = Rendezvous(world, address=address, agent_store=True, timeout_seconds=COLLECTIVE_SECONDS)
        fabric = FABRICS[name](rendezvous)
        torch.set_num_threads(count_threads(share_cores(fabric)))
        answer = {"median_seconds": {size: _time(fabric, size, repeats) for size, repeats in REPEATS.items()}}
        fabric.gather(None)  # a rank that left early would look dead to the other
    except DeepexError as error:
        answer = {"error": str(error), "peer": isinstance(error, PeerError)}
    print(json.dumps(answer))
    leave(1 if "error" in answer else 0)


def _time(fabric: Fabric, num_bytes: int, repeats: int) -> float:
    """Median seconds to average a buffer over the ranks; a wrong mean is an error."""
    buffer = fabric.empty(num_bytes // 4).fill_(float(fabric.world.rank))
    fabric.mean_(buffer).wait()
    rounds = []
    for _ in range(repeats):
        start = perf_counter()
        fabric.mean_(buffer).wait()
        rounds.append(perf_counter() - start)
    wanted = (fabric.world.size - 1) / 2
    if not bool((buffer == wanted).all()):
        raise TrainingError(f"the mean of {num_bytes} bytes came out wrong. Do not train with this fabric here.")
    return float(median(max(both) for both in zip(*fabric.gather(rounds), strict=True)))


if __name__ == "__main__":
    main()
