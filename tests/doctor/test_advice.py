"""Each warning appears when it should, and only then."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from deepex.doctor.advice import RULES, advise
from deepex.doctor.machine import FabricCheck, Machine, MpiProgram

Change = Callable[[Machine], Machine]


def _processor(**fields: Any) -> Change:
    return lambda machine: replace(machine, processor=replace(machine.processor, **fields))


def _memory(**fields: Any) -> Change:
    return lambda machine: replace(machine, memory=replace(machine.memory, **fields))


def _bf16(gflops: float) -> Change:
    def change(machine: Machine) -> Machine:
        rates = (replace(rate, best_gflops=gflops) if rate.dtype == "bf16" else rate for rate in machine.gemm)
        return replace(machine, gemm=tuple(rates))

    return change


def _data(rate: float | None) -> Change:
    return lambda machine: replace(machine, data_folder=replace(machine.data_folder, read_mb_per_second=rate))


def _temporary(rate: float | None) -> Change:
    return lambda machine: replace(
        machine, temporary_folder=replace(machine.temporary_folder, write_mb_per_second=rate)
    )


def _two_mpis(machine: Machine) -> Machine:
    second = MpiProgram(program="/opt/mpich/bin/mpirun", version="MPICH (Hydra) 4.2")
    return replace(machine, software=replace(machine.software, mpi=(*machine.software.mpi, second)))


def _mute(machine: Machine) -> Machine:
    broken = FabricCheck(name="torch", ranks=2, reason="no address", times=())
    return replace(machine, fabrics=(broken,))


WARNED: list[tuple[str, Change, str]] = [
    ("busy", _processor(load_average=0.6), "load average before measuring was 0.6"),
    ("busy", lambda machine: replace(machine, others_cores=1.01), "others took 1.01 of our cores"),
    ("too_many_threads", _processor(omp_num_threads="256"), "OMP_NUM_THREADS asks for 256 threads"),
    ("too_many_threads", _processor(omp_num_threads="129,2"), "may use 128 cores"),
    ("too_many_threads", _processor(torch_threads=200), "torch uses 200 threads"),
    ("too_few_threads", _processor(torch_threads=1, omp_num_threads="1"), "torch uses 1 thread (OMP_NUM_THREADS is 1)"),
    ("too_few_threads", _processor(torch_threads=63), "1 core would stay idle"),
    ("low_quota", _processor(quota_cores=1.5), "1.5 cores' worth of time"),
    ("no_bf16", _bf16(119.0), "1.2 × the rate of fp32"),
    ("no_bf16", _bf16(1.3), "saves no time"),
    ("full_memory", _memory(available_gib=25.0), "25 of 256 GiB"),
    ("small_shm", _memory(shm_free_mib=63.9), "63.9 MiB"),
    ("small_shm", _memory(shm_free_mib=64.0), "--shm-size"),
    ("slow_data", _data(50.0), "10 GB of data take 3 min"),
    ("slow_temporary", _temporary(199.0), "1 GB takes 5 s"),
    ("several_mpis", _two_mpis, "/opt/mpich/bin/mpirun (MPICH (Hydra) 4.2)"),
    ("no_fabric", _mute, "torch: no address"),
]

FINE: dict[str, Change] = {
    "a little load": _processor(load_average=0.5),
    "no count of others' time": lambda machine: replace(machine, others_cores=None),
    "as many threads as hardware threads": _processor(omp_num_threads="128"),
    "nonsense that OpenMP ignores": _processor(omp_num_threads="many"),
    "a quota of all cores": _processor(quota_cores=64.0),
    "bf16 that gains": _bf16(120.0),
    "a tenth of memory": _memory(available_gib=25.6),
    "no /dev/shm at all": _memory(shm_free_mib=None),
    "enough /dev/shm": _memory(shm_free_mib=65.0),
    "data just fast enough": _data(200.0),
    "data not measured": _data(None),
    "a temporary folder not measured": _temporary(None),
}


def test_a_healthy_machine_gets_no_warning(healthy: Machine) -> None:
    assert advise(healthy) == ()


@pytest.mark.parametrize(("name", "change", "said"), WARNED)
def test_a_fault_gets_its_warning_and_no_other(healthy: Machine, name: str, change: Change, said: str) -> None:
    (advice,) = advise(change(healthy))
    assert advice.name == name
    assert said in f"{advice.found} {advice.costs} {advice.cure}"
    assert all(text.endswith((".", "=lo", "head", "/dev/shm")) for text in (advice.found, advice.costs, advice.cure))


@pytest.mark.parametrize("change", FINE.values(), ids=FINE.keys())
def test_what_is_no_fault_gets_no_warning(healthy: Machine, change: Change) -> None:
    assert advise(change(healthy)) == ()


def test_every_rule_has_a_test() -> None:
    assert {name for name, _, _ in WARNED} == {rule.__name__ for rule in RULES}


def test_all_faults_are_told_at_once(healthy: Machine) -> None:
    machine = healthy
    for _, change, _ in WARNED:
        machine = change(machine)
    assert len(advise(machine)) >= len(RULES) - 1  # too many threads and too few exclude each other
