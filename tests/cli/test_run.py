"""The command line as a user meets it: results, and what wrong input says."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from deepex.cli.app import run_command
from deepex.tasks.protein import packaged_file
from tests.conftest import Command

SHORT = ("--until", "0", "stop.epochs=1")


def test_a_short_run_prints_a_line_an_epoch_the_phases_and_the_page_last(
    deepex: Command, tmp_path: Path, chains: Path
) -> None:
    done = deepex(
        "run", "protein", *SHORT, f"task.file={chains}", "data.batch=16", "--out", "run", "--json", "summary.json"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "page: run/report.html"
    assert "epoch   1/1" in done.stdout
    assert "not reached" in done.stdout
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary == json.loads((tmp_path / "run" / "summary.json").read_text())
    wanted = {
        "task", "ranks", "sync", "precision", "fabric", "metric", "value", "target", "target_reached", "epochs",
        "epochs_to_target", "seconds", "seconds_to_target", "samples_per_second", "phase_seconds", "step_wall_seconds",
        "share_of_peak", "weights_sha256",
    }  # fmt: skip
    assert wanted <= set(summary)
    step = [summary["phase_seconds"][name] for name in ("input", "forward", "backward", "update", "sync")]
    assert abs(sum(step) / summary["step_wall_seconds"] - 1) < 0.02
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"recipe.toml", "record.json", "metrics.jsonl", "phases", "checkpoints", "report.html"} <= files


def test_a_run_s_recipe_runs_again_and_gives_the_same_bits(deepex: Command, tmp_path: Path, chains: Path) -> None:
    first = deepex("run", "protein", *SHORT, f"task.file={chains}", "data.batch=16", "--out", "first", "--quiet")
    assert first.stdout == "page: first/report.html\n"
    again = deepex("run", "first/recipe.toml", "--out", "again", "--json", "-")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["weights_sha256"] == _summary(tmp_path / "first")["weights_sha256"]


def test_the_page_of_a_run_can_be_written_again(deepex: Command, tmp_path: Path, chains: Path) -> None:
    deepex("run", "protein", *SHORT, f"task.file={chains}", "--no-page", "--out", "run", "--quiet")
    assert not (tmp_path / "run" / "report.html").exists()
    assert deepex("report", "run").stdout == "page: run/report.html\n"
    assert (tmp_path / "run" / "report.html").stat().st_size > 100_000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "protien"], "Did you mean 'protein'?"),
        (["run", "protein", "--sync", "allreduse"], "Did you mean 'allreduce'?"),
        (["run", "protein", "--sync", "local:0"], "whole number of steps from 1"),
        (["run", "protein", "data.bach=3"], "Did you mean 'data.batch'?"),
        (["run", "protein", "data.batch=many"], "Allowed: a whole number."),
        (["run", "protein", "data.batch=0"], "Allowed: whole numbers from 1."),
        (["run", "protein", "--precision", "fp8"], "Allowed: bf16, fp16, fp32."),
        (["run", "protein", "optimiser.name=adm"], "Did you mean 'adam'? Allowed: "),
        (["run", "protein", "--json", "absent/summary.json"], "--json absent/summary.json can't be written"),
        (["run", "protein", "layout=channels"], "Allowed: auto, channels_last, contiguous."),
        (["run", "protein", "--size", "huge"], "Allowed: paper, small."),
        (["run", "protein", "--ranks", "-1"], "Allowed: whole numbers from 1"),
        (["run", "protein", "--ranks", "200"], "Use data.batch=60 or less, or fewer ranks."),
        (["run", "protein", "data.batch=1", "--ranks", "12001"], "Use at most 12000 ranks."),
        (["run", "protein", "task.file=nothing.h5"], "deepex data make protein"),
        (["run", "nothing.toml"], "No such file"),
        (["run", "protein", "--frobnicate"], "No such option"),
        (["resume", "nothing"], "not a run directory"),
        (["report", "nothing"], "not a run directory"),
        (["data", "info", "nothing.h5"], "there is no data file"),
        (["data", "make", "protien", "--out", "a.h5"], "Did you mean 'protein'?"),
        (["data", "make", "protein", "--out", "a.h5", "structure=b.pdb"], "there is no structure b.pdb"),
    ],
)
def test_wrong_usage_says_the_cure_exits_2_and_leaves_nothing(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(words) == 2
    told = capsys.readouterr().err
    assert said in " ".join(told.split())
    assert "Traceback" not in told
    assert not any(tmp_path.iterdir())


def test_an_existing_run_directory_is_never_overwritten(deepex: Command, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("keep me")
    done = deepex("run", "protein", "--out", "mine")
    assert done.returncode == 2
    assert "exists already" in done.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes"]


def test_a_damaged_data_file_is_named_with_its_hash(deepex: Command, tmp_path: Path) -> None:
    content = bytearray(packaged_file().read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "bad.h5").write_bytes(content)
    done = deepex("run", "protein", "task.file=bad.h5")
    assert done.returncode == 2
    assert re.search(
        r"bad.h5 is damaged: samples \d+ to \d+ of '\w+' have sha256 [0-9a-f]{64}, the header says", done.stderr
    )


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Path:
    """A real file system of 300 kB; making one needs root, as in the containers that tests run in."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)], check=True, timeout=20)
    return disk


def test_a_full_disk_is_told_with_the_cure(deepex: Command, tiny_disk: Path) -> None:
    try:
        done = deepex("run", "protein", *SHORT, "--out", "disk/run", "--ranks", "2")
        assert done.returncode == 2, done.stderr
        assert "disk/run" in done.stderr
        assert "free some space" in done.stderr
        assert "Traceback" not in done.stderr
    finally:
        subprocess.run(["umount", str(tiny_disk)], check=True, timeout=20)


def test_a_place_without_write_permission_is_told_with_the_cure(deepex: Command, tiny_disk: Path) -> None:
    try:
        subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True, timeout=20)
        done = deepex("run", "protein", "--out", "disk/run")
        assert done.returncode == 2
        assert "Read-only file system. Choose a place that you may write to with --out." in done.stderr
    finally:
        subprocess.run(["umount", str(tiny_disk)], check=True, timeout=20)


def test_tasks_and_data_can_be_looked_at(deepex: Command) -> None:
    assert "protein" in deepex("tasks").stdout
    told = deepex("data", "info", "protein").stdout
    assert "16,000 samples" in told
    assert "(verified)" in told


def _summary(folder: Path) -> dict[str, object]:
    return dict(json.loads((folder / "summary.json").read_text()))
