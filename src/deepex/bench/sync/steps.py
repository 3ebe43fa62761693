"""The second part of the sync benchmark: steps of DDP, Accelerate's local SGD and every strategy, in wall and CPU time.

On this machine all variants live at once and take turns; on a cluster each turn starts its ranks anew, since so many
ranks of so many variants would not fit into memory. It knows variants and their answers, and nothing of training.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, median
from typing import Any

from deepex.bench.sync.networks import NETWORKS
from deepex.bench.sync.rank_pool import Network, RankPool, start_pool
from deepex.bench.sync.rows import Log, Results, Row, middle_half, rotate
from deepex.errors import DeepexError

ALONE_PLAIN, ALONE_DEEPEX = "no communication (plain)", "no communication (deepex)"
DDP, DDP_VIEWS, LOCAL_SGD = "DDP", "DDP, bucket views", "Accelerate LocalSGD"
SLOWED = "hybrid:2, other group ten times slower"
COLLECTIVES = 3


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way to train, and how much of it is measured in a turn.

    Attributes:
        trainer: as trainers.py has it.
        steps: of a turn, in steady state, after `lead` more.
        closes: whether the end of an epoch is part of a turn.
        slow_rank: one that takes ten times as long for each step; then only the first half of the ranks counts.
        collectives: all-reduces of the gradients by themselves, after a turn.
        turns: at most.
    """

    name: str
    trainer: str = "deepex"
    sync: str = ""
    interval: int = 0
    lead: int = 1
    steps: int = 16
    closes: bool = False
    slow_rank: int | None = None
    collectives: int = 0
    turns: int = 99

    def spec(self, network: str) -> dict[str, Any]:
        """What a rank is told."""
        return {
            "part": "steps",
            "trainer": self.trainer,
            "network": network,
            "sync": self.sync,
            "interval": self.interval,
        }


@dataclass(frozen=True, kw_only=True)
class StepsPlan:
    """How much is measured."""

    network: str
    variants: Sequence[Variant]
    turns: int
    stay: bool  # whether ranks live through all turns


@dataclass
class Found:
    """What turns of a variant have told: answers of the ranks that count, and seconds of all-reduces."""

    answers: list[list[dict[str, Any]]] = field(default_factory=list)
    collective_seconds: list[float] = field(default_factory=list)
    error: str | None = None


def _strategy(sync: str, **numbers: Any) -> Variant:
    return Variant(name=sync, sync=sync, **numbers)


def local_plan(*, quick: bool = False) -> StepsPlan:
    """On one machine: epochs of 16 steps, 6 turns."""
    variants = [
        Variant(name=ALONE_PLAIN, trainer="plain"),
        Variant(name=ALONE_DEEPEX),
        Variant(name=DDP, trainer="ddp"),
        Variant(name=DDP_VIEWS, trainer="ddp-views"),
        Variant(name=f"{LOCAL_SGD}:8", trainer="local-sgd", interval=8),
        _strategy("allreduce", collectives=COLLECTIVES),
        _strategy("allreduce+bf16"),
        _strategy("lagged"),
        _strategy("local:8"),
        _strategy("local:epoch", closes=True),
        _strategy("background:8"),
        _strategy("hybrid:2"),
        _strategy("async"),
    ]
    return StepsPlan(
        network="tiny" if quick else "resnet18", variants=_available(variants), turns=2 if quick else 6, stay=True
    )


def cluster_plan(*, quick: bool = False) -> StepsPlan:
    """On slow lines: 8 steps of what synchronises in each, an epoch of a minute of `local:epoch`."""
    slow: dict[str, Any] = {"steps": 8}
    some: dict[str, Any] = {"steps": 48}
    once: dict[str, Any] = {"turns": 1}
    variants = [
        Variant(name=ALONE_PLAIN, trainer="plain"),
        Variant(name=ALONE_DEEPEX),
        Variant(name=DDP, trainer="ddp", **slow),
        Variant(name=DDP_VIEWS, trainer="ddp-views", **slow, **once),
        Variant(name=f"{LOCAL_SGD}:16", trainer="local-sgd", interval=16, **some, **once),
        _strategy("allreduce", **slow),
        _strategy("allreduce+bf16", **slow),
        _strategy("lagged", **slow, collectives=COLLECTIVES),
        _strategy("local:16", **some),
        _strategy("local:epoch", steps=16 if quick else 256, closes=True, **once),
        _strategy("background:16", **some, lead=17),
        _strategy("hierarchical(allreduce,local:16)", **some, **once),
        _strategy("hybrid:2", **slow, **once),
        Variant(name=SLOWED, sync="hybrid:2", slow_rank=3, **slow, **once),
    ]
    return StepsPlan(
        network="tiny" if quick else "perceptron", variants=_available(variants), turns=1 if quick else 2, stay=False
    )


def _available(variants: Sequence[Variant]) -> list[Variant]:
    has_accelerate = find_spec("accelerate") is not None
    return [variant for variant in variants if has_accelerate or variant.trainer != "local-sgd"]


def measure_steps(plan: StepsPlan, network: Network, folder: Path, results: Results, log: Log) -> None:
    """A row for each variant, written again after each turn."""
    by_name = {variant.name: variant for variant in plan.variants}
    found = {name: Found() for name in by_name}
    with ExitStack() as stack:
        pools: dict[str, RankPool] = {}
        if plan.stay:
            for number, variant in enumerate(plan.variants):
                log(f"steps, {network.name}: starting {variant.name}")
                started = start_pool(variant.name, network, folder / str(number), variant.spec(plan.network))
                try:
                    pools[variant.name] = stack.enter_context(started)
                    _take_turn(variant, pools[variant.name], Found())  # warms up
                except DeepexError as error:
                    found[variant.name].error = str(error)
        for turn in range(plan.turns):
            for name in rotate(list(by_name), turn):
                if turn >= by_name[name].turns or found[name].error:
                    continue
                log(f"steps, {network.name}, turn {turn + 1} of {plan.turns}: {name}")
                try:
                    if plan.stay:
                        _take_turn(by_name[name], pools[name], found[name])
                    else:
                        place = folder / f"{turn}-{list(by_name).index(name)}"
                        with start_pool(name, network, place, by_name[name].spec(plan.network)) as pool:
                            _take_turn(by_name[name], pool, found[name])
                except DeepexError as error:
                    found[name].error = str(error)
                if not plan.stay:
                    results.replace("steps", network.name, _rows(plan, network, found))
            results.replace("steps", network.name, _rows(plan, network, found))


def _take_turn(variant: Variant, pool: RankPool, found: Found) -> None:
    size = len(pool.channels)
    ranks = range(size) if variant.slow_rank is None else range(size // 2)
    order: dict[str, Any] = {
        "lead": variant.lead,
        "steps": variant.steps,
        "closes": variant.closes,
        "slow_rank": variant.slow_rank,
    }
    found.answers.append(pool.request("epoch", ranks=ranks, **order))
    if variant.collectives:
        told = pool.request("collective", times=variant.collectives)
        found.collective_seconds += [max(each) for each in zip(*(answer["seconds"] for answer in told), strict=True)]


def _rows(plan: StepsPlan, network: Network, found: dict[str, Found]) -> list[Row]:
    """All variants that have something to tell."""
    workload = NETWORKS[plan.network]
    megabytes = 4e-6 * sum(parameter.numel() for parameter in workload.network().parameters())
    alone = _step_seconds(found[ALONE_PLAIN], plan, ALONE_PLAIN) if ALONE_PLAIN in found else None
    base = _step_seconds(found[DDP], plan, DDP) if DDP in found else None
    base_cpu = _cpu_seconds(found[DDP], plan, DDP) if DDP in found else None
    rows = []
    for variant in plan.variants:
        mine = found[variant.name]
        wall, cpu = _step_seconds(mine, plan, variant.name), _cpu_seconds(mine, plan, variant.name)
        row = Row(
            part="steps",
            network=network.name,
            name=variant.name,
            ranks=network.num_ranks,
            megabytes=megabytes,
            steps=variant.steps,
            turns=len(mine.answers),
            error=mine.error,
        )
        if wall is None or cpu is None:
            rows += [row] if mine.error else []
            continue
        rows.append(_fill(row, mine, wall, cpu, workload.batch, (alone, base, base_cpu)))
    return rows


def _fill(
    row: Row, found: Found, wall: float, cpu: float, batch: int, others: tuple[float | None, float | None, float | None]
) -> Row:
    """The row with its figures."""
    alone, base, base_cpu = others
    steps, half = row.steps or 1, row.ranks // 2
    waited = [answer["sync_seconds"] for answers in found.answers for answer in answers]
    share: float | None = None
    if None not in waited:
        share = fmean(waited) / steps / wall
    elif alone is not None:
        share = max(0.0, 1 - alone / wall)
    rates = [[batch * steps / answer["wall_seconds"] for answer in answers] for answers in found.answers]
    walls = [max(answer["wall_seconds"] for answer in answers) for answers in found.answers]
    return replace(
        row,
        wall_ms=1e3 * wall,
        cpu_ms=1e3 * cpu,
        samples_per_second=median(sum(each) for each in rates),
        first_group_samples_per_second=median(sum(each[:half]) for each in rates),
        sync_share=share,
        sync_ms=1e3 * median(found.collective_seconds) if found.collective_seconds else None,
        ratio=None if base is None else base / wall,
        cpu_ratio=None if base_cpu is None else base_cpu / cpu,
        spread=middle_half(walls),
    )


def _step_seconds(found: Found, plan: StepsPlan, name: str) -> float | None:
    """Wall seconds of a step of the slowest rank, the median over turns."""
    steps = next(variant.steps for variant in plan.variants if variant.name == name)
    walls = [max(answer["wall_seconds"] for answer in answers) / steps for answers in found.answers]
    return median(walls) if walls else None


def _cpu_seconds(found: Found, plan: StepsPlan, name: str) -> float | None:
    """CPU seconds of a step, the mean over ranks, the median over turns."""
    steps = next(variant.steps for variant in plan.variants if variant.name == name)
    means = [fmean(answer["cpu_seconds"] for answer in answers) / steps for answers in found.answers]
    return median(means) if means else None
