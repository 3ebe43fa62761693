"""The sync benchmark: all-reduce, steps and learning of every strategy beside what people use, on one machine and on a
cluster. It knows the order of parts, and which of them are done; each part is a file of its own."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from deepex.bench.sync import learning as sync_learning
from deepex.bench.sync import steps as sync_steps
from deepex.bench.sync.fabrics import fabrics_plan, measure_fabrics
from deepex.bench.sync.learning import LearningPlan, measure_learning
from deepex.bench.sync.rank_pool import Network, find_mpirun
from deepex.bench.sync.rows import Log, NetworkName, Part, Results, Row
from deepex.bench.sync.steps import measure_steps
from deepex.errors import UsageError

LIMIT_SECONDS: dict[NetworkName, float] = {"local": 90.0, "cluster": 480.0}  # of one learning run


def measure(
    parts: Sequence[Part],
    network: Network,
    results: Results,
    log: Log,
    show: Callable[[Part], None],
    *,
    quick: bool = False,
    seeds: int = 1,
) -> None:
    """Measure the parts on a network that are not among the results yet; `show` is called when one ends."""
    for part in parts:
        if part == "fabrics" and network.name != "local":
            continue  # between hosts there is one fabric, and the wire sets its rate
        if results.has(part, network.name):
            log(f"{part}, {network.name}: done before")
            continue
        with TemporaryDirectory(prefix="deepex-sync-") as made:
            _measure_part(part, network, Path(made), results, log, quick=quick, seeds=seeds)
        results.finish(part, network.name)
        show(part)


def _measure_part(
    part: Part, network: Network, folder: Path, results: Results, log: Log, *, quick: bool, seeds: int
) -> None:
    if part == "fabrics":
        measure_fabrics(fabrics_plan(quick=quick), folder, results, log)
    elif part == "steps":
        plan = sync_steps.local_plan if network.name == "local" else sync_steps.cluster_plan
        measure_steps(plan(quick=quick), network, folder, results, log)
    else:
        chosen = sync_learning.QUICK if quick else LearningPlan(limit_seconds=LIMIT_SECONDS[network.name])
        measure_learning(replace(chosen, seeds=seeds), network, folder, results, log)


def missing_peers() -> list[str]:
    """What would be measured too if it were installed."""
    missing = [package for package in ("accelerate", "mpi4py") if find_spec(package) is None]
    return missing + (["mpich"] if find_mpirun() is None else [])


def to_json(rows: Sequence[Row]) -> str:
    return json.dumps([row.to_json() for row in rows], indent=1) + "\n"


def read_rows(path: Path) -> list[Row]:
    """The rows of an earlier benchmark."""
    try:
        return [Row(**row) for row in json.loads(path.read_text())]
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"--resume: {path} holds no rows of this benchmark ({error}). Give the --json FILE of one that was "
            "interrupted, or leave --resume out."
        ) from error
