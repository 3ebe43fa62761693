"""What people read while a run goes on."""

from typing import Any

import pytest

from deepex.record.progress import build_listener


def epoch(bound: str | None, number: int = 1, *, thin: bool = False) -> dict[str, Any]:
    row: dict[str, Any] = {
        "epoch": number, "loss": 0.5, "metric": "rmse", "value": 0.2, "samples_per_second": 1000.0, "seconds": 2.0,
    }  # fmt: skip
    advice = [{"change": "--sync local:8", "gain": 1.31, "sentence": "About 1.31 times."}] if bound == "latency" else []
    if bound is not None:
        row["diagnosis"] = {"bound": bound, "verdict": f"Bound by {bound}.", "advice": advice, "thin": thin}
    return row


def lines(capsys: pytest.CaptureFixture[str], *rows: dict[str, Any]) -> list[str]:
    listener = build_listener("lines", 9, "< 0.1")
    for row in rows:
        listener.epoch(row)
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("Bound")]


def test_the_bound_is_told_once_with_what_would_help(capsys: pytest.CaptureFixture[str]) -> None:
    told = lines(capsys, *(epoch("latency", number) for number in range(1, 5)))
    assert told == ["Bound by latency. What would help most: --sync local:8 (about 1.31 × the samples/s)."]


def test_another_bound_is_told_when_it_has_stood_for_two_epochs(capsys: pytest.CaptureFixture[str]) -> None:
    bounds = ["computation", "input", "computation", "input", "input", "input"]
    told = lines(capsys, *(epoch(bound, number) for number, bound in enumerate(bounds, start=1)))
    assert told == ["Bound by computation.", "Bound by input."]


def test_thin_evidence_and_rows_without_a_diagnosis_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys, epoch(None), epoch("input", thin=True)) == []


def test_the_bar_tells_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    listener = build_listener("bar", 9, "< 0.1")
    listener.epoch(epoch("latency"))
    listener.close()
    assert "Bound by latency." in capsys.readouterr().out
