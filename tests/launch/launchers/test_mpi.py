import sys

import pytest

from deepex.errors import UsageError
from deepex.launch.launchers.mpi import detect_mpi

MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}


def test_open_mpi_s_variables_are_understood() -> None:
    names = ["RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"]
    environment = {f"OMPI_COMM_WORLD_{name}": value for name, value in zip(names, "3421", strict=True)}
    environment |= {"MASTER_ADDR": "node1", "MASTER_PORT": "5000"}
    found = detect_mpi(environment)
    assert found is not None
    assert (found.world.rank, found.world.size, found.world.local_rank, found.address) == (3, 4, 2, "node1:5000")


def test_the_user_s_meeting_point_wins() -> None:
    found = detect_mpi({**MPICH, "MASTER_ADDR": "a", "MASTER_PORT": "1"})
    assert found is not None
    assert found.address == "a:1"


def test_many_hosts_without_a_meeting_point_or_an_mpi_that_tells_it_are_told_the_cure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With MPI they meet by themselves: see tests/fabric/mpi/test_fabric_integration.py."""
    monkeypatch.setitem(sys.modules, "mpi4py", None)  # as where it is not installed
    with pytest.raises(UsageError, match=r"MASTER_ADDR .* let MPI tell it: .*mpi4py"):
        detect_mpi({**MPICH, "MPI_LOCALNRANKS": "1", "MPI_LOCALRANKID": "0"})
