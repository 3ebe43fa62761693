"""The end of a run on the terminal."""

from pathlib import Path

import pytest

from deepex.api import Run
from deepex.cli.output.outcome import print_outcome
from deepex.record.folder import RunFolder
from deepex.record.rows import Advice, Diagnosis, Summary
from deepex.record.typed_json import to_json
from tests.rows import summary

DIAGNOSIS = Diagnosis(
    bound="imbalance",
    verdict="Bound by imbalance: 28 % of a step waits for rank 3 on n[2], slower in computing.",
    evidence=("A step takes 17 ms.",),
    advice=(Advice(change="--sync local:8", gain=1.3, sentence="About 1.30 times."),),
    shares={},
    thin=False,
)


def outcome(found: Summary, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    folder = RunFolder(tmp_path)
    folder.write_json("summary.json", to_json(found))
    folder.recipe.touch()
    folder.page.touch()
    print_outcome(Run(tmp_path), quiet=False)
    return capsys.readouterr().out


def test_the_verdict_stands_behind_the_phases_with_numbers_and_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = outcome(summary(diagnosis=DIAGNOSIS), tmp_path, capsys).splitlines()
    start = lines.index(DIAGNOSIS.verdict)
    assert lines[start + 1 :] == [
        "  - A step takes 17 ms.",
        "What would help most:",
        "  --sync local:8",
        "    About 1.30 times.",
        f"page: {tmp_path / 'report.html'}",
    ]


def test_a_summary_without_a_diagnosis_prints_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = outcome(summary(), tmp_path, capsys)
    assert "Bound" not in said
    assert "where the time went" in said


def test_a_run_without_a_target_claims_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = outcome(summary(target=None, epochs_to_target=None, target_reached=False), tmp_path, capsys)
    assert not any(line.startswith("target") for line in said.splitlines())
    assert "rmse" in said


@pytest.mark.parametrize(("epochs", "text"), [(1, "1 epoch"), (1200, "1,200 epochs")])
def test_epochs_are_counted_as_people_do(
    epochs: int, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = outcome(summary(epochs=epochs, epochs_to_target=epochs), tmp_path, capsys).splitlines()
    assert [line.strip().endswith(f" {text}") for line in lines if line.startswith(("target", "time"))] == [True, True]
    said = outcome(summary(target_reached=False, epochs_to_target=None), tmp_path, capsys)
    assert "not reached: give it more stop.epochs" in said
