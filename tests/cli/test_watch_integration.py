"""Watching real runs from another process: to their end, in a terminal, after a stop, and for TensorBoard."""

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from deepex.cli.app import run_command
from tests.conftest import Command
from tests.interpreter import PYTHON

SCRIPT = """
import sys
import deepex as dx, torch
from torch import nn
noise = torch.Generator().manual_seed(0)
x = torch.randn(2000, 4, generator=noise)
y = x @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]])
task = dx.task(
    name="plane", model=lambda: nn.Linear(4, 1), data={"x": x, "y": y}, target=0.0,
    loss=lambda model, batch: (model(batch["x"]) - batch["y"]).square().mean())
dx.run(task, out="run", settings={"stop.epochs": int(sys.argv[1]), "data.batch": 4})
"""
WATCH = (PYTHON, "-m", "deepex", "watch", "run")


@contextmanager
def start(folder: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """A process whose output can be read as it comes; gone afterwards, however the test ends."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def train(folder: Path, epochs: int) -> Iterator[subprocess.Popen[str]]:
    """A run in a process of its own, of a task of its own, that is about to train."""
    (folder / "own.py").write_text(SCRIPT)
    with start(folder, PYTHON, "own.py", str(epochs)) as run:
        read_until(run, "computing in fp32")
        yield run


def read_until(process: subprocess.Popen[str], wanted: str) -> str:
    """What a process prints up to some text; fails if it ends before."""
    assert process.stdout is not None
    assert process.stderr is not None
    read = ""
    while wanted not in read:
        character = process.stdout.read(1)
        assert character, read + process.stderr.read()
        read += character
    return read


def test_a_run_is_followed_to_its_end_and_into_tensorboard(tmp_path: Path, deepex: Command) -> None:
    with train(tmp_path, 3) as run:
        run.send_signal(signal.SIGSTOP)  # until the watcher looks
        with start(tmp_path, *WATCH, "--tensorboard", "events") as watch:
            header = read_until(watch, "\n")
            assert header.startswith("plane: 1 rank on ")
            assert header.endswith(", sync allreduce, fp32\n")
            run.send_signal(signal.SIGCONT)
            said, wrong = watch.communicate(timeout=200)
            assert watch.returncode == 0, wrong
    assert wrong == ""
    lines = said.splitlines()
    assert any(line.startswith("complete") for line in lines)
    assert [line[:11] for line in lines if line.startswith("epoch ")] == [f"epoch   {number}/3" for number in (1, 2, 3)]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert lines[-2].startswith(f"{summary['metric']} ")
    assert lines[-2].endswith("target < 0 not reached")
    assert lines[-1] == "page: run/report.html"
    assert (tmp_path / "run" / "report.html").exists()

    again = deepex("watch", "run", "--once", "--tensorboard", "events")
    assert again.returncode == 0, again.stderr
    assert "● complete" in again.stdout
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    events = EventAccumulator(str(tmp_path / "events" / "run")).Reload().Scalars("loss/loss")
    assert [event.step for event in events] == [1, 2, 3]
    assert [event.value for event in events] == pytest.approx([row["losses"]["loss"] for row in rows])


def test_ctrl_c_in_a_terminal_ends_the_watching_and_not_the_run(tmp_path: Path, deepex: Command) -> None:
    with train(tmp_path, 100_000) as run:
        ours, theirs = pty.openpty()
        variables = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
        watch = subprocess.Popen(WATCH, cwd=tmp_path, env=variables, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        drawn = ""
        while drawn.count("where epoch") < 2 or "\x1b[2K" not in drawn:
            drawn += os.read(ours, 4096).decode(errors="replace")
        assert "● running" in drawn
        assert "of 100,000" in drawn
        assert "left" in drawn
        watch.send_signal(signal.SIGINT)
        with suppress(OSError):  # how the end of a terminal is told
            while more := os.read(ours, 4096).decode(errors="replace"):
                drawn += more
        os.close(ours)
        assert watch.wait(60) == 0, drawn
        assert "Traceback" not in drawn
        assert run.poll() is None
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=100)

    stopped = deepex("watch", "run", "--once")
    assert stopped.returncode == 0, stopped.stderr
    said = " ".join(stopped.stdout.split())
    assert "● stopped early in epoch " in said
    assert "go on with: deepex resume run" in said

    metrics = tmp_path / "run" / "metrics.jsonl"
    rows = metrics.read_text().splitlines()
    metrics.write_text("\n".join([*rows[:-1], rows[-1][:200]]))
    torn = deepex("watch", "run", "--once")
    assert torn.returncode == 0, torn.stderr
    assert f"where epoch {len(rows) - 1} went" in torn.stdout


def test_what_is_no_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["watch", "nothing"]) == 2
    assert "nothing is not a run directory: it has no recipe.toml" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())
