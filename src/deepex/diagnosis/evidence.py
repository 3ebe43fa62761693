"""What a diagnosis judges by: each rank's times a step, and the circumstances of the run, as plain values.

It reads rows of phases/rankNNNNN.jsonl. It judges nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deepex.fabric import Fabric
from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.sync.spec import Written
from deepex.train.compute.precision import has_instructions
from deepex.train.recipe import Recipe

Row = Mapping[str, Any]

IMPLAUSIBLE = 1e11  # bytes a second: no link, but noise that was longer than the message
COLD_EPOCHS = 3  # with so many, the first is left out: it reads what later ones keep, and fills caches


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How ranks meet.

    Attributes:
        interval: after how many steps; None if it is not known, or once an epoch.
        is_local: whether the strategy's argument is that interval.
        hides: whether messages travel while ranks compute.
    """

    interval: int | None = None
    is_local: bool = False
    hides: bool = False


MANNERS = {
    "allreduce": Manner(interval=1),
    "lagged": Manner(interval=1, hides=True),
    "local": Manner(is_local=True),
    "background": Manner(is_local=True, hides=True),
    "async": Manner(hides=True),
}


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
    """

    sync: str = "allreduce"
    batch: int = 1
    precision: str = "fp32"
    device: str = "cpu"
    overlaps: bool = True
    weights_bytes: int = 0
    link: Mapping[str, float] | None = None
    has_bf16: bool = False
    memory_gib: float | None = None
    stage: str | None = None

    @classmethod
    def of(
        cls, recipe: Recipe, fabric: Fabric, weights_bytes: int, link: Mapping[str, float] | None = None
    ) -> "Circumstances":
        """Those of a run that is about to begin or has just ended."""
        return cls(
            sync=recipe.sync,
            batch=recipe.data.batch,
            precision=recipe.precision,
            device=fabric.world.device,
            overlaps=fabric.overlaps,
            weights_bytes=weights_bytes,
            link=link if link is not None and link["bytes_per_second"] < IMPLAUSIBLE else None,
            has_bf16=has_instructions("bf16", fabric.world.torch_device),
            memory_gib=recipe.data.memory_gib,
            stage=recipe.data.stage,
        )

    @property
    def manner(self) -> "Manner":
        """How ranks meet, by the strategy's name; nothing is assumed of one that is not in the table."""
        written = Written.parse(self.sync)
        manner = MANNERS.get(written.name, Manner())
        if manner.is_local and written.argument.isdecimal():
            return replace(manner, interval=int(written.argument))
        return manner


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
        rows: Sequence[Sequence[Row]],
        circumstances: Circumstances,
        *,
        yardsticks: Sequence[Row] = (),
        places: Sequence[Row] = (),
    ) -> "Evidence | None":
        """Evidence from what ranks have written down; None if no step was timed.

        Arguments:
            rows: for each rank its rows of phases/rankNNNNN.jsonl, an epoch each; live, the last one is enough. Keys
                that an older run lacks are made up for.
            yardsticks: for each rank `flops_per_step`, `gemm_flops_per_second`, `threads` and `dispatch_seconds`.
            places: for each rank `host` and `threads`, as in record.json.

        >>> row = {"steps": 2, "step_wall_seconds": 3.0, "phase_seconds": {"forward": 1.0, "sync": 2.0}}
        >>> Evidence.gather([[row]], Circumstances()).ranks[0].phase_seconds["sync"]
        1.0
        """
        timed = {rank: [row for row in epochs if _is_timed(row)] for rank, epochs in enumerate(rows)}
        timed = {rank: epochs for rank, epochs in timed.items() if epochs}
        if not timed:
            return None
        warm = {rank: epochs[1:] if len(epochs) >= COLD_EPOCHS else epochs for rank, epochs in timed.items()}
        ranks = tuple(
            _add_up(rank, epochs, _of_rank(yardsticks, rank), _of_rank(places, rank)) for rank, epochs in warm.items()
        )
        all_epochs, epochs = next(iter(timed.values())), next(iter(warm.values()))
        first = all_epochs[0]["step_wall_seconds"] / all_epochs[0]["steps"]
        return cls(
            circumstances=circumstances,
            ranks=ranks,
            steps=sum(row["steps"] for row in epochs),
            steps_per_epoch=max(row["steps"] for row in epochs),
            seconds=sum(row["step_wall_seconds"] for row in epochs),
            cold_ratio=first / ranks[0].wall_seconds if len(epochs) < len(all_epochs) else None,
        )


def _is_timed(row: Row) -> bool:
    """Whether a rank trained in that epoch; a parameter server does not, nor one that resumed behind the last step."""
    return bool(row.get("trains", True) and row.get("steps") and row["step_wall_seconds"] > 0)


def _add_up(rank: int, epochs: Sequence[Row], yardstick: Row, place: Row) -> RankTimes:
    steps = sum(row["steps"] for row in epochs)
    phases = {name: sum(row["phase_seconds"].get(name, 0.0) for row in epochs) / steps for name in STEP_PHASES}
    wall = sum(row["step_wall_seconds"] for row in epochs) / steps
    meters = [row["fabric"] for row in epochs if row.get("fabric")]
    counted: dict[str, float] = {}
    if len(meters) == len(epochs):
        counted = {key: sum(meter[key] for meter in meters) / steps for key in ("calls", "num_bytes", "busy_seconds")}
    threads = int(yardstick.get("threads", place.get("threads", 1)))
    return RankTimes(
        rank=rank,
        host=str(place.get("host", "")),
        wall_seconds=max(wall, sum(phases.values())),
        phase_seconds=phases,
        hidden_seconds=sum(row.get("sync_hidden_seconds") or 0.0 for row in epochs) / steps,
        core_wait_seconds=_core_wait(epochs, steps),
        **counted,
        flops=float(yardstick.get("flops_per_step", 0)),
        gemm_flops_per_second=float(yardstick.get("gemm_flops_per_second", 0)),
        dispatch_seconds=float(yardstick.get("dispatch_seconds") or 0.0),
        threads=threads,
        cores=max(threads, int(place.get("threads", 1))),
    )


def _core_wait(epochs: Sequence[Row], steps: int) -> float | None:
    """The steps' share of what was waited for a core in whole epochs."""
    if any(row.get("core_wait_seconds") is None for row in epochs):
        return None
    waited = 0.0
    for row in epochs:
        beside = sum(row["phase_seconds"].get(name, 0.0) for name in BESIDE_PHASES)
        waited += row["core_wait_seconds"] * row["step_wall_seconds"] / (row["step_wall_seconds"] + beside)
    return waited / steps


def _of_rank(values: Sequence[Row], rank: int) -> Row:
    return values[rank] if rank < len(values) else {}
