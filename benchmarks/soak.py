"""Kill ranks at random moments, in every strategy, and see that nobody hangs: `make soak`.

Three ranks train for real. One of them, drawn at random, is killed at a random moment. All others must end within the
timeout with an error that names the rank and its host. `python benchmarks/soak.py --kills 3 allreduce` tries less.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from deepex.testing.ranks import start_ranks

STRATEGIES = (
    "allreduce",
    "local:4",
    "local:epoch",
    "background:4",
    "lagged",
    "hierarchical(allreduce,local:4)",
    "hybrid:3",
    "hybrid:2,place=own",
    "async",
    "auto",
    "allreduce+bf16",
    "local:4+topk:0.01",
    "allreduce+powersgd:2",
)
NUM_RANKS = 3
TIMEOUT_SECONDS = 15.0
SPARE_SECONDS = 15.0  # to name who is gone and to leave, on a machine with more ranks than cores


def main() -> None:
    """Try all strategies, print a line for each kill, and end with 1 if any of them went wrong."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("strategies", nargs="*", default=STRATEGIES)
    arguments.add_argument("--kills", type=int, default=20)
    arguments.add_argument("--fabric", default="auto")
    arguments.add_argument("--seed", type=int, default=0)
    asked = arguments.parse_args()
    drawn = random.Random(asked.seed)  # noqa: S311  # moments, not secrets
    problems = 0
    for sync in asked.strategies:
        slowest = 0.0
        for number in range(asked.kills):
            victim, seconds = drawn.randrange(NUM_RANKS), drawn.uniform(0.0, 6.0)
            took, problem = kill(sync, asked.fabric, victim, seconds)
            slowest, problems = max(slowest, took), problems + bool(problem)
            if problem:
                print(f"{sync}, kill {number + 1}: rank {victim} after {seconds:.1f} s: {problem}", flush=True)
        print(f"{sync:34} {asked.kills} kills, others gone within {slowest:.1f} s of {TIMEOUT_SECONDS:g}", flush=True)
    sys.exit(1 if problems else 0)


def kill(sync: str, fabric: str, victim: int, seconds: float) -> tuple[float, str]:
    """Train, kill one rank `seconds` after the first step; how long the others took to end, and what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        settings = [f"world.timeout_seconds={TIMEOUT_SECONDS:g}", "stop.epochs=100000", "stop.target=0.0001"]
        command = [sys.executable, "-m", "deepex", "run", "protein", "--sync", sync, "--fabric", fabric]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ranks = start_ranks([*command, "--out", str(out), *settings], NUM_RANKS, environment, Path(folder))
        try:
            if not _wait_for(lambda: (out / "metrics.jsonl").exists(), 240.0):
                return 0.0, "no epoch within 240 s"
            time.sleep(seconds)
            ranks[victim].kill()
            begun = time.monotonic()
            others = [rank for number, rank in enumerate(ranks) if number != victim]
            for rank in others:
                try:
                    rank.wait(max(0.1, begun + TIMEOUT_SECONDS + SPARE_SECONDS - time.monotonic()))
                except subprocess.TimeoutExpired:
                    return time.monotonic() - begun, "a rank still waits"
            took = time.monotonic() - begun
            told = "".join((Path(folder) / f"rank{number}.txt").read_text() for number in range(NUM_RANKS))
            wrong = [rank.returncode for rank in others if rank.returncode != 1]
            if wrong:
                return took, f"exit codes {wrong} instead of 1: {told[-600:]}"
            return took, "" if f"rank {victim} on " in told else f"the rank is not named: {told[-600:]}"
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()


def _wait_for(condition, seconds: float) -> bool:  # a callable without arguments
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


if __name__ == "__main__":
    main()
