"""MPIs on a search path: real programs that print what real launchers print."""

import os
from pathlib import Path

from deepex.doctor.software import find_mpi, inspect_software

HYDRA = "HYDRA build details:\n    Version:                                 5.0.2\n    CC: cc"


def _launcher(folder: Path, name: str, text: str, exit_code: int = 0) -> Path:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {exit_code}\n")
    program.chmod(0o755)
    return program


def test_each_mpi_is_found_once_with_its_version(tmp_path: Path) -> None:
    mpich = _launcher(tmp_path / "mpich", "mpirun", HYDRA)
    _launcher(tmp_path / "mpich", "mpiexec", HYDRA)
    openmpi = _launcher(tmp_path / "openmpi", "mpiexec", "mpiexec (Open MPI) 4.1.4\n\nReport bugs to")
    broken = _launcher(tmp_path / "broken", "mpirun", "", exit_code=1)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "mpirun").symlink_to(mpich)
    folders = ["mpich", "empty", "openmpi", "links", "broken"]
    found = find_mpi(os.pathsep.join([*(str(tmp_path / name) for name in folders), ""]))
    assert [(mpi.program, mpi.version) for mpi in found] == [
        (str(mpich), "MPICH (Hydra) 5.0.2"),
        (str(openmpi), "mpiexec (Open MPI) 4.1.4"),
        (str(broken), "version unknown"),
    ]


def test_no_mpi_is_found_where_there_is_none(tmp_path: Path) -> None:
    assert find_mpi("") == ()
    assert find_mpi(str(tmp_path)) == ()


def test_versions_of_what_figures_depend_on_are_known() -> None:
    versions = inspect_software().versions
    assert {"python", "torch", "numpy", "h5py", "deepex"} <= set(versions)
    assert all(version[0].isdigit() for version in versions.values())
