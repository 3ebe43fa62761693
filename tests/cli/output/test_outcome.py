"""The end of a run on the terminal."""

from pathlib import Path
from typing import Any

import pytest

from deepex.api import Run
from deepex.cli.output.outcome import print_outcome
from deepex.record.folder import RunFolder
from deepex.record.phases import BESIDE_PHASES, STEP_PHASES

SUMMARY: dict[str, Any] = {
    "metric": "rmse",
    "value": 0.2,
    "target": 0.1,
    "target_reached": False,
    "epochs": 3,
    "epochs_to_target": None,
    "seconds": 9.0,
    "samples_per_second": 1000.0,
    "gflops_per_second": 20.0,
    "share_of_peak": 0.4,
    "precision": "fp32",
    "step_wall_seconds": 5.0,
    "phase_seconds": dict.fromkeys(STEP_PHASES + BESIDE_PHASES, 1.0),
}
DIAGNOSIS = {
    "bound": "imbalance",
    "verdict": "Bound by imbalance: 28 % of a step waits for rank 3 on n[2], slower in computing.",
    "evidence": ["A step takes 17 ms."],
    "advice": [{"change": "--sync local:8", "gain": 1.3, "sentence": "About 1.30 times."}],
}


def outcome(summary: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    folder = RunFolder(tmp_path)
    folder.write_json("summary.json", summary)
    folder.page.touch()
    print_outcome(Run(folder), quiet=False)
    return capsys.readouterr().out


def test_the_verdict_stands_behind_the_phases_with_numbers_and_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = outcome({**SUMMARY, "diagnosis": DIAGNOSIS}, tmp_path, capsys).splitlines()
    start = lines.index(str(DIAGNOSIS["verdict"]))
    assert lines[start + 1 :] == [
        "  - A step takes 17 ms.",
        "What would help most:",
        "  --sync local:8",
        "    About 1.30 times.",
        f"page: {tmp_path / 'report.html'}",
    ]


def test_a_summary_without_a_diagnosis_prints_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = outcome(SUMMARY, tmp_path, capsys)
    assert "Bound" not in said
    assert "where the time went" in said
