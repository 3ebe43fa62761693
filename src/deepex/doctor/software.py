"""What is installed: versions, schedulers and MPIs on the PATH. It starts only programs that tell their version."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path

import torch

from deepex.doctor.machine import MpiProgram, Scheduler, Software
from deepex.record.provenance import describe_versions

SCHEDULERS = {  # name: the program that starts or submits, the variable that names the job
    "SLURM": ("srun", "SLURM_JOB_ID"),
    "LSF": ("bsub", "LSB_JOBID"),
    "PBS": ("qsub", "PBS_JOBID"),
}
MPI_PROGRAMS = ("mpirun", "mpiexec")
LIBRARIES = {"onednn": r"MKL-DNN v([\w.]+)", "mkl": r"Math Kernel Library Version ([\w.]+)"}  # as torch names them
ASK_MPI4PY = "from mpi4py import MPI; print(MPI.Get_library_version())"


def inspect_software() -> Software:
    """Versions, schedulers, MPIs."""
    config = torch.__config__.show()
    found = {name: re.search(pattern, config) for name, pattern in LIBRARIES.items()}
    libraries = {name: match[1] for name, match in found.items() if match}
    return Software(
        versions={**describe_versions(), **libraries},
        schedulers=tuple(_schedulers()),
        mpi=find_mpi(os.environ.get("PATH", "")),
        mpi4py=_mpi4py(),
    )


def find_mpi(search_path: str) -> tuple[MpiProgram, ...]:
    """Every MPI that has a launcher on the search path, in its order; links to the same installation count once."""
    installations: dict[Path, MpiProgram] = {}
    for folder in search_path.split(os.pathsep):
        for name in MPI_PROGRAMS:
            program = shutil.which(name, path=folder) if folder else None
            if program is not None and Path(program).resolve().parent not in installations:
                home = Path(program).resolve().parent
                installations[home] = MpiProgram(program=program, version=_mpi_version(program))
    return tuple(installations.values())


def _mpi_version(program: str) -> str:
    told = _ask([program, "--version"])
    hydra = re.match(r"HYDRA build details:\s+Version:\s+(\S+)", told)  # MPICH and its kin
    return f"MPICH (Hydra) {hydra[1]}" if hydra else (told.splitlines() or ["version unknown"])[0]


def _mpi4py() -> str:
    """The MPI that mpi4py loads. Asked in a process of its own: an MPI that doesn't fit may end it."""
    if util.find_spec("mpi4py") is None:
        return "not installed"
    told = _ask([sys.executable, "-c", ASK_MPI4PY]).splitlines()
    return f"works, with {told[0].strip()}" if told else "installed, but does not import"


def _schedulers() -> Iterator[Scheduler]:
    for name, (program, variable) in SCHEDULERS.items():
        path, job = shutil.which(program), os.environ.get(variable)
        if path is not None or job is not None:
            yield Scheduler(name=name, program=path or f"no {program} on the PATH", job=job)


def _ask(command: list[str]) -> str:
    """What a program prints; nothing if it fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
