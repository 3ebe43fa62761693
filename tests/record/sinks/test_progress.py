"""What people read while a run goes on."""

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from deepex.record.folder import RunFolder
from deepex.record.rows import Advice, Diagnosis, EpochRow
from deepex.record.sinks.progress import ProgressFile, build_listener
from tests.rows import epoch_row


def epoch(bound: str | None, number: int = 1, *, thin: bool = False) -> EpochRow:
    if bound is None:
        return epoch_row(epoch=number)
    advice = (Advice(change="--sync local:8", gain=1.31, sentence="About 1.31 times."),) if bound == "latency" else ()
    found = Diagnosis(bound=bound, verdict=f"Bound by {bound}.", evidence=(), advice=advice, shares={}, thin=thin)
    return epoch_row(epoch=number, diagnosis=found)


def lines(capsys: pytest.CaptureFixture[str], *rows: EpochRow) -> list[str]:
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


class Heard:
    """A listener that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def say(self, text: str) -> None:
        self.told.append(("say", text))

    def step(self, epoch: int, step: int, steps: int, seconds: float) -> None:
        self.told.append(("step", epoch, step, steps, seconds))

    def epoch(self, row: EpochRow) -> None:
        self.told.append(("epoch", row.epoch))

    def close(self) -> None:
        self.told.append(("close",))


TARGET = {"metric": "rmse", "threshold": 0.1, "direction": "min"}


def test_where_a_run_stands_is_noted_at_most_every_two_seconds(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    listener = ProgressFile(Heard(), folder, 50, TARGET)
    assert (folder.read_json("progress.json")["step"], folder.read_json("progress.json")["ended"]) == (0, False)
    noted = []
    for number in range(100):
        listener.step(2, number + 1, 500, 61.2 + 0.1 * number)
        noted.append(folder.read_json("progress.json")["step"])
    steps = sorted(set(noted))
    assert steps[0] == 1
    assert len(steps) > 1
    assert all(after - before >= 20 for before, after in pairwise(steps))
    note = folder.read_json("progress.json")
    assert abs(note.pop("time") - time.time()) < 60
    seconds = pytest.approx(61.2 + 0.1 * (steps[-1] - 1))
    here = {"epoch": 3, "step": steps[-1], "steps": 500, "seconds": seconds, "ended": False}
    assert note == {**here, "epochs": 50, "target": TARGET, "said": []}
    listener.close()
    note = folder.read_json("progress.json")
    assert (note["epoch"], note["step"], note["ended"]) == (3, 100, True)
    assert [path.name for path in folder.path.glob("progress*")] == ["progress.json"]


def test_who_listens_hears_everything_and_a_note_that_fails_ends_nothing(tmp_path: Path) -> None:
    heard = Heard()
    listener = ProgressFile(heard, RunFolder(tmp_path / "gone"), 50, TARGET)
    listener.say("hello")
    listener.step(0, 1, 9, 0.5)
    listener.epoch(epoch("input"))
    listener.close()
    assert heard.told == [("say", "hello"), ("step", 0, 1, 9, 0.5), ("epoch", 1), ("close",)]
    assert not (tmp_path / "gone").exists()
