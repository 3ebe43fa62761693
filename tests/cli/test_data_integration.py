"""Packing by several processes as a user meets it: stopped and gone on with, and under a launcher."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from deepex.data.packing.packed import PackedSource
from deepex.data.source import read_field
from tests.conftest import Command
from tests.interpreter import PYTHON

BIN = Path(PYTHON).parent
SECONDS = 100


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    """150 MiB of numbers, in 150 blocks."""
    values = np.lib.format.open_memmap(tmp_path / "frames.npy", mode="w+", dtype=np.float32, shape=(600, 65536))
    values[:, 0] = np.arange(600)
    return tmp_path / "frames.npy"


@pytest.fixture
def matrices(tmp_path: Path) -> Path:
    """8,000 matrices as text: seconds to read, in 24 blocks, so that a signal comes in time."""
    row = " ".join(["0.25"] * 28)
    below = f"{row}\n" * 27
    text = "\n".join(f"{number} {row[5:]}\n{below}" for number in range(8000))
    (tmp_path / "maps.txt").write_text(text)
    return tmp_path / "maps.txt"


def test_a_packing_that_is_stopped_goes_on_where_it_stood(deepex: Command, matrices: Path, tmp_path: Path) -> None:
    words = ["data", "pack", "maps.txt", "maps.h5", "--ranks", "2"]
    journal = tmp_path / "maps.h5.parts" / "journal.jsonl"
    command = [sys.executable, "-m", "deepex", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True, preexec_fn=_heed_interrupts
    ) as packing:
        _wait_for_a_line(journal)
        packing.send_signal(signal.SIGINT)
        _, said = packing.communicate(timeout=SECONDS)
    assert packing.returncode == 75, said
    assert said == "deepex: stopped; what is packed is kept. Go on with the same command.\n"
    assert 0 < len(journal.read_text().splitlines()) < 24
    assert not (tmp_path / "maps.h5").exists()

    done = deepex(*words)
    assert done.returncode == 0, done.stderr
    assert "(going on with an earlier try)" in done.stdout
    assert read_field(PackedSource(tmp_path / "maps.h5"), "matrix")[:, 0, 0].tolist() == list(range(8000))
    assert not journal.parent.exists()

    os.utime(matrices, ns=(0, 0))
    again = deepex("data", "pack", "maps.txt", "again.h5", "--ranks", "1")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "again.h5").read_bytes() == (tmp_path / "maps.h5").read_bytes()


def test_ranks_of_a_launcher_pack_together_and_one_speaks(deepex: Command, frames: Path, tmp_path: Path) -> None:
    assert deepex("data", "pack", "frames.npy", "one.h5").returncode == 0
    done = _mpirun(tmp_path, "data", "pack", "frames.npy", "two.h5")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("two.h5: 600 samples") == 1
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "two.h5").read_bytes()


def test_what_goes_wrong_under_a_launcher_is_told_once(tmp_path: Path) -> None:
    done = _mpirun(tmp_path, "data", "pack", "nothing.npy", "two.h5")
    assert done.returncode == 2
    assert done.stderr.count("there is nothing at nothing.npy") == 1
    assert not any(tmp_path.iterdir())


def _mpirun(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "mpirun"), "-n", "2", PYTHON, "-m", "deepex", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)


def _heed_interrupts() -> None:
    """As in a terminal: what a shell starts in the background ignores Ctrl-C, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _wait_for_a_line(journal: Path) -> None:
    end = time.monotonic() + SECONDS
    while not (journal.exists() and "\n" in journal.read_text()):
        assert time.monotonic() < end, f"nothing came into {journal}"
