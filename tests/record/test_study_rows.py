"""A study's files, read into frozen values and written again: those of today and those that version 0.1 made."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deepex.errors import RunFolderError
from deepex.record.folder import RunFolder
from deepex.record.study_rows import StudyOutcome, read_states, read_study, write_states, write_study
from deepex.study import StudyFolder, read_outcome
from tests.rows import run_state

FILES = Path(__file__).parents[1] / "files" / "version_0_1" / "study"


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    """A copy of a study that version 0.1 really made."""
    return StudyFolder.open(Path(shutil.copytree(FILES, tmp_path / "study")))


def change(folder: StudyFolder, name: str, **values: Any) -> None:
    folder.files.write_json(name, {**folder.files.read_json(name), **values})


def test_what_a_study_found_comes_back_as_it_was(study: StudyFolder) -> None:
    outcome = read_outcome(study)
    write_study(study.files, outcome)
    assert read_study(study.files) == outcome
    assert [len(cell.runs) for cell in outcome.cells] == [1, 1]


def test_cells_without_a_finished_run_come_back_too(study: StudyFolder) -> None:
    shutil.rmtree(study.runs / "2r_allreduce_seed0")
    outcome = read_outcome(study)
    write_study(study.files, outcome)
    cell = read_study(study.files).cells[1]
    assert cell == outcome.cells[1]
    assert (cell.runs, cell.speedup, cell.cutoffs, cell.energy_joules) == ((), None, (), None)


def test_study_json_of_version_0_1_is_read_and_says_the_same_again() -> None:
    tree = json.loads((FILES / "study.json").read_text())
    outcome = StudyOutcome.read(tree)
    again = outcome.to_plain()
    for cell in again["cells"]:
        cell["diagnosis"] = {key: cell["diagnosis"][key] for key in ("bound", "verdict", "advice")}  # all that 0.1 kept
    assert again == tree
    first = outcome.cells[0]
    assert (first.cutoffs[0].speedup, first.cutoffs[0].why_no_speedup) == (None, "not reached (0 of 1 runs)")
    assert first.energy_joules is None


def test_a_cell_of_version_0_1_without_a_diagnosis_has_none() -> None:
    tree = json.loads((FILES / "study.json").read_text())
    tree["cells"][0]["diagnosis"] = {"bound": None, "verdict": None, "advice": None}
    assert StudyOutcome.read(tree).cells[0].diagnosis is None


def test_keys_of_a_later_version_are_passed_over(study: StudyFolder) -> None:
    before = read_study(study.files)
    change(study, "study.json", of_a_later_version=3)
    assert read_study(study.files) == before


def edited(tree: Mapping[str, Any], path: str, value: object) -> Any:
    """The same plain values with one changed, or left out for None."""
    key, _, rest = path.partition(".")
    if isinstance(tree, list):
        return [edited(each, rest, value) if str(place) == key else each for place, each in enumerate(tree)]
    if rest:
        return {**tree, key: edited(tree[key], rest, value)}
    return {**{name: each for name, each in tree.items() if name != key}, **({} if value is None else {key: value})}


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("metric", None, "'metric' is missing"),
        ("direction", "up", "'direction' is 'up'"),
        ("cutoffs", "low", "'cutoffs' is 'low'"),
        ("cells", None, "'cells' is missing"),
        ("cells", "many", "'cells' is 'many'"),
        ("cells.0.ranks", None, "'ranks' is missing"),
        ("cells.0.cutoffs", None, "'cutoffs' is missing"),
        ("cells.0.cutoffs.0.speedup", 3, "'speedup' is 3"),
        ("cells.1.runs.0.curve.value", ["x"], "'value' is 'x'"),
        ("series.0.crossover.kind", "guessed", "'kind' is 'guessed'"),
    ],
)
def test_study_json_that_says_something_else_is_refused_with_its_cure(
    study: StudyFolder, path: str, value: object, told: str
) -> None:
    study.files.write_json("study.json", edited(study.files.read_json("study.json"), path, value))
    cure = f"Write it anew with: deepex study {study.path}"
    message = f"{study.path}/study.json is not what this version of deepex writes: {told}. {cure}"
    with pytest.raises(RunFolderError, match=re.escape(message)):
        read_study(study.files)


def test_how_far_runs_are_comes_back_as_it_was(tmp_path: Path) -> None:
    states = (
        run_state(state="running", began=12.5),
        run_state(name="b", state="failed", error="why", settings=("a=1",)),
    )
    write_states(RunFolder(tmp_path), states)
    assert read_states(RunFolder(tmp_path)) == states


def test_before_the_first_run_nothing_is_known_of_any(tmp_path: Path) -> None:
    assert read_states(RunFolder(tmp_path)) == ()


def test_cells_json_of_version_0_1_is_read() -> None:
    assert [(run.name, run.state) for run in read_states(RunFolder(FILES))] == [
        ("1r_alone_seed0", "done"),
        ("2r_allreduce_seed0", "done"),
    ]


@pytest.mark.parametrize(
    ("runs", "told"),
    [([{"name": "a"}], "'cell' is missing"), ([3], "'runs' is 3"), ("none", "'runs' is 'none'")],
)
def test_cells_json_that_says_something_else_is_refused_with_its_cure(
    study: StudyFolder, runs: object, told: str
) -> None:
    change(study, "cells.json", runs=runs)
    with pytest.raises(
        RunFolderError, match=re.escape(f"cells.json is not what this version of deepex writes: {told}")
    ) as refused:
        read_states(study.files)
    assert f"Delete it: deepex study {study.path} writes it anew" in str(refused.value)
    (study.path / "cells.json").unlink()
    assert read_outcome(study).states["done"] == 2
