"""What Linux tells, read from trees of files as other machines have them, and from this one."""

import os
from pathlib import Path

import pytest

from deepex.doctor.inspect import (
    compact,
    count_cores,
    inspect_memory,
    inspect_processor,
    read_busy_seconds,
    read_caches,
    read_cpu_quota,
    read_memory_limit,
)


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


QUOTAS: list[tuple[dict[str, str], float | None]] = [
    ({}, None),
    ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, None),
    ({"proc/self/cgroup": "0::/job/7", "sys/fs/cgroup/job/cpu.max": "150000 100000"}, 1.5),
    (
        {
            "proc/self/cgroup": "0::/job/7",
            "sys/fs/cgroup/job/cpu.max": "400000 100000",
            "sys/fs/cgroup/job/7/cpu.max": "200000 100000",
        },
        2.0,
    ),
    (
        {
            "proc/self/cgroup": "4:memory:/a\n3:cpu,cpuacct:/docker/b\n0::/",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
        0.5,
    ),
    (
        {
            "proc/self/cgroup": "1:cpu:/",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
        None,
    ),
]


@pytest.mark.parametrize(("files", "quota"), QUOTAS)
def test_a_quota_is_found_in_both_versions_of_control_groups(
    files: dict[str, str], quota: float | None, tmp_path: Path
) -> None:
    assert read_cpu_quota(_write(tmp_path, files)) == quota


def test_a_limit_of_memory_is_the_least_of_all_groups_above(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/slurm/job\n0::/",
        "sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes": str(2**34),
        "sys/fs/cgroup/memory/slurm/memory.limit_in_bytes": str(2**33),
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
    }
    assert read_memory_limit(_write(tmp_path, files)) == 2**33
    assert read_memory_limit(tmp_path / "nothing") is None


def test_hardware_threads_of_a_core_count_once(tmp_path: Path) -> None:
    siblings = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}
    place = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    root = _write(tmp_path, {place.format(cpu): text for cpu, text in siblings.items()})
    assert count_cores(range(4), root) == 2
    assert count_cores({0, 2}, root) == 1
    assert count_cores(range(4), tmp_path / "nothing") == 4


def test_caches_of_data_are_read_and_those_of_instructions_are_not(tmp_path: Path) -> None:
    caches = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2048K"), ("3", "Unified", "105M")]
    files: dict[str, str] = {}
    for index, (level, kind, size) in enumerate(caches):
        folder = f"sys/devices/system/cpu/cpu0/cache/index{index}"
        files |= {f"{folder}/level": level, f"{folder}/type": kind, f"{folder}/size": size}
    assert read_caches(_write(tmp_path, files)) == {1: 48, 2: 2048, 3: 105 * 1024}


def test_busy_time_counts_these_cpus_and_what_a_hypervisor_took(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    lines = ["cpu  9 9 9 9 9 9 9 9 0 0", f"cpu0 {ticks} 0 {ticks} 5 7 0 0 {ticks} 3 3", "cpu1 100 0 0 0 0 0 0 0 0 0"]
    root = _write(tmp_path, {"proc/stat": "\n".join([*lines, "intr 1 2 3"])})
    assert read_busy_seconds({0}, root) == 3.0
    assert read_busy_seconds({0}, tmp_path / "nothing") is None


def test_cores_are_written_as_ranges() -> None:
    assert compact([3]) == "3"
    assert compact({9, 0, 1, 3}) == "0-1,3,9"
    assert compact([]) == ""


def test_this_machine_makes_sense() -> None:
    processor, memory = inspect_processor(), inspect_memory()
    assert 1 <= processor.usable_cores <= processor.usable_cpus <= processor.cpus
    assert processor.usable_cpus == len(os.sched_getaffinity(0))
    assert processor.torch_threads >= 1
    assert 0 < memory.available_gib <= memory.total_gib + 0.1
