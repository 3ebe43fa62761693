"""The first part of the sync benchmark: all-reduce between ranks of this machine, by raw Gloo, raw MPI and fabrics.

All engines of a number of ranks live at once and take turns; those that don't measure sleep. Copies from memory to
memory by all ranks take their turns too, and tell what the machine could carry.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from deepex.bench.sync.rank_pool import Network, RankPool, find_mpirun, local_network, mpi_network, start_pool
from deepex.bench.sync.rows import Log, Results, Row, middle_half, rotate
from deepex.errors import DeepexError

COPY, GLOO, SHARED = "copy", "Gloo", "deepex shared"
MEGABYTES_AT_ONCE = 25.0  # a round takes as many all-reduces of a buffer as come to about so much


@dataclass(frozen=True, kw_only=True)
class FabricsPlan:
    """How much is measured, of which engines."""

    engines: Sequence[str]
    ranks: Sequence[int] = (2, 4)
    megabytes: Sequence[float] = (1, 4, 25, 100)
    rounds: int = 9


ENGINES: dict[str, tuple[str, Callable[[int], Network]]] = {
    GLOO: ("gloo", local_network),
    "MPI": ("mpi", mpi_network),
    "deepex torch": ("fabric:torch", local_network),
    "deepex mpi": ("fabric:mpi", mpi_network),
    SHARED: ("fabric:shared", local_network),
}


def available_engines() -> list[str]:
    """Those that can run here: MPI needs mpi4py and an mpirun."""
    has_mpi = find_spec("mpi4py") is not None and find_mpirun() is not None
    return [name for name, (_, network) in ENGINES.items() if has_mpi or network is not mpi_network]


def fabrics_plan(*, quick: bool = False) -> FabricsPlan:
    """All that can run here."""
    engines = available_engines()
    return (
        FabricsPlan(engines=engines, ranks=(2,), megabytes=(1, 4), rounds=2) if quick else FabricsPlan(engines=engines)
    )


def measure_fabrics(plan: FabricsPlan, folder: Path, results: Results, log: Log) -> None:
    """Rows for each number of ranks, engine and size."""
    for num_ranks in plan.ranks:
        results.add(*_measure_ranks(num_ranks, plan, folder / f"ranks{num_ranks}", log))


def _measure_ranks(num_ranks: int, plan: FabricsPlan, folder: Path, log: Log) -> list[Row]:
    seconds: dict[tuple[str, float], list[float]] = {}
    errors: dict[str, str] = {}
    names = list(plan.engines)
    with ExitStack() as stack:
        pools: dict[str, RankPool] = {}
        for name in names:
            log(f"fabrics, {num_ranks} ranks: starting {name}")
            engine, network = ENGINES[name]
            spec = {"part": "fabrics", "engine": engine, "megabytes": max(plan.megabytes)}
            started = start_pool(name, network(num_ranks), folder / engine.replace(":", "-"), spec)
            try:
                pools[name] = stack.enter_context(started)
            except DeepexError as error:
                errors[name] = str(error)
        for turn in range(-1, plan.rounds):  # the first warms up
            log(f"fabrics, {num_ranks} ranks: {f'round {turn + 1} of {plan.rounds}' if turn >= 0 else 'warming up'}")
            for name in rotate([*names, COPY], turn):
                found = _take_turn(name, pools, plan, errors)
                if turn >= 0:
                    for megabytes, each in found.items():
                        seconds.setdefault((name, megabytes), []).append(each)
    rows = [_row(name, num_ranks, megabytes, found, seconds) for (name, megabytes), found in seconds.items()]
    failed = [
        Row(part="fabrics", network="local", name=name, ranks=num_ranks, error=error) for name, error in errors.items()
    ]
    return sorted(rows, key=lambda row: ([*names, COPY].index(row.name), row.megabytes)) + failed


def _take_turn(name: str, pools: dict[str, RankPool], plan: FabricsPlan, errors: dict[str, str]) -> dict[float, float]:
    """Seconds of the slowest rank by size; an engine that fails is left out from then on."""
    pool, do = (pools.get(SHARED), "copy") if name == COPY else (pools.get(name), "round")
    found = {}
    if pool is None or name in errors:
        return {}
    try:
        for megabytes in [max(plan.megabytes)] if name == COPY else plan.megabytes:
            times = max(1, round(MEGABYTES_AT_ONCE / megabytes))
            answers = pool.request(do, megabytes=megabytes, times=times)
            found[megabytes] = max(answer["seconds"] for answer in answers)
    except DeepexError as error:
        errors[name] = str(error)
        return {}
    return found


def _row(
    name: str, num_ranks: int, megabytes: float, found: Sequence[float], seconds: dict[tuple[str, float], list[float]]
) -> Row:
    gigabytes = megabytes / 1e3 / median(found)
    traffic = 2 * num_ranks * gigabytes  # each rank reads and writes every byte once
    ratio = share = None
    if name != COPY and (GLOO, megabytes) in seconds:
        ratio = median(seconds[GLOO, megabytes]) / median(found)
    copies = next((each for (of, _), each in seconds.items() if of == COPY), None)
    if name == SHARED and copies:
        most = max(size for of, size in seconds if of == COPY)
        share = traffic / (2 * num_ranks * most / 1e3 / median(copies))
    return Row(
        part="fabrics",
        network="local",
        name=name,
        ranks=num_ranks,
        megabytes=megabytes,
        gigabytes_per_second=traffic if name == COPY else gigabytes,
        wall_ms=1e3 * median(found),
        ratio=ratio,
        share_of_copy=share,
        spread=middle_half(found),
        turns=len(found),
    )
