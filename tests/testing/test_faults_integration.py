"""A rank that is killed ends a run; nobody waits for it. `make soak` tries all strategies, many times."""

import random

import pytest

from deepex.testing.faults import TIMEOUT_SECONDS, kill_one


@pytest.mark.parametrize(
    ("sync", "victim", "fabric"), [("allreduce", 0, "torch"), ("hybrid:2", 1, "torch"), ("async", 1, "shared")]
)
def test_a_killed_rank_is_named_and_nobody_hangs(sync: str, victim: int, fabric: str) -> None:
    took, problem = kill_one(sync, victim, random.uniform(0.0, 1.0), num_ranks=2, fabric=fabric)
    assert not problem
    assert took < TIMEOUT_SECONDS
