"""The rows of the sync benchmark, and all of them as they come, saved each time: an interrupted run loses none."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import quantiles
from typing import Any, Literal

Part = Literal["fabrics", "steps", "learning"]
NetworkName = Literal["local", "cluster"]
Log = Callable[[str], None]

PARTS: dict[Part, str] = {
    "fabrics": "all-reduce between ranks of this machine",
    "steps": "steps of every way to synchronise",
    "learning": "the protein task to its target",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One variant on one network; what does not apply is None, and is left out of files.

    Attributes:
        megabytes: of the buffer, 10^6 bytes each; of `steps`, of the gradients.
        gigabytes_per_second: bytes of the buffer over the slowest rank's time; of `copy`, read and written by all.
        samples_per_second: of all ranks together.
        cpu_ms, wall_ms: of one step; CPU time of all threads of a rank, mean over ranks; wall time of the slowest.
        sync_share: of the wall time, in the phase sync; of peers, what is above the same step without communication.
        ratio: above 1 is faster: to raw Gloo; to DDP's wall time; to the seconds to target of `allreduce`.
        cpu_ratio: DDP's CPU time over this one's.
        share_of_copy: the traffic of an all-reduce in shared memory, 2 P N bytes, over the copy bandwidth.
        sync_ms: of one all-reduce of the gradients by itself.
        first_group_samples_per_second: of the first half of the ranks alone.
        spread: the middle half of all turns, as a share of their median.
        curve: epoch, seconds and value of the metric, a line an epoch.
        choices: what `auto` chose, and why.
        error: why there is no figure, or not all of them.
        is_finished: whether all rows of the same part and network are there.
    """

    part: Part
    network: NetworkName
    name: str
    ranks: int
    megabytes: float | None = None
    gigabytes_per_second: float | None = None
    samples_per_second: float | None = None
    cpu_ms: float | None = None
    wall_ms: float | None = None
    sync_share: float | None = None
    epochs_to_target: int | None = None
    seconds_to_target: float | None = None
    ratio: float | None = None
    cpu_ratio: float | None = None
    share_of_copy: float | None = None
    sync_ms: float | None = None
    first_group_samples_per_second: float | None = None
    spread: float | None = None
    turns: int | None = None
    steps: int | None = None
    seed: int | None = None
    epochs: int | None = None
    seconds: float | None = None
    metric: str | None = None
    value: float | None = None
    target_reached: bool | None = None
    native_fraction_r2: float | None = None
    choices: list[dict[str, Any]] | None = None
    curve: list[tuple[int, float, float]] | None = None
    error: str | None = None
    is_finished: bool | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


class Results:
    """All rows so far. `save` is called with them after each change.

    Of earlier rows it takes those of parts that were finished, and the runs of the learning part, whole by themselves.

    >>> results = Results(lambda rows: None)
    >>> results.add(Row(part="steps", network="local", name="DDP", ranks=2))
    >>> results.finish("steps", "local")
    >>> results.has("steps", "local"), results.has("steps", "cluster")
    (True, False)
    """

    def __init__(self, save: Callable[[Sequence[Row]], None], rows: Sequence[Row] = ()) -> None:
        self.rows = [row for row in rows if row.is_finished or (row.part == "learning" and not row.error)]
        self._save = save

    def add(self, *rows: Row) -> None:
        self.rows += rows
        self._save(self.rows)

    def replace(self, part: Part, network: NetworkName, rows: Sequence[Row]) -> None:
        """Put rows in the place of those of a part: ratios may need figures that came later."""
        self.rows = [row for row in self.rows if (row.part, row.network) != (part, network)]
        self.add(*rows)

    def finish(self, part: Part, network: NetworkName) -> None:
        """Note that a part is complete."""
        self.replace(part, network, [replace(row, is_finished=True) for row in self.of(part, network)])

    def has(self, part: Part, network: NetworkName) -> bool:
        return any(row.is_finished for row in self.of(part, network))

    def of(self, part: Part, network: NetworkName) -> list[Row]:
        return [row for row in self.rows if (row.part, row.network) == (part, network)]


def middle_half(values: Sequence[float]) -> float | None:
    """The distance between the quartiles, as a share of the median; None of a single value.

    >>> middle_half([9.0, 10.0, 11.0])
    0.1
    """
    if len(values) < 2:
        return None
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return (high - low) / middle


def rotate(names: Sequence[str], turn: int) -> list[str]:
    """The order of a turn: another is first each time."""
    first = turn % max(1, len(names))
    return [*names[first:], *names[:first]]
