"""Data that a task makes for itself: the same bytes by one rank, by two, and after a stop."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from deepex.cli.app import run_command
from deepex.data.packing.packed import PackedSource
from deepex.errors import UsageError
from deepex.launch.data import make_missing_data
from deepex.launch.launchers.launcher import Launched
from deepex.tasks.data.cosmoflow import CosmoflowData
from deepex.tasks.data.make import make_data
from deepex.world import World
from tests.conftest import Command

SMALL = CosmoflowData(boxes=12, cube=16, box=32, cell_mpc=4.0)
WORDS = ("data", "make", "cosmoflow", "boxes=12", "cube=16", "box=32")


@dataclass(frozen=True, kw_only=True)
class SmallUniverses:
    """What a run asks of a task that makes its own data."""

    path: Path
    name: str = "cosmoflow"
    making: CosmoflowData = SMALL


def test_a_stopped_command_goes_on_and_two_ranks_make_what_one_makes(tmp_path: Path) -> None:
    alone = make_data(SMALL, tmp_path / "alone.h5")
    command = [sys.executable, "-m", "deepex", *WORDS, "--out", "two.h5", "--ranks", "2"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, start_new_session=True) as killed:
        _wait_for_a_block(tmp_path / "two.h5.parts" / "journal.jsonl", killed)
        os.killpg(killed.pid, signal.SIGKILL)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "two.h5: 96 samples" in done.stdout
    assert alone.content_sha256 in done.stdout
    assert (tmp_path / "two.h5").read_bytes() == (tmp_path / "alone.h5").read_bytes()
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert again.returncode == 2
    assert "two.h5 exists already" in again.stderr


def test_a_run_makes_what_is_missing_once_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = SmallUniverses(path=tmp_path / "data" / "universes.h5")
    make_missing_data(task, None, "lines")  # type: ignore[arg-type]  # of a task, it asks no more than this
    told = capsys.readouterr().out
    assert "universes.h5 is not there: making 96 samples on" in told
    assert PackedSource(task.path).content_sha256[:16] in told
    make_missing_data(task, None, "lines")  # type: ignore[arg-type]
    assert capsys.readouterr().out == ""


def test_ranks_of_a_launcher_are_told_to_make_it_together(tmp_path: Path) -> None:
    launched = Launched(world=World(rank=0, size=4, launcher="srun"), address="localhost:1")
    with pytest.raises(UsageError, match="srun … deepex data make cosmoflow"):
        make_missing_data(SmallUniverses(path=tmp_path / "x.h5"), launched, "quiet")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data", "make", "atomai", "probes_per_crystal=0"], "probes_per_crystal = 0. Allowed: whole numbers from 1."),
        (["data", "make", "atomai", "semi_angle_mrad=4,80"], "a grid of 0.104 angstrom holds angles up to"),
        (["data", "make", "atomai", "semi_angle_mrad=4"], "is a list of 1. Allowed: a list of 2, each a number."),
        (["data", "make", "atomai", "crystals=Al,Unobtainium"], "unknown crystal 'Unobtainium'"),
        (["data", "make", "atomai", "thickness_angstrom=400,1e9"], "GiB. Allowed: 8. Ask for fewer thicknesses"),
        (["data", "make", "atomai", "crystals=Al"], "Allowed: two or more, each named once."),
        (["data", "make", "cosmoflow", "box=48"], "Allowed: an even cube"),
        (["data", "make", "cosmoflow", "cell_mpc=20"], "cell"),
        (["data", "make", "cosmoflow", "--size", "huge"], "Allowed: medium, paper, small."),
        (["data", "make", "imagenet"], "Expected is a tree ROOT/train/CLASS"),
        (["run", "imagenet"], "deepex run fashion"),
        (["run", "fashion", "task.folder=nothing"], "apt-get install dataset-fashion-mnist"),
        (["run", "cosmoflow", "task.dropout=1"], "Allowed: numbers from 0 to below 1."),
    ],
)
def test_what_can_t_be_made_is_said_before_anything_is_simulated(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(words) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


def test_all_ranks_of_a_launcher_make_it_together(deepex: Command, tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "deepex"]
    done = subprocess.run(
        [*launcher, *WORDS, "--out", "together.h5"], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("together.h5: 96 samples") == 1
    assert PackedSource(tmp_path / "together.h5").content_sha256 in done.stdout


def _wait_for_a_block(journal: Path, running: subprocess.Popen[bytes]) -> None:
    """Until the first block is noted."""
    while not (journal.exists() and journal.read_text()):
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"ended before it made a block, with exit code {running.wait(timeout=0.05)}")
