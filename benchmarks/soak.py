"""Kill ranks at random moments, in every strategy, and see that nobody hangs: `make soak`.

Three ranks train for real. One of them, drawn at random, is killed at a random moment. All others must end within the
timeout with an error that names the rank and its host. `python benchmarks/soak.py --kills 3 allreduce` tries less.
Several such runs go on side by side, so that moments are as uneven as on a busy machine.
"""

import argparse
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import monotonic

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
LATEST_SECONDS = 6.0


def main() -> None:
    """Try all strategies, print a line for each, and end with 1 if any kill went wrong."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("strategies", nargs="*", default=STRATEGIES)
    arguments.add_argument("--kills", type=int, default=20)
    arguments.add_argument("--fabric", default="auto")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--at-once", type=int, default=3)
    asked = arguments.parse_args()
    drawn = random.Random(asked.seed)  # noqa: S311  # moments, not secrets
    problems, begun = 0, monotonic()
    with ThreadPoolExecutor(asked.at_once) as pool:
        plan = {sync: [_draw(drawn) for _ in range(asked.kills)] for sync in asked.strategies}
        running = {
            sync: [pool.submit(kill_one, sync, *kill, num_ranks=NUM_RANKS, fabric=asked.fabric) for kill in kills]
            for sync, kills in plan.items()
        }
        for sync, kills in plan.items():
            ended = [future.result() for future in running[sync]]
            for number, ((victim, seconds), (_, problem)) in enumerate(zip(kills, ended, strict=True), 1):
                if problem:
                    print(f"{sync}, kill {number}: rank {victim} after {seconds:.1f} s: {problem}", flush=True)
            took = [seconds for seconds, _ in ended]
            wrong = sum(bool(problem) for _, problem in ended)
            problems += wrong
            print(
                f"{sync:34} {asked.kills} kills, {wrong} wrong; others gone after {median(took):.1f} s (median), "
                f"{max(took):.1f} s (longest) of {TIMEOUT_SECONDS:g}",
                flush=True,
            )
    print(f"{asked.kills * len(plan)} kills in {(monotonic() - begun) / 60:.0f} minutes, {problems} wrong")
    sys.exit(1 if problems else 0)


def _draw(drawn: random.Random) -> tuple[int, float]:
    """Whom to kill, and how many seconds after the first epoch."""
    return drawn.randrange(NUM_RANKS), drawn.uniform(0.0, LATEST_SECONDS)


if __name__ == "__main__":
    main()
