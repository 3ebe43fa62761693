"""What a diagnosis judges by: each rank's times a step, and the circumstances of the run, as plain values.

It adds up rows of ranks. It judges nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from deepex import sync as strategies
from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.record.rows import RankRow, StepCost
from deepex.sync import SyncTraits

V = TypeVar("V")

COLD_EPOCHS = 3  # with so many, the first is left out: it reads what later ones keep, and fills caches


Storage = Literal["packed", "files", "given"]


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What a run was told to do and what it found out about itself before its first step.

    Attributes:
        sync: the strategy as it is written.
        batch: samples of one rank in one step.
        precision: what a step computes with.
        device: what a rank computes with, such as `cpu` or `cuda:0`.
        overlaps: whether the fabric carries messages while ranks compute.
        weights_bytes: bytes of all weights.
        link: `latency_seconds` and `bytes_per_second` of an all-reduce among all ranks, if it was measured.
        has_bf16: whether the processor has instructions for it.
        memory_gib, stage: as in the recipe's `data`.
        storage: where samples are: in a file of deepex's own, in other files, or in objects that a program gave.
        own_loop: whether a user's own loop trains, which is told in Python what recipes and commands say elsewhere.
    """

    sync: str = strategies.DEFAULT
    batch: int = 1
    precision: str = "fp32"
    device: str = "cpu"
    overlaps: bool = True
    weights_bytes: int = 0
    link: Mapping[str, float] | None = None
    has_bf16: bool = False
    memory_gib: float | None = None
    stage: str | None = None
    storage: Storage = "packed"
    own_loop: bool = False

    @property
    def traits(self) -> SyncTraits:
        """What the strategy promises; of one that is not known, nothing is assumed."""
        return strategies.find_traits(self.sync)


@dataclass(frozen=True, kw_only=True)
class RankTimes:
    """Where one rank's time goes, in seconds a step; messages and bytes are a step's too, and None if not counted.

    Attributes:
        hidden_seconds: of messages, behind computing.
        busy_seconds: of messages, from the start of each to its end.
        core_wait_seconds: ready to run, without a core to run on; None if not known.
        dispatch_seconds: what starting operators takes.
        cores: that the rank may use; `threads` is how many it does use.
    """

    rank: int
    host: str = ""
    wall_seconds: float
    phase_seconds: Mapping[str, float]
    hidden_seconds: float = 0.0
    calls: float | None = None
    num_bytes: float | None = None
    busy_seconds: float | None = None
    core_wait_seconds: float | None = None
    flops: float = 0.0
    gemm_flops_per_second: float = 0.0
    dispatch_seconds: float = 0.0
    threads: int = 1
    cores: int = 1

    @property
    def compute_seconds(self) -> float:
        return sum(self.phase_seconds[name] for name in ("forward", "backward", "update"))

    @property
    def work_seconds(self) -> float:
        """What a rank does by itself: samples and computing."""
        return self.phase_seconds["input"] + self.compute_seconds

    @property
    def other_seconds(self) -> float:
        """What lies between the phases."""
        return self.wall_seconds - sum(self.phase_seconds.values())


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that a diagnosis knows.

    Attributes:
        steps: that were timed, on one rank.
        steps_per_epoch: of one rank.
        seconds: wall time of those steps.
        cold_ratio: how long the first epoch took against the others, if it was left out; else None.
    """

    circumstances: Circumstances
    ranks: tuple[RankTimes, ...]
    steps: int
    steps_per_epoch: int
    seconds: float
    cold_ratio: float | None = None

    @classmethod
    def gather(
        cls,
        rows: Sequence[Sequence[RankRow]],
        circumstances: Circumstances,
        *,
        step_costs: Sequence[StepCost] = (),
        hosts: Sequence[str] = (),
    ) -> "Evidence | None":
        """Evidence from what ranks have written down; None if no step was timed.

        Arguments:
            rows: for each rank its rows, an epoch each; live, the last one is enough.
            step_costs: of each rank.
            hosts: the host of each rank.

        >>> phases = {"forward": 1.0, "sync": 2.0}
        >>> row = RankRow(epoch=1, seconds=4.0, steps=2, step_wall_seconds=3.0, phase_seconds=phases)
        >>> Evidence.gather([[row]], Circumstances()).ranks[0].phase_seconds["sync"]
        1.0
        """
        read = {rank: [row for row in epochs if _is_timed(row)] for rank, epochs in enumerate(rows)}
        timed = {rank: epochs for rank, epochs in read.items() if epochs}
        if not timed:
            return None
        warm = {rank: epochs[1:] if len(epochs) >= COLD_EPOCHS else epochs for rank, epochs in timed.items()}
        ranks = tuple(
            _add_up(rank, epochs, _of_rank(step_costs, rank), _of_rank(hosts, rank) or "")
            for rank, epochs in warm.items()
        )
        all_epochs, epochs = next(iter(timed.values())), next(iter(warm.values()))
        first = all_epochs[0].step_wall_seconds / all_epochs[0].steps
        return cls(
            circumstances=circumstances,
            ranks=ranks,
            steps=sum(row.steps for row in epochs),
            steps_per_epoch=max(row.steps for row in epochs),
            seconds=sum(row.step_wall_seconds for row in epochs),
            cold_ratio=first / ranks[0].wall_seconds if len(epochs) < len(all_epochs) else None,
        )


def _is_timed(row: RankRow) -> bool:
    """Whether a rank trained in that epoch; a parameter server does not, nor one that resumed behind the last step."""
    return row.trains and row.steps > 0 and row.step_wall_seconds > 0


def _add_up(rank: int, epochs: Sequence[RankRow], cost: StepCost | None, host: str) -> RankTimes:
    steps = sum(row.steps for row in epochs)
    phases = {name: sum(row.phase_seconds.get(name, 0.0) for row in epochs) / steps for name in STEP_PHASES}
    wall = sum(row.step_wall_seconds for row in epochs) / steps
    cost = cost or StepCost()
    carried = [row.traffic for row in epochs if row.traffic is not None]
    is_counted = len(carried) == len(epochs)
    return RankTimes(
        rank=rank,
        host=host,
        wall_seconds=max(wall, sum(phases.values())),
        phase_seconds=phases,
        hidden_seconds=sum(row.sync_hidden_seconds for row in epochs) / steps,
        core_wait_seconds=_core_wait(epochs, steps),
        calls=sum(each.calls for each in carried) / steps if is_counted else None,
        num_bytes=sum(each.num_bytes for each in carried) / steps if is_counted else None,
        busy_seconds=sum(each.busy_seconds for each in carried) / steps if is_counted else None,
        flops=float(cost.flops_per_step),
        gemm_flops_per_second=cost.gemm_flops_per_second,
        dispatch_seconds=cost.dispatch_seconds,
        threads=cost.threads,
        cores=max(cost.threads, cost.cores),
    )


def _core_wait(epochs: Sequence[RankRow], steps: int) -> float | None:
    """The steps' share of what was waited for a core in whole epochs."""
    waited = 0.0
    for row in epochs:
        if row.core_wait_seconds is None:
            return None
        beside = sum(row.phase_seconds.get(name, 0.0) for name in BESIDE_PHASES)
        waited += row.core_wait_seconds * row.step_wall_seconds / (row.step_wall_seconds + beside)
    return waited / steps


def _of_rank(values: Sequence[V], rank: int) -> V | None:
    return values[rank] if rank < len(values) else None
