"""What a finished run of a study tells: its times, its curve and its outcome, read from its directory, and no more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from deepex.record.folder import RunFolder
from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.record.provenance import RunRecord, read_record
from deepex.record.rows import Diagnosis, EpochRow, read_epochs, read_summary
from deepex.study.plan import Judged

CURVE = ("epoch", "seconds", "value", "loss", "noise_scale")
COMPUTING = ("forward", "backward", "update")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """One run.

    Attributes:
        epoch_seconds: the median over its epochs, evaluation and checkpoints included.
        epochs_to: epochs after which each cut-off was passed; None for one that was not.
        seconds_to: seconds after which it was, as the clock showed.
        samples: of all ranks, in an epoch.
        phase_seconds: a mapping over the phases, for an epoch, the mean over epochs and ranks.
        cores: of all ranks.
        shares_cores: whether ranks had less than a core each.
    """

    name: str
    seed: int
    ranks: int
    epochs: int
    epoch_seconds: float
    epochs_to: tuple[int | None, ...]
    seconds_to: tuple[float | None, ...]
    value: float
    samples: int
    samples_per_second: float
    gflops_per_second: float
    share_of_peak: float
    phase_seconds: Mapping[str, float]
    noise_scale: float | None
    energy_joules: float | None
    cores: float
    shares_cores: bool
    diagnosis: Diagnosis | None
    curve: Mapping[str, list[Any]]
    record: RunRecord

    def to_json(self) -> dict[str, Any]:
        """Plain values, but for the record, of which a study keeps only what its runs differ in."""
        kept = {name: value for name, value in vars(self).items() if name not in ("record", "diagnosis")}
        return {**kept, "epochs_to": list(self.epochs_to), "seconds_to": list(self.seconds_to)}


def read_facts(path: Path, seed: int, judged: Judged) -> Facts:
    """The facts of a finished run."""
    folder = RunFolder.open(path)
    rows, summary, record = read_epochs(folder), read_summary(folder), read_record(folder)
    assert summary is not None, "a finished run has a summary"
    passed = [_first_passing(rows, judged, cutoff) for cutoff in judged.cutoffs]
    shares = [place.threads if place.cores is None else place.cores for place in record.places]
    return Facts(
        name=path.name,
        seed=seed,
        ranks=len(shares),
        epochs=len(rows),
        epoch_seconds=epoch_seconds([row.seconds for row in rows]),
        epochs_to=tuple(None if row is None else row.epoch for row in passed),
        seconds_to=tuple(None if row is None else row.seconds for row in passed),
        value=rows[-1].value,
        samples=max(row.samples for row in rows),
        samples_per_second=summary.samples_per_second,
        gflops_per_second=summary.gflops_per_second,
        share_of_peak=summary.share_of_peak,
        phase_seconds={
            name: sum(row.phase_seconds[name] for row in rows) / len(rows) for name in STEP_PHASES + BESIDE_PHASES
        },
        noise_scale=summary.noise_scale,
        energy_joules=summary.energy_joules,
        cores=sum(shares),
        shares_cores=min(shares) < 1,
        diagnosis=summary.diagnosis,
        curve={name: [getattr(row, name) for row in rows] for name in CURVE},
        record=record,
    )


def epoch_seconds(ends: Sequence[float]) -> float:
    """The median of what epochs took, from the seconds at which they ended.

    >>> epoch_seconds([3.0, 5.0, 6.0])
    2.0
    """
    return median(end - begin for begin, end in pairwise([0.0, *ends]))


def _first_passing(rows: Sequence[EpochRow], judged: Judged, cutoff: float) -> EpochRow | None:
    target = judged.target(cutoff)
    return next((row for row in rows if target.reached(row.value)), None)
