"""What a page is made of: everything that a run directory holds, read and added up.

It knows the files of a run, and nothing of how they are shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from deepex.diagnosis.evidence import Circumstances, Evidence
from deepex.diagnosis.sentences import Diagnosis, diagnose
from deepex.launch.recipes import read_recipe
from deepex.record.folder import RunFolder
from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.report.run.sections.image_grid import illustrate
from deepex.train.recipe import Recipe
from deepex.train.task import Illustration

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RankTime:
    """Where one rank's time went, over all epochs of the run."""

    rank: int
    host: str
    wall_seconds: float
    phase_seconds: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Material:
    """A run as its directory tells it. `summary` is None for a run that is not complete.

    `diagnosis` is what the run found; of one that did not judge itself, what its phases show; None before its first
    epoch has ended.
    """

    folder: RunFolder
    recipe: Recipe
    record: Row
    summary: Row | None
    rows: list[Row]
    ranks: list[RankTime]
    diagnosis: Diagnosis | None
    illustration: Illustration | None
    why_no_pictures: str

    @property
    def metric(self) -> str:
        return self.recipe.target.metric

    @property
    def wall_seconds(self) -> float:
        """Wall time of all steps, the mean over ranks."""
        return fmean(rank.wall_seconds for rank in self.ranks)

    @property
    def samples_per_second(self) -> float:
        """Samples of all ranks a second of step wall time."""
        timed = [row for row in self.rows if row["samples_per_second"] > 0]
        seconds = sum(row["samples"] / row["samples_per_second"] for row in timed)
        return sum(row["samples"] for row in timed) / seconds if seconds else 0.0

    def phase_seconds(self, phase: str) -> float:
        """Seconds of a phase, the mean over ranks."""
        return fmean(rank.phase_seconds[phase] for rank in self.ranks)

    def phase_share(self, phase: str) -> float:
        """A phase's share of the steps' wall time."""
        return self.phase_seconds(phase) / self.wall_seconds if self.wall_seconds else 0.0


def read_material(folder: RunFolder) -> Material:
    """Read a run directory, finished or not, and let its task illustrate the last checkpoint."""
    recipe = read_recipe(folder.recipe)
    record = folder.read_json("record.json")
    illustration, why_no_pictures = illustrate(folder, recipe)
    summary = folder.read_json("summary.json") if (folder.path / "summary.json").exists() else None
    rows: list[Row] = [dict(row) for row in folder.read_lines("metrics.jsonl")]
    phases = _read_phases(folder)
    return Material(
        folder=folder,
        recipe=recipe,
        record=record,
        summary=summary,
        rows=rows,
        ranks=_read_ranks(phases, record),
        diagnosis=_find_diagnosis(summary or (rows[-1] if rows else {}), recipe, phases, record),
        illustration=illustration,
        why_no_pictures=why_no_pictures,
    )


def _read_phases(folder: RunFolder) -> dict[int, list[dict[str, Any]]]:
    """Each rank's rows, an epoch each."""
    paths = sorted((folder.path / "phases").glob("rank*.jsonl"))
    rows = {int(path.stem.removeprefix("rank")): folder.read_lines(f"phases/{path.name}") for path in paths}
    return {rank: epochs for rank, epochs in rows.items() if epochs}


def _read_ranks(phases: Mapping[int, list[dict[str, Any]]], record: Row) -> list[RankTime]:
    hosts = {place["rank"]: place["host"] for place in record.get("places", [])}
    return [_add_up(rank, hosts.get(rank, "unknown host"), epochs) for rank, epochs in phases.items()]


def _find_diagnosis(
    outcome: Row, recipe: Recipe, phases: Mapping[int, list[dict[str, Any]]], record: Row
) -> Diagnosis | None:
    if outcome.get("diagnosis"):
        return Diagnosis.from_json(outcome["diagnosis"])
    circumstances = Circumstances(
        sync=recipe.sync,
        batch=recipe.data.batch,
        precision=recipe.precision,
        memory_gib=recipe.data.memory_gib,
        stage=recipe.data.stage,
    )
    rows = [phases.get(rank, []) for rank in range(max(phases, default=-1) + 1)]
    evidence = Evidence.gather(rows, circumstances, places=record.get("places", []))
    return None if evidence is None else diagnose(evidence)


def _add_up(rank: int, host: str, epochs: list[dict[str, Any]]) -> RankTime:
    return RankTime(
        rank=rank,
        host=host,
        wall_seconds=sum(epoch["step_wall_seconds"] for epoch in epochs),
        phase_seconds={
            name: sum(epoch["phase_seconds"][name] for epoch in epochs) for name in STEP_PHASES + BESIDE_PHASES
        },
    )
