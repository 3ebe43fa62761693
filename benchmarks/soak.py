"""Kill ranks at random moments, in every strategy, and see that nobody hangs: `make soak`.

Three ranks train for real. One of them, drawn at random, is killed at a random moment. All others must end within the
timeout with an error that names the rank and its host. `python benchmarks/soak.py --kills 3 allreduce` tries less.
"""

import argparse
import random
import sys

from deepex.testing.faults import TIMEOUT_SECONDS, kill_one

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


def main() -> None:
    """Try all strategies, print a line for each, and end with 1 if any kill went wrong."""
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
            took, problem = kill_one(sync, victim, seconds, num_ranks=NUM_RANKS, fabric=asked.fabric)
            slowest, problems = max(slowest, took), problems + bool(problem)
            if problem:
                print(f"{sync}, kill {number + 1}: rank {victim} after {seconds:.1f} s: {problem}", flush=True)
        print(f"{sync:34} {asked.kills} kills, others gone within {slowest:.1f} s of {TIMEOUT_SECONDS:g}", flush=True)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
