"""Faults on purpose: a run of real ranks of which one is killed, and whether the others end as they should."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from deepex.testing.ranks import start_ranks

TIMEOUT_SECONDS = 15.0
SPARE_SECONDS = 15.0  # to name who is gone and to leave, on a machine with more ranks than cores
SECONDS_TO_START = 240.0


def kill_one(sync: str, victim: int, seconds: float, *, num_ranks: int = 3, fabric: str = "auto") -> tuple[float, str]:
    """Train the protein task, and kill one rank `seconds` after its first epoch.

    Returns how long the others took to end, and what was wrong with it; nothing if all ended within the timeout with
    exit code 1, and the rank and its host were named.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        settings = [f"world.timeout_seconds={TIMEOUT_SECONDS:g}", "stop.epochs=100000", "stop.target=0.0001"]
        command = [sys.executable, "-m", "deepex", "run", "protein", "--sync", sync, "--fabric", fabric]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ranks = start_ranks([*command, "--out", str(out), *settings], num_ranks, environment, Path(folder))
        try:
            if not _appears(out / "metrics.jsonl", ranks):
                return 0.0, f"no epoch within {SECONDS_TO_START:g} s: {_told(Path(folder))}"
            time.sleep(seconds)
            ranks[victim].kill()
            begun = time.monotonic()
            others = [rank for number, rank in enumerate(ranks) if number != victim]
            for rank in others:
                try:
                    rank.wait(max(0.1, begun + TIMEOUT_SECONDS + SPARE_SECONDS - time.monotonic()))
                except subprocess.TimeoutExpired:
                    return time.monotonic() - begun, f"a rank still waits: {_told(Path(folder))}"
            return time.monotonic() - begun, _judge(others, victim, _told(Path(folder)))
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()


def _judge(others: list[subprocess.Popen[bytes]], victim: int, told: str) -> str:
    codes = [rank.returncode for rank in others]
    if set(codes) != {1}:
        return f"exit codes {codes} instead of 1: {told}"
    return "" if f"rank {victim} on " in told else f"the rank is not named: {told}"


def _told(folder: Path) -> str:
    """The end of what each rank said."""
    return " | ".join(path.read_text()[-1500:] for path in sorted(folder.glob("rank*.txt")))


def _appears(path: Path, ranks: list[subprocess.Popen[bytes]]) -> bool:
    end = time.monotonic() + SECONDS_TO_START
    while not path.exists():
        if time.monotonic() > end or any(rank.poll() is not None for rank in ranks):
            return False
        time.sleep(0.05)
    return True
