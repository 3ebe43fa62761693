from deepex.launch.detect import detect
from deepex.launch.launchers.torchrun import torchrun_variables


def test_a_process_started_by_hand_is_in_no_world() -> None:
    assert detect({}) is None


def test_a_torchrun_inside_a_job_step_counts_and_not_the_step() -> None:
    """srun starts one torchrun a node, which starts the ranks: they see the variables of both."""
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}
    found = detect({**step, **torchrun_variables(rank=5, size=8, address="n1", port=5000, local_size=4)})
    assert found is not None
    assert (found.world.launcher, found.world.rank, found.world.size) == ("torchrun", 5, 8)
