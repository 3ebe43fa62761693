"""Epochs in TensorBoard's event files, written from real rows and read back by TensorBoard itself."""

import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from deepex.errors import UsageError
from deepex.launch.start import start
from deepex.record.rows import EpochRow, read_epochs
from deepex.record.sinks.tensorboard import EventLog
from deepex.train.recipe import Recipe, StopConfig

STARTED = "2026-01-31T12:00:00+00:00"


@pytest.fixture
def rows(line_recipe: Recipe, tmp_path: Path) -> list[EpochRow]:
    """The rows of a real run of four epochs."""
    recipe = replace(line_recipe, stop=StopConfig(epochs=4, target=0.0))
    return read_epochs(start(recipe, tmp_path / "made", "quiet"))


def write(folder: Path, rows: list[EpochRow], started: str = STARTED) -> None:
    log = EventLog(folder, "run", started)
    log.add(rows)
    log.close()


def read(folder: Path) -> dict[str, dict[int, float]]:
    """By tag, the value of each step; a step that is written twice fails."""
    found = EventAccumulator(str(folder / "run"), size_guidance={"scalars": 0}).Reload()
    events = {tag: found.Scalars(tag) for tag in found.Tags()["scalars"]}
    for tag, scalars in events.items():
        assert len({event.step for event in scalars}) == len(scalars), f"{tag} has steps twice"
    return {tag: {event.step: event.value for event in scalars} for tag, scalars in events.items()}


def test_what_tensorboard_reads_is_what_the_run_wrote(rows: list[EpochRow], tmp_path: Path) -> None:
    rows = [replace(row, beside={"mae": 0.1}, noise_scale=12.5, energy_joules=None) for row in rows]
    write(tmp_path, rows)
    found = read(tmp_path)
    for row in rows:
        wanted = {
            "loss/loss": row.loss,
            f"metric/{row.metric}": row.value,
            "metric/mae": 0.1,
            "learning_rate": row.learning_rate,
            "samples_per_second": row.samples_per_second,
            "noise_scale": 12.5,
            **{f"phase_seconds/{name}": seconds for name, seconds in row.phase_seconds.items()},
        }
        assert {tag: steps[row.epoch] for tag, steps in found.items()} == pytest.approx(wanted, rel=1e-6)


def test_parts_of_the_loss_stand_beside_it(rows: list[EpochRow], tmp_path: Path) -> None:
    write(tmp_path, [replace(rows[0], losses={**rows[0].losses, "divergence": 0.25})])
    assert read(tmp_path)["loss/divergence"] == {1: 0.25}


def test_an_epoch_has_the_time_at_which_it_ended(rows: list[EpochRow], tmp_path: Path) -> None:
    write(tmp_path, rows)
    found = EventAccumulator(str(tmp_path / "run")).Reload().Scalars("loss/loss")
    began = datetime.fromisoformat(STARTED).timestamp()
    assert [event.wall_time for event in found] == [pytest.approx(began + row.seconds, abs=1e-3) for row in rows]


def test_started_again_it_adds_only_what_is_new(rows: list[EpochRow], tmp_path: Path) -> None:
    write(tmp_path, rows[:2])
    write(tmp_path, rows[:2])
    assert len(list((tmp_path / "run").iterdir())) == 1
    write(tmp_path, rows)
    assert sorted(read(tmp_path)["loss/loss"]) == [1, 2, 3, 4]


def test_an_epoch_that_was_cut_off_is_written_again(rows: list[EpochRow], tmp_path: Path) -> None:
    write(tmp_path, rows)
    (path,) = (tmp_path / "run").iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    write(tmp_path, rows)
    found = EventAccumulator(str(tmp_path / "run")).Reload()
    assert [event.step for event in found.Scalars("loss/loss")] == [1, 2, 3, 4]


def test_another_run_of_the_same_name_is_not_mixed_in(rows: list[EpochRow], tmp_path: Path) -> None:
    write(tmp_path, rows)
    with pytest.raises(UsageError, match=r"holds the events of another run of that name.*Choose another --tensorboard"):
        write(tmp_path, rows, "2026-02-01T12:00:00+00:00")


def test_a_folder_that_can_t_be_written_is_told_with_the_cure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"can't be written: Not a directory\..*Choose another with --tensorboard"):
        EventLog(tmp_path / "file", "run")


def test_without_the_package_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError, match=r"tensorboard is not installed: pip install 'deepex\[tensorboard\]'"):
        EventLog(tmp_path, "run")
