from dataclasses import replace
from io import StringIO

from deepex.doctor.advice import advise
from deepex.doctor.machine import FabricCheck, Machine
from deepex.doctor.table import print_machine


def _printed(machine: Machine) -> str:
    stream = StringIO()
    print_machine(machine, file=stream, width=200)
    return stream.getvalue()


def test_a_healthy_machine_says_that_there_are_no_warnings(healthy: Machine) -> None:
    text = _printed(healthy)
    assert "warnings: 0\nNone: nothing was found that would slow training here." in text
    assert "64 of 64 may be used (CPUs 0-127, 2 hardware threads each); NUMA nodes: 2; CPU quota: none" in text
    assert "L1d 32 KiB, L2 1 MiB, L3 32 MiB" in text
    assert "SLURM (/usr/bin/srun), not in a job" in text
    assert "100 µs" in text


def test_warnings_come_last_with_cost_and_cure(healthy: Machine) -> None:
    machine = replace(healthy, others_cores=2.0)
    text = _printed(replace(machine, warnings=advise(machine)))
    assert text.index("warnings: 1") > text.index("folders")
    assert text.index("others took 2 of our cores while measuring.") < text.index("Costs:") < text.index("Do:")


def test_a_fabric_that_does_not_work_is_listed_with_its_reason(healthy: Machine) -> None:
    broken = FabricCheck(name="mpi", ranks=2, reason="[/gloo/pair.cc:5] closed", times=())
    assert "does not work here: [/gloo/pair.cc:5] closed" in _printed(
        replace(healthy, fabrics=(*healthy.fabrics, broken))
    )
