"""The MPI fabric under the mpirun of the mpich wheel, where ranks leave, die and stop.

All ranks are started at once, because most of their time goes into starting and waiting; each test looks at some.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from deepex.errors import ConfigError
from deepex.fabric.mpi.thread import mpi_thread
from tests.interpreter import PYTHON

MPIRUN = str(Path(PYTHON).parent / "mpirun")
SHARED_MEMORY = Path("/dev/shm")
TIMEOUT_SECONDS = 10.0
TWO_HOSTS = ["-launcher", "fork", "-hosts", "127.0.0.1,127.0.0.2"]  # to mpiexec; here they are one
# mpiexec does not see what dies under a shell. Its own -disable-auto-cleanup ends survivors in one of three runs.
HIDE_DEATH = ["sh", "-c", '"$@" || sleep 60', "sh"]

RANK = """
import os, sys
from pathlib import Path
from time import sleep

import torch

from deepex.fabric.mpi.thread import finish
from deepex.launch.detect import detect
from deepex.launch.rank import join
from deepex.testing.fabric import Gone, hold_contract, lose_peer

folder, timeout_seconds, *words = sys.argv[1:]
torch.set_num_threads(1)
launched = detect(os.environ)


def tell(text):
    with open(f"{folder}/rank{launched.world.rank}", "a") as file:
        print(text, file=file)


Path(folder, f"ready{launched.world.rank}").touch()
while words and len(list(Path(folder).glob("ready*"))) < launched.world.size:
    sleep(0.02)  # the start of a process on a busy machine may take longer than the timeout
try:
    with join(launched, float(timeout_seconds), "mpi") as fabric:
        for word in words:
            hold_contract(fabric) if word == "contract" else lose_peer(fabric, word)
            tell(word)
except (Gone, AssertionError) as error:
    tell(f"{type(error).__name__}: {error}")
finish()
tell("left")
os._exit(0)
"""


@dataclass
class Job:
    """Ranks that do what words say, one after the other, and write into files what they have done."""

    folder: Path
    mpirun: subprocess.Popen[str]

    def outcomes(self) -> list[list[str]]:
        """What each rank has done so far."""
        return [path.read_text().splitlines() for path in sorted(self.folder.glob("rank?"))]

    def end(self) -> int:
        """The exit code of mpirun, once it is done."""
        self.mpirun.communicate(timeout=100)
        return self.mpirun.returncode


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Job]]:
    plans: dict[str, tuple[Sequence[str], Sequence[str]]] = {
        "stop": (["-n", "3"], ["contract", "stop"]),
        "kill": (["-n", "2"], ["kill"]),
        "kill, unknown to mpiexec": (["-n", "2", *HIDE_DEATH], ["kill"]),
        "leave": (["-n", "2"], ["leave"]),
        "peace": ([*TWO_HOSTS, "-n", "2"], ["contract"]),
    }
    before, started = set(SHARED_MEMORY.glob("mpich_shm_*")), {}
    for name, (options, words) in plans.items():
        folder = tmp_path_factory.mktemp("job")
        command = [MPIRUN, *options, *rank_command(folder, *words)]
        mpirun = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        started[name] = Job(folder, mpirun)
    yield started
    for job in started.values():
        job.mpirun.terminate()
        job.end()
    for left in unused_memory() - before:
        left.unlink()


def unused_memory() -> set[Path]:
    """What MPICH leaves behind where ranks were killed: files in memory that no process holds any more."""
    used = ""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # a process that has just ended, or is somebody else's
            used += maps.read_text()
    return {path for path in SHARED_MEMORY.glob("mpich_shm_*") if path.name not in used}


def rank_command(folder: Path, *words: str) -> list[str]:
    program = folder / "program.py"
    program.write_text(RANK)
    return [PYTHON, str(program), str(folder), str(TIMEOUT_SECONDS), *words]


def test_ranks_that_mpi_does_not_know_are_told_how_to_start(jobs: dict[str, Job], tmp_path: Path) -> None:
    """As under srun without --mpi: SLURM counts two ranks, and MPI one in each of them."""
    names = {"STEP_ID": 0, "PROCID": 0, "LOCALID": 0, "STEP_NUM_TASKS": 2, "STEP_TASKS_PER_NODE": 2, "JOB_ID": 1}
    variables = {f"SLURM_{name}": str(value) for name, value in names.items()}
    with socket.create_server(("127.0.0.1", 0)) as free:
        variables |= {"SLURM_STEP_NODELIST": "n1", "MASTER_PORT": str(free.getsockname()[1])}
    environment = {**os.environ, **variables}
    done = subprocess.run(rank_command(tmp_path), env=environment, capture_output=True, text=True, timeout=100)
    assert "slurm says rank 0 of 2, but MPI says rank 0 of 1 (MPICH Version: " in done.stderr
    assert "srun --mpi=pmi2" in done.stderr
    assert "--fabric torch" in done.stderr


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)  # as where it is not installed
    with pytest.raises(ConfigError, match=r"needs mpi4py and an MPI, but: .* Use: pip install mpi4py mpich, or your"):
        mpi_thread()


def test_two_ranks_meet_without_being_told_where_keep_the_contract_and_part_in_peace(jobs: dict[str, Job]) -> None:
    exit_code = jobs["peace"].end()
    assert jobs["peace"].outcomes() == [["contract", "left"]] * 2
    assert exit_code == 0


def test_three_ranks_keep_the_contract_and_notice_one_that_is_stopped(jobs: dict[str, Job]) -> None:
    jobs["stop"].end()
    # mpiexec ends all ranks as soon as one goes, so the others let rank 0 go first.
    first, second, stopped = jobs["stop"].outcomes()
    assert (first, second[:2], stopped) == (["contract", "stop", "left"], ["contract", "stop"], ["contract"])


def test_a_rank_that_leaves_is_named(jobs: dict[str, Job]) -> None:
    jobs["leave"].end()
    assert [outcome[0] for outcome in jobs["leave"].outcomes()] == ["leave", "Gone: it had to"]


def test_mpiexec_ends_all_ranks_when_one_is_killed(jobs: dict[str, Job]) -> None:
    assert jobs["kill"].end() == 9
    assert jobs["kill"].outcomes() == []


def test_where_mpiexec_does_not_end_all_a_rank_notices_one_that_is_killed(jobs: dict[str, Job]) -> None:
    jobs["kill, unknown to mpiexec"].end()
    assert jobs["kill, unknown to mpiexec"].outcomes() == [["kill", "left"]]
