"""What a finished run of a study tells: its times, its curve and its outcome, read from its directory, and no more."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from deepex.record.folder import RunFolder
from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.record.provenance import RunRecord, read_record
from deepex.record.rows import Diagnosis, EpochRow, read_epochs, read_summary
from deepex.record.study_rows import Curve, RunFacts
from deepex.study.plan import Judged

COMPUTING = ("forward", "backward", "update")


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A run that has ended well: its facts, what bounds it, and what was run where."""

    facts: RunFacts
    diagnosis: Diagnosis | None
    record: RunRecord


def read_run(path: Path, seed: int, judged: Judged) -> FinishedRun:
    """A finished run, from its directory."""
    folder = RunFolder.open(path)
    rows, summary, record = read_epochs(folder), read_summary(folder), read_record(folder)
    assert summary is not None, "a finished run has a summary"
    passed = [_first_passing(rows, judged, cutoff) for cutoff in judged.cutoffs]
    shares = [place.threads if place.cores is None else place.cores for place in record.places]
    facts = RunFacts(
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
        curve=_draw_curve(rows),
    )
    return FinishedRun(facts=facts, diagnosis=summary.diagnosis, record=record)


def epoch_seconds(ends: Sequence[float]) -> float:
    """The median of what epochs took, from the seconds at which they ended.

    >>> epoch_seconds([3.0, 5.0, 6.0])
    2.0
    """
    return median(end - begin for begin, end in pairwise([0.0, *ends]))


def _first_passing(rows: Sequence[EpochRow], judged: Judged, cutoff: float) -> EpochRow | None:
    target = judged.target(cutoff)
    return next((row for row in rows if target.reached(row.value)), None)


def _draw_curve(rows: Sequence[EpochRow]) -> Curve:
    return Curve(
        epoch=tuple(row.epoch for row in rows),
        seconds=tuple(row.seconds for row in rows),
        value=tuple(row.value for row in rows),
        loss=tuple(row.loss for row in rows),
        noise_scale=tuple(row.noise_scale for row in rows),
    )
