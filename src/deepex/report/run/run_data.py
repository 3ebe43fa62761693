"""What a page is made of: everything that a run directory holds, read and added up.

It knows the files of a run, and nothing of how they are shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import cast

from deepex.errors import RunFolderError
from deepex.record.folder import RunFolder
from deepex.record.illustration import Illustration, read_illustration
from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.record.provenance import RunRecord, read_record
from deepex.record.rows import Diagnosis, EpochRow, RankRow, Summary, read_epochs, read_ranks, read_summary
from deepex.record.shown_recipe import ShownRecipe, read_shown_recipe
from deepex.record.sinks.progress import PROGRESS_FILE, ProgressNote
from deepex.record.typed_json import from_json
from deepex.tasks import TASKS
from deepex.train.task import Direction, Illustrated, Target


@dataclass(frozen=True, kw_only=True)
class RankTime:
    """Where one rank's time went, over all epochs of the run."""

    rank: int
    host: str
    wall_seconds: float
    phase_seconds: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class RunData:
    """A run as its directory tells it. `summary` is None for a run that is not complete.

    `target` is None where the directory does not say what the run is judged by. `diagnosis` is what the run found
    itself; None before its first epoch has ended.
    """

    folder: RunFolder
    recipe: ShownRecipe
    target: Target | None
    record: RunRecord
    summary: Summary | None
    rows: Sequence[EpochRow]
    ranks: Sequence[RankTime]
    illustration: Illustration | None
    why_no_pictures: str

    @property
    def metric(self) -> str:
        return self.target.metric if self.target else self.rows[-1].metric if self.rows else "the metric"

    @property
    def diagnosis(self) -> Diagnosis | None:
        if self.summary is not None:
            return self.summary.diagnosis
        return self.rows[-1].diagnosis if self.rows else None

    @property
    def wall_seconds(self) -> float:
        """Wall time of all steps, the mean over ranks."""
        return fmean(rank.wall_seconds for rank in self.ranks)

    @property
    def samples_per_second(self) -> float:
        """Samples of all ranks a second of step wall time."""
        timed = [row for row in self.rows if row.samples_per_second > 0]
        seconds = sum(row.samples / row.samples_per_second for row in timed)
        return sum(row.samples for row in timed) / seconds if seconds else 0.0

    def phase_seconds(self, phase: str) -> float:
        """Seconds of a phase, the mean over ranks."""
        return fmean(rank.phase_seconds[phase] for rank in self.ranks)

    def phase_share(self, phase: str) -> float:
        """A phase's share of the steps' wall time."""
        return self.phase_seconds(phase) / self.wall_seconds if self.wall_seconds else 0.0


def read_run(folder: RunFolder) -> RunData:
    """Read a run directory, finished or not."""
    recipe, record, summary = read_shown_recipe(folder), read_record(folder), read_summary(folder)
    illustration, why_no_pictures = _read_pictures(folder, recipe, is_complete=summary is not None)
    rows, ranks = read_epochs(folder), read_ranks(folder)
    if rows and not ranks:
        raise RunFolderError(
            f"{folder.path / 'phases'} has no rank's times. Bring it back from a copy, or run it again: "
            f"deepex run {folder.recipe}"
        )
    hosts = {place.rank: place.host for place in record.places}
    return RunData(
        folder=folder,
        recipe=recipe,
        target=_read_target(folder, summary),
        record=record,
        summary=summary,
        rows=rows,
        ranks=[_add_up(rank, hosts.get(rank, "unknown host"), epochs) for rank, epochs in ranks.items()],
        illustration=illustration,
        why_no_pictures=why_no_pictures,
    )


def _read_target(folder: RunFolder, summary: Summary | None) -> Target | None:
    """What a run is judged by, as its outcome says, or its progress before it has one."""
    if summary is not None:
        return Target(metric=summary.metric, threshold=summary.target, direction=cast(Direction, summary.direction))
    if not (folder.path / PROGRESS_FILE).exists():
        return None
    note = folder.understand(PROGRESS_FILE, lambda tree: from_json(ProgressNote, tree), folder.read_json(PROGRESS_FILE))
    return Target(**note.target)


def _read_pictures(folder: RunFolder, recipe: ShownRecipe, *, is_complete: bool) -> tuple[Illustration | None, str]:
    """What the run shows of its model; if nothing, the reason in words for the page."""
    try:
        found = read_illustration(folder)
    except RunFolderError as error:
        return None, f"There are no pictures: {error}"
    if found is not None or recipe.task not in TASKS or not isinstance(TASKS[recipe.task].recipe().task, Illustrated):
        return found, ""
    if not is_complete:
        return None, "There are no pictures yet: a run illustrates its model when it is complete."
    return None, f"There are no pictures: the run left none. It was {folder.made_by}."


def _add_up(rank: int, host: str, epochs: Sequence[RankRow]) -> RankTime:
    return RankTime(
        rank=rank,
        host=host,
        wall_seconds=sum(epoch.step_wall_seconds for epoch in epochs),
        phase_seconds={
            name: sum(epoch.phase_seconds[name] for epoch in epochs) for name in STEP_PHASES + BESIDE_PHASES
        },
    )
