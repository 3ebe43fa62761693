"""What the rows of the sync benchmark show: each figure that was promised, its target, and whether it was met."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from deepex.bench.sync.fabrics import GLOO, SHARED
from deepex.bench.sync.learning import BASE
from deepex.bench.sync.rows import NetworkName, Part, Row
from deepex.bench.sync.steps import ALONE_DEEPEX, ALONE_PLAIN, DDP, LOCAL_SGD, SLOWED
from deepex.text import say_percent

Compare = Callable[[float, float], bool]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A figure in words, and whether it meets its target; one without a target is only told."""

    sentence: str
    target: str = ""
    is_met: bool | None = None

    def __str__(self) -> str:
        if self.is_met is None:
            return f"{self.sentence}."
        return f"{self.sentence} (target {self.target}: {'met' if self.is_met else 'NOT met'})."


class RowIndex:
    """Rows by part, network and name."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows

    def find(self, part: Part, network: NetworkName, name: str) -> Row | None:
        return next((row for row in self.rows if (row.part, row.network, row.name) == (part, network, name)), None)

    def figure(self, network: NetworkName, name: str, attribute: str) -> float | None:
        """A number of a steps row; None if it was not measured."""
        row = self.find("steps", network, name)
        value = None if row is None else getattr(row, attribute)
        return None if value is None else float(value)


def judge_rows(rows: Sequence[Row]) -> list[Finding]:
    """What the rows show of each figure that they allow, in words."""
    found = RowIndex(rows)
    return [*_fabrics(found), *_local_steps(found), *_cluster_steps(found), *_learning(rows), *_failures(rows)]


def _at_least(sentence: str, value: float | None, target: float, unit: str = " ×") -> Iterator[Finding]:
    if value is not None:
        text = say_percent(value) if unit == "%" else f"{value:.2f}{unit}"
        wanted = f"≥ {say_percent(target)}" if unit == "%" else f"≥ {target:g}{unit}"
        yield Finding(sentence=f"{sentence}: {text}", target=wanted, is_met=value >= target)


def _fabrics(found: RowIndex) -> Iterator[Finding]:
    for row in found.rows:
        if row.part == "fabrics" and row.name == SHARED and row.ratio is not None:
            share = "" if row.share_of_copy is None else f", {say_percent(row.share_of_copy)} of the copy bandwidth"
            yield Finding(
                sentence=f"All-reduce of {row.megabytes:g} MB on {row.ranks} ranks, {SHARED} against raw {GLOO}: "
                f"{row.ratio:.2f} × ({row.gigabytes_per_second:.2f} GB/s{share})"
            )


def _local_steps(found: RowIndex) -> Iterator[Finding]:
    yield from _at_least(
        "One machine, allreduce against DDP, wall time of a step", found.figure("local", "allreduce", "ratio"), 1.25
    )
    cpu = found.figure("local", "allreduce", "cpu_ratio")
    if cpu is not None:
        yield Finding(sentence=f"The same in CPU time: {cpu:.2f} ×")
    alone, plain = (found.figure("local", name, "wall_ms") for name in (ALONE_DEEPEX, ALONE_PLAIN))
    own, ddp = (found.figure("local", name, "wall_ms") for name in ("allreduce", DDP))
    if None not in (alone, plain, own, ddp):
        assert alone is not None
        assert plain is not None
        assert own is not None
        assert ddp is not None
        yield Finding(
            sentence=f"Of that, communication costs allreduce {own - alone:.1f} ms a step and DDP {ddp - plain:.1f} "
            f"ms; a step without any takes deepex {alone:.1f} ms and plain torch {plain:.1f} ms"
        )


def _cluster_steps(found: RowIndex) -> Iterator[Finding]:
    base = "Cluster, {} against DDP, wall time of a step"
    yield from _at_least(base.format("allreduce"), found.figure("cluster", "allreduce", "ratio"), 0.98)
    yield from _at_least(base.format("allreduce+bf16"), found.figure("cluster", "allreduce+bf16", "ratio"), 1.6)
    yield from _at_least("Cluster, lagged, share of sync or computing that is hidden", hidden_share(found), 0.8, "%")
    share = found.figure("cluster", "local:epoch", "sync_share")
    if share is not None:
        yield Finding(
            sentence=f"Cluster, local:epoch, share of the time in sync: {say_percent(share, 1)}",
            target="< 5 %",
            is_met=share < 0.05,
        )
    ddp = found.figure("cluster", DDP, "samples_per_second")
    peer = found.figure("cluster", f"{LOCAL_SGD}:16", "samples_per_second")
    for name in ("local:16", "background:16"):
        rate = found.figure("cluster", name, "samples_per_second")
        yield from _at_least(f"Cluster, {name} against DDP, samples/s", _quotient(rate, ddp), 5)
        against = _quotient(rate, peer)
        if against is not None:
            yield Finding(sentence=f"Cluster, {name} against {LOCAL_SGD}:16, samples/s: {against:.2f} ×")
    healthy, beside = (found.figure("cluster", name, "first_group_samples_per_second") for name in ("hybrid:2", SLOWED))
    sentence = "Cluster, hybrid:2, samples/s of a group beside one ten times slower, against beside a healthy one"
    yield from _at_least(sentence, _quotient(beside, healthy), 0.95)


def hidden_share(found: RowIndex) -> float | None:
    """(T_compute + T_sync - T_step) / min(T_compute, T_sync) of `lagged`."""
    step, sync = (found.figure("cluster", "lagged", name) for name in ("wall_ms", "sync_ms"))
    compute = found.figure("cluster", ALONE_DEEPEX, "wall_ms")
    if step is None or sync is None or compute is None:
        return None
    return (compute + sync - step) / min(compute, sync)


def _learning(rows: Sequence[Row]) -> Iterator[Finding]:
    networks: tuple[NetworkName, ...] = ("local", "cluster")
    for network in networks:
        mine = [row for row in rows if row.part == "learning" and row.network == network]
        rates = {row.name: [each.ratio for each in mine if each.name == row.name and each.ratio] for row in mine}
        medians = {name: median(found) for name, found in rates.items() if found}
        missed = sorted({row.name for row in mine if not row.target_reached})
        if len(medians) > 1:
            best = max(medians, key=medians.__getitem__)
            auto = f"; auto {medians['auto']:.2f} ×" if "auto" in medians else ""
            yield Finding(
                sentence=f"Protein to its target, {network}: {best} is the fastest, {medians[best]:.2f} × {BASE}{auto}"
            )
        if missed:
            yield Finding(sentence=f"Protein, {network}, not to its target: {', '.join(missed)}")


def _failures(rows: Sequence[Row]) -> Iterator[Finding]:
    for row in rows:
        if row.error:
            yield Finding(sentence=f"{row.name} ({row.part}, {row.network}): {row.error}")


def _quotient(value: float | None, base: float | None) -> float | None:
    return None if value is None or base is None else value / base
