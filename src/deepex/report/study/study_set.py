"""Studies to be shown on one page: the cells of one, or of several side by side, as study.json has them.

It reads plain values, so that a page can be made anywhere; it knows neither figures nor HTML.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deepex.errors import RunFolderError, UsageError
from deepex.record.folder import RunFolder

Row = Mapping[str, Any]


class StudySet:
    """The cells and series of some studies of one task.

    Attributes:
        studies: their outcomes, as in study.json.
        cells: of all studies, from few ranks to many; each knows its study by its place in `studies`.
        series: lines to draw, each with a study, a name and settings.
    """

    def __init__(self, studies: Sequence[Row]) -> None:
        tasks = {(study["task"], study["metric"]) for study in studies}
        if len(tasks) > 1:
            told = ", ".join(f"{study['study']}: {study['task']}" for study in studies)
            raise UsageError(f"studies of different tasks ({told}). Allowed on one page: studies of one task.")
        self.studies = studies
        self.task, self.metric, self.direction = (str(studies[0][key]) for key in ("task", "metric", "direction"))
        self.cutoffs: list[float] = list(studies[0]["cutoffs"])
        if any(list(study["cutoffs"]) != self.cutoffs for study in studies):
            raise UsageError(
                "studies with different cut-offs. Allowed on one page: equal ones. Give --cutoffs to deepex study."
            )
        self.cells: list[Row] = [
            {**cell, "place": place} for place, study in enumerate(studies) for cell in study["cells"]
        ]
        self.series: list[Row] = [
            {**series, "place": place} for place, study in enumerate(studies) for series in study["series"]
        ]

    def group(self, each: Row) -> str:
        """Which study a cell or series is of; nothing where there is only one."""
        return str(self.studies[each["place"]]["study"]) if len(self.studies) > 1 else ""

    def base_of(self, cell: Row) -> Row:
        """The cell that another's speedup is counted from."""
        peers = [
            each
            for each in self.cells
            if each["place"] == cell["place"]
            and each["settings"] == cell["settings"]
            and each["series"] in ("", cell["series"])
        ]
        return min(peers, key=lambda each: int(each["ranks"]))

    def cells_of(self, series: Row) -> list[Row]:
        """The cells of a line, that on one rank first if there is one."""
        return [
            cell
            for cell in self.cells
            if cell["place"] == series["place"]
            and cell["settings"] == series["settings"]
            and cell["series"] in ("", series["name"])
        ]

    def number_of(self, cell: Row) -> int | None:
        """The place of a cell's line among all; None for a cell that begins them."""
        for number, series in enumerate(self.series):
            if cell["series"] and cell in self.cells_of(series):
                return number
        return None

    def say_series(self, series: Row) -> str:
        return ", ".join(filter(None, (self.group(series), str(series["name"]), *series["settings"])))

    def short_name(self, cell: Row) -> str:
        """A cell in a few words: '2 local:epoch'."""
        ranks = f"{cell['ranks']:,} rank{'s' * (cell['ranks'] > 1)}"
        return ", ".join(filter(None, (self.group(cell), ranks, str(cell["series"]), *cell["settings"])))

    def say_cutoff(self, place: int) -> str:
        return f"{self.metric} {'<' if self.direction == 'min' else '>'} {self.cutoffs[place]:g}"

    @property
    def environments(self) -> list[Row]:
        """Machines, commits and versions, each once."""
        found: dict[str, Row] = {}
        for study in self.studies:
            for each in study["environments"]:
                found.setdefault(repr({**each, "runs": None, "launchers": None}), each)
        return list(found.values())


def read_lineup(paths: Sequence[Path]) -> StudySet:
    """The outcomes of studies."""
    for path in paths:
        if not (path / "study.json").is_file():
            raise RunFolderError(f"{path} has no study.json. Give a directory that deepex study made.")
    return StudySet([RunFolder(path).read_json("study.json") for path in paths])
