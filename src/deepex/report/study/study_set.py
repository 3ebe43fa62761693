"""Studies to be shown on one page: the cells of one, or of several side by side, as study.json has them.

It reads files alone, so that a page can be made anywhere; it knows neither figures nor HTML.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deepex.errors import UsageError
from deepex.record.study_rows import CellRow, Environment, SeriesRow, StudyOutcome


@dataclass(frozen=True, kw_only=True)
class PlacedCell(CellRow):
    """A cell, with the place of its study among those on the page."""

    place: int


@dataclass(frozen=True, kw_only=True)
class PlacedSeries(SeriesRow):
    """A line to draw, with the place of its study among those on the page."""

    place: int


class StudySet:
    """The cells and series of some studies of one task.

    Attributes:
        studies: their outcomes, as in study.json.
        cells: of all studies, from few ranks to many.
        series: lines to draw.
    """

    def __init__(self, studies: Sequence[StudyOutcome]) -> None:
        tasks = {(study.task, study.metric) for study in studies}
        if len(tasks) > 1:
            told = ", ".join(f"{study.study}: {study.task}" for study in studies)
            raise UsageError(f"studies of different tasks ({told}). Allowed on one page: studies of one task.")
        first = studies[0]
        self.studies = studies
        self.task, self.metric, self.direction, self.cutoffs = first.task, first.metric, first.direction, first.cutoffs
        if any(study.cutoffs != self.cutoffs for study in studies):
            raise UsageError(
                "studies with different cut-offs. Allowed on one page: equal ones. Give --cutoffs to deepex study."
            )
        self.cells = [
            PlacedCell(place=place, **vars(cell)) for place, study in enumerate(studies) for cell in study.cells
        ]
        self.series = [
            PlacedSeries(place=place, **vars(series)) for place, study in enumerate(studies) for series in study.series
        ]

    def group(self, each: PlacedCell | PlacedSeries) -> str:
        """Which study a cell or series is of; nothing where there is only one."""
        return self.studies[each.place].study if len(self.studies) > 1 else ""

    def base_of(self, cell: PlacedCell) -> PlacedCell:
        """The cell that another's speedup is counted from."""
        peers = [
            each
            for each in self.cells
            if each.place == cell.place and each.settings == cell.settings and each.series in ("", cell.series)
        ]
        return min(peers, key=lambda each: each.ranks)

    def cells_of(self, series: PlacedSeries) -> list[PlacedCell]:
        """The cells of a line, that on one rank first if there is one."""
        return [
            cell
            for cell in self.cells
            if cell.place == series.place and cell.settings == series.settings and cell.series in ("", series.name)
        ]

    def number_of(self, cell: PlacedCell) -> int | None:
        """The place of a cell's line among all; None for a cell that begins them."""
        for number, series in enumerate(self.series):
            if cell.series and cell in self.cells_of(series):
                return number
        return None

    def say_series(self, series: PlacedSeries) -> str:
        return ", ".join(filter(None, (self.group(series), series.name, *series.settings)))

    def short_name(self, cell: PlacedCell) -> str:
        """A cell in a few words: '2 local:epoch'."""
        ranks = f"{cell.ranks:,} rank{'s' * (cell.ranks > 1)}"
        return ", ".join(filter(None, (self.group(cell), ranks, cell.series, *cell.settings)))

    def say_cutoff(self, place: int) -> str:
        return f"{self.metric} {'<' if self.direction == 'min' else '>'} {self.cutoffs[place]:g}"

    @property
    def environments(self) -> list[Environment]:
        """Machines, commits and versions, each once."""
        found: dict[str, Environment] = {}
        for study in self.studies:
            for each in study.environments:
                found.setdefault(repr(replace(each, runs=(), launchers=())), each)
        return list(found.values())
