"""What a page is made of: everything that a run directory holds, read and added up.

It knows the files of a run, and nothing of how they are shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from deepex.launch.recipes import read_recipe
from deepex.record.folder import RunFolder
from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.report.pictures import illustrate
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
    """A run as its directory tells it. `summary` is None for a run that is not complete."""

    folder: RunFolder
    recipe: Recipe
    record: Row
    summary: Row | None
    rows: list[Row]
    ranks: list[RankTime]
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
    return Material(
        folder=folder,
        recipe=recipe,
        record=record,
        summary=folder.read_json("summary.json") if (folder.path / "summary.json").exists() else None,
        rows=[dict(row) for row in folder.read_lines("metrics.jsonl")],
        ranks=_read_ranks(folder, record),
        illustration=illustration,
        why_no_pictures=why_no_pictures,
    )


def _read_ranks(folder: RunFolder, record: Row) -> list[RankTime]:
    hosts = {place["rank"]: place["host"] for place in record.get("places", [])}
    ranks = []
    for path in sorted((folder.path / "phases").glob("rank*.jsonl")):
        number = int(path.stem.removeprefix("rank"))
        epochs = folder.read_lines(f"phases/{path.name}")
        if epochs:
            ranks.append(_add_up(number, hosts.get(number, "unknown host"), epochs))
    return ranks


def _add_up(rank: int, host: str, epochs: list[dict[str, Any]]) -> RankTime:
    return RankTime(
        rank=rank,
        host=host,
        wall_seconds=sum(epoch["step_wall_seconds"] for epoch in epochs),
        phase_seconds={
            name: sum(epoch["phase_seconds"][name] for epoch in epochs) for name in STEP_PHASES + BESIDE_PHASES
        },
    )
