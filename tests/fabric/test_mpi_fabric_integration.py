"""The MPI fabric under the mpirun of the mpich wheel, where ranks leave, die and stop.

All ranks are started at once, because most of their time goes into starting and waiting; each test looks at some.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import pytest

MPIRUN = str(Path(sys.executable).parent / "mpirun")
TIMEOUT_SECONDS = 10.0
TWO_HOSTS = ("-launcher", "fork", "-hosts", "127.0.0.1,127.0.0.2")  # to mpiexec; here they are one

RANK = """
import os, sys
from pathlib import Path

import torch

from deepex.fabric.mpi_thread import finish
from deepex.launch.detect import detect
from deepex.launch.rank import join
from deepex.testing.fabric import Gone, hold_contract, lose_peer

folder, timeout_seconds, *words = sys.argv[1:]
torch.set_num_threads(1)
launched = detect(os.environ)


def tell(text):
    with open(f"{folder}/rank{launched.world.rank}", "a") as file:
        print(text, file=file)


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
    plans: dict[str, tuple[tuple[str, ...], int, tuple[str, ...]]] = {
        "stop": ((), 3, ("contract", "stop")),
        "kill": ((), 2, ("kill",)),
        "kill, survivors left alone": (("-disable-auto-cleanup",), 3, ("kill",)),
        "leave": ((), 2, ("leave",)),
        "peace": (TWO_HOSTS, 2, ("contract",)),
    }
    started = {}
    for name, (options, num_ranks, words) in plans.items():
        folder = tmp_path_factory.mktemp("job")
        command = [MPIRUN, *options, "-n", str(num_ranks), *rank_command(folder, *words)]
        mpirun = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        started[name] = Job(folder, mpirun)
    yield started
    for job in started.values():
        job.mpirun.terminate()
        job.end()


def rank_command(folder: Path, *words: str) -> list[str]:
    program = folder / "program.py"
    program.write_text(RANK)
    return [sys.executable, str(program), str(folder), str(TIMEOUT_SECONDS), *words]


def test_ranks_that_mpi_does_not_know_are_told_how_to_start(jobs: dict[str, Job], tmp_path: Path) -> None:
    """As under srun without --mpi: SLURM counts two ranks, and MPI one in each of them."""
    names = {"STEP_ID": 0, "PROCID": 0, "LOCALID": 0, "STEP_NUM_TASKS": 2, "STEP_TASKS_PER_NODE": 2, "JOB_ID": 1}
    variables = {f"SLURM_{name}": str(value) for name, value in names.items()}
    with socket.create_server(("127.0.0.1", 0)) as free:
        variables |= {"SLURM_STEP_NODELIST": "n1", "MASTER_PORT": str(free.getsockname()[1])}
    environment = {**os.environ, **variables}
    done = subprocess.run(rank_command(tmp_path), env=environment, capture_output=True, text=True, timeout=100)
    assert "slurm says rank 0 of 2, but MPI says rank 0 of 1 (MPICH" in done.stderr
    assert "srun --mpi=pmi2" in done.stderr
    assert "--fabric torch" in done.stderr


def test_what_is_missing_is_named(jobs: dict[str, Job], tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ImportError('there is none')")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from deepex.fabric.mpi_thread import mpi_thread"
    command = [sys.executable, "-c", f"{program}; mpi_thread()"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert "fabric 'mpi' needs mpi4py and an MPI, but: there is none. Use: pip install mpi4py mpich" in done.stderr


def test_two_ranks_meet_without_being_told_where_keep_the_contract_and_part_in_peace(jobs: dict[str, Job]) -> None:
    exit_code = jobs["peace"].end()
    assert jobs["peace"].outcomes() == [["contract", "left"]] * 2
    assert exit_code == 0


def test_three_ranks_keep_the_contract_and_notice_one_that_is_stopped(jobs: dict[str, Job]) -> None:
    jobs["stop"].end()
    # mpiexec ends all ranks as soon as one goes, so the others let rank 0 go first.
    assert jobs["stop"].outcomes() == [["contract", "stop", "left"], ["contract", "stop"], ["contract"]]


def test_a_rank_that_leaves_is_named(jobs: dict[str, Job]) -> None:
    jobs["leave"].end()
    assert [outcome[0] for outcome in jobs["leave"].outcomes()] == ["leave", "Gone: it had to"]


def test_mpiexec_ends_all_ranks_when_one_is_killed(jobs: dict[str, Job]) -> None:
    assert jobs["kill"].end() == 9
    assert jobs["kill"].outcomes() == []


def test_ranks_that_mpiexec_leaves_alone_notice_one_that_is_killed(jobs: dict[str, Job]) -> None:
    """It may be gone before them, or stay."""
    job, end = jobs["kill, survivors left alone"], monotonic() + 60
    while len(job.outcomes()) < 2 and monotonic() < end:
        sleep(0.05)
    assert [outcome[0] for outcome in job.outcomes()] == ["kill", "kill"]
