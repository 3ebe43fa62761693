import pytest

from deepex.launch.launchers.torchrun import detect_torchrun, torchrun_variables


def test_variables_of_torchrun_s_agent_are_understood() -> None:
    variables = {
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "n1",
        "MASTER_PORT": "29500",
    }
    found = detect_torchrun(variables)
    assert found is not None
    assert (found.world.rank, found.world.size, found.world.local_rank, found.world.local_size) == (3, 4, 1, 2)
    assert (found.world.launcher, found.address, found.agent_store) == ("torchrun", "n1:29500", True)
    del variables["TORCHELASTIC_RUN_ID"]  # variables that some shell has set for a program of its own
    assert detect_torchrun(variables) is None


@pytest.mark.parametrize("agent_store", [True, False])
def test_what_is_written_for_a_rank_is_read_again(agent_store: bool) -> None:
    variables = torchrun_variables(rank=5, size=6, address="n1", port=7, local_size=3, agent_store=agent_store)
    found = detect_torchrun(variables)
    assert found is not None
    assert (found.world.rank, found.world.size, found.world.local_rank, found.world.local_size) == (5, 6, 2, 3)
    assert (found.address, found.agent_store) == ("n1:7", agent_store)
