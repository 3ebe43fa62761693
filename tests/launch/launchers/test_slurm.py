from deepex.launch.launchers.slurm import detect_slurm

STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "2",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "4",
    "SLURM_STEP_NODELIST": "n1",
}


def test_a_task_of_a_step_is_a_rank() -> None:
    found = detect_slurm(STEP)
    assert found is not None
    assert (found.world.rank, found.world.size, found.world.local_rank, found.world.local_size) == (3, 4, 1, 4)
    assert (found.world.launcher, found.agent_store) == ("slurm", False)


def test_ranks_of_a_step_agree_on_a_port_and_those_of_another_have_their_own() -> None:
    here, beside, other = (
        detect_slurm({**STEP, **change}) for change in ({}, {"SLURM_PROCID": "0"}, {"SLURM_STEP_ID": "3"})
    )
    assert here is not None
    assert beside is not None
    assert other is not None
    assert here.address == beside.address != other.address
    assert here.address.startswith("127.0.0.1:")


def test_nodes_with_unequal_numbers_of_tasks_are_understood() -> None:
    found = detect_slurm({**STEP, "SLURM_STEP_TASKS_PER_NODE": "2(x2),1"})
    assert found is not None
    assert found.world.local_size == 2


def test_a_batch_script_sees_the_job_s_variables_but_is_no_rank() -> None:
    assert detect_slurm({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}) is None
