"""The same command finds its rank under each launcher. They are all real."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interpreter import PYTHON

SHORT = ["data.batch=16", "stop.epochs=1"]
RUN = ["-m", "deepex", "run", "protein", *SHORT, "--until", "0", "--out", "run"]
RANK = [sys.executable, *RUN]
MPIRUN = [str(Path(PYTHON).parent / "mpirun"), "-n", "2", PYTHON, *RUN]  # MPI looks after its own processes


def launch(
    command: list[str], chains: Path, folder: Path, variables: dict[str, str] | None = None
) -> dict[str, object]:
    """Run a launcher's command in a folder, and return the summary and the record of the run that it made."""
    environment, words = {**os.environ, **(variables or {})}, [*command, f"task.file={chains}"]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "page: run/report.html"
    assert done.stdout.count("epoch   1/1") == 1  # only rank 0 speaks
    summary = json.loads((folder / "run" / "summary.json").read_text())
    record = json.loads((folder / "run" / "record.json").read_text())
    return {**summary, "launcher": record["launcher"], "places": record["places"]}


@pytest.fixture(scope="module")
def local(chains: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return launch([*RANK, "--ranks", "2"], chains, tmp_path_factory.mktemp("local"))


def test_local_ranks_share_the_cores(local: dict[str, object]) -> None:
    cores = len(os.sched_getaffinity(0))
    places = local["places"]
    assert isinstance(places, list)
    assert [place["threads"] for place in places] == [max(1, cores // 2)] * 2
    assert [place["cores"] for place in places] == [cores / 2] * 2  # a half each where there is one core
    assert local["ranks"] == 2


def test_torchrun(local: dict[str, object], chains: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *RUN]
    found = launch(command, chains, tmp_path)
    assert (found["launcher"], found["ranks"]) == ("torchrun", 2)
    assert found["weights_sha256"] == local["weights_sha256"]


def test_mpirun(local: dict[str, object], chains: Path, tmp_path: Path) -> None:
    found = launch(MPIRUN, chains, tmp_path)
    assert (found["launcher"], found["ranks"]) == ("mpi", 2)
    assert found["weights_sha256"] == local["weights_sha256"]


def test_srun(local: dict[str, object], chains: Path, tmp_path: Path, slurm: dict[str, str]) -> None:
    found = launch(["srun", "-n", "2", *RANK], chains, tmp_path, slurm)
    assert (found["launcher"], found["ranks"]) == ("slurm", 2)
    assert found["weights_sha256"] == local["weights_sha256"]


def test_a_number_of_ranks_that_contradicts_the_launcher_is_refused(tmp_path: Path) -> None:
    command = [*MPIRUN, "--ranks", "3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert "--ranks 3, but mpi started 2" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_study_s_runs_go_through_srun(chains: Path, tmp_path: Path, slurm: dict[str, str]) -> None:
    command = [sys.executable, "-m", "deepex", "study", "protein", f"task.file={chains}", *SHORT, "--ranks", "2"]
    environment = {**os.environ, **slurm}
    words = [*command, "--repeats", "1", "--launcher", "srun -n {ranks}", "--out", "study", "--quiet"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    (cell,) = json.loads((tmp_path / "study/study.json").read_text())["cells"]
    assert (cell["ranks"], len(cell["runs"])) == (2, 1)
    record = json.loads((tmp_path / "study/runs" / cell["runs"][0]["name"] / "record.json").read_text())
    assert (record["launcher"], len(record["places"])) == ("slurm", 2)
