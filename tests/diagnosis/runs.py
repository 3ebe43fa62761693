"""Runs for tests of the diagnosis: rows as ranks write them, and what is said about them."""

from dataclasses import replace
from typing import Any

from deepex.diagnosis.diagnosis import diagnose
from deepex.diagnosis.evidence import Circumstances, Evidence
from deepex.fabric import TrafficCount
from deepex.record.rows import Diagnosis, RankRow, StepCost

MILLISECOND = 1e-3
SLOW_LINK = {"latency_seconds": 1 * MILLISECOND, "bytes_per_second": 1e9}
WEIGHTS_BYTES = 4_000_000


def row(
    *, feed: float = 0.1, compute: float = 10.0, sync: float = 0.0, steps: int = 400, epoch: int = 1, **more: Any
) -> RankRow:
    """A rank's epoch; times are milliseconds a step."""
    phases = {
        "input": feed,
        "forward": 0.3 * compute,
        "backward": 0.6 * compute,
        "update": 0.1 * compute,
        "sync": sync,
    }
    seconds = {name: value * MILLISECOND * steps for name, value in phases.items()} | {
        "evaluate": 0.1,
        "checkpoint": 0.0,
    }
    wall = sum(phases.values()) * MILLISECOND * steps
    return RankRow(
        epoch=epoch, seconds=epoch * wall, steps=steps, step_wall_seconds=wall, phase_seconds=seconds, **more
    )


def carried(
    *, calls: float, num_bytes: float, steps: int = 400, milliseconds: float = 1.0, hidden: float = 0.0
) -> TrafficCount:
    """What the fabric carried in an epoch, from calls, bytes and milliseconds a step, waited for and hidden."""
    return TrafficCount(
        calls=round(calls * steps),
        num_bytes=round(num_bytes * steps),
        busy_seconds=(milliseconds + hidden) * MILLISECOND * steps,
        waited_seconds=milliseconds * MILLISECOND * steps,
    )


def step_cost(**more: Any) -> StepCost:
    """0.6 GFLOP a step on cores that reach 100: 6 ms at the peak."""
    return StepCost(
        **{"flops_per_step": 600_000_000, "gemm_flops_per_second": 1e11, "dispatch_seconds": 0.0002, **more}
    )


def judge(
    *ranks: RankRow | list[RankRow],
    step_costs: list[StepCost] | None = None,
    hosts: list[str] | None = None,
    cores: int = 1,
    **circumstances: Any,
) -> Diagnosis:
    rows = [rank if isinstance(rank, list) else [rank] for rank in ranks]
    given = {"batch": 64, "weights_bytes": WEIGHTS_BYTES, **circumstances}
    costs = [replace(cost, cores=cores) for cost in step_costs or [step_cost()] * len(rows)]
    evidence = Evidence.gather(rows, Circumstances(**given), step_costs=costs, hosts=hosts or ["n1"] * len(rows))
    assert evidence is not None
    return diagnose(evidence)


def changes(found: Diagnosis) -> list[str]:
    return [advice.change for advice in found.advice]
