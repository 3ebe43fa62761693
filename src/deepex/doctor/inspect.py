"""What the machine says of itself, read from Linux and torch: cores, caches, quotas, memory. It measures nothing.

A file that this system does not have gives None, or the plain case: one NUMA node, one thread a core, no quota.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from time import perf_counter, process_time

import torch

from deepex.doctor.machine import Accelerator, Memory, Processor, rounded
from deepex.record.provenance import describe_hardware

ROOT = Path("/")
CPUS = Path("sys/devices/system/cpu")
NO_LIMIT = 2**60  # cgroup v1 writes "no limit" as a number near 2⁶³


def inspect_processor() -> Processor:
    """Cores, threads, caches and the load before anything is measured."""
    hardware, usable = describe_hardware(), os.sched_getaffinity(0)
    every = {int(folder.name[3:]) for folder in (ROOT / CPUS).glob("cpu[0-9]*")} | usable
    caches = read_caches()
    return Processor(
        name=hardware.processor,
        instructions=hardware.instructions,
        cpus=len(every),
        cores=count_cores(every),
        usable_cpus=len(usable),
        usable_cores=count_cores(usable),
        affinity=compact(usable),
        quota_cores=read_cpu_quota(),
        torch_threads=torch.get_num_threads(),
        omp_num_threads=os.environ.get("OMP_NUM_THREADS"),
        numa_nodes=max(1, len(list(ROOT.glob("sys/devices/system/node/node[0-9]*")))),
        l1d_kib=caches.get(1),
        l2_kib=caches.get(2),
        l3_kib=caches.get(3),
        load_average=round(os.getloadavg()[0], 2),
    )


def inspect_memory() -> Memory:
    """Memory of the machine, of this job, and of /dev/shm."""
    total = describe_hardware().memory_gib
    lines = (_read(ROOT / "proc/meminfo") or "").splitlines()
    available = [int(line.split()[1]) / 2**20 for line in lines if line.startswith("MemAvailable:")]
    limit = read_memory_limit()
    huge_pages = _read(ROOT / "sys/kernel/mm/transparent_hugepage/enabled") or ""
    shm_total, shm_free = _space(ROOT / "dev/shm")
    return Memory(
        total_gib=total,
        available_gib=rounded(available[0]) if available else total,
        limit_gib=None if limit is None else rounded(limit / 2**30),
        shm_total_mib=shm_total,
        shm_free_mib=shm_free,
        huge_pages=huge_pages.partition("[")[2].partition("]")[0] or None,
    )


def inspect_accelerators() -> tuple[Accelerator, ...]:
    """The GPUs that torch can use."""
    found = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return tuple(Accelerator(name=gpu.name, memory_gib=rounded(gpu.total_memory / 2**30)) for gpu in found)


class Neighbours:
    """How much of this process's cores others use: other programs, and a hypervisor that gives time to others."""

    def __init__(self) -> None:
        self._start, self._mine, self._all = perf_counter(), process_time(), read_busy_seconds(os.sched_getaffinity(0))

    def cores(self) -> float | None:
        """Cores' worth of time since the start; None where the system doesn't tell."""
        busy = read_busy_seconds(os.sched_getaffinity(0))
        if busy is None or self._all is None:
            return None
        others = busy - self._all - (process_time() - self._mine)
        return round(max(0.0, others / (perf_counter() - self._start)), 2)


def read_busy_seconds(cpus: Collection[int], root: Path = ROOT) -> float | None:
    """Seconds that these CPUs were not idle since the machine started."""
    ticks = 0
    names = {f"cpu{cpu}" for cpu in cpus}
    for line in (_read(root / "proc/stat") or "").splitlines():
        name, *counts = line.split()
        if name in names:
            user, nice, system, _idle, _waiting, *rest = map(int, counts)
            ticks += user + nice + system + sum(rest[:3])  # interrupts, soft interrupts, stolen by a hypervisor
    return ticks / os.sysconf("SC_CLK_TCK") if ticks else None


def compact(numbers: Iterable[int]) -> str:
    """Whole numbers as ranges, as taskset and the kernel write them.

    >>> compact({0, 1, 2, 5, 7, 8})
    '0-2,5,7-8'
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def count_cores(cpus: Iterable[int], root: Path = ROOT) -> int:
    """How many cores some CPUs are on: the hardware threads of a core name the same siblings."""
    siblings = {_read(root / CPUS / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu) for cpu in cpus}
    return len(siblings)


def read_caches(root: Path = ROOT) -> dict[int, int]:
    """KiB of the data cache of each level, as the first CPU has it."""
    sizes: dict[int, int] = {}
    for folder in (root / CPUS / "cpu0/cache").glob("index*"):
        level, kind, size = (_read(folder / name) or "" for name in ("level", "type", "size"))
        if kind in ("Data", "Unified") and size[:-1].isdigit() and size[-1] in "KM":
            sizes[int(level)] = int(size[:-1]) * (1024 if size[-1] == "M" else 1)
    return sizes


def read_cpu_quota(root: Path = ROOT) -> float | None:
    """Cores' worth of time that control groups allow this process; None for all."""
    quotas = []
    for folder in _control_groups("cpu", root):
        quota, _, period = (_read(folder / "cpu.max") or "").partition(" ")
        if not quota:
            quota, period = (_read(folder / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period"))
        if quota.isdigit() and period.isdigit():  # "max", and -1 in version 1, mean no quota
            quotas.append(int(quota) / int(period))
    return rounded(min(quotas)) if quotas else None


def read_memory_limit(root: Path = ROOT) -> int | None:
    """Bytes that control groups allow this process; None for all."""
    folders = list(_control_groups("memory", root))
    texts = [_read(folder / name) or "" for folder in folders for name in ("memory.max", "memory.limit_in_bytes")]
    limits = [int(text) for text in texts if text.isdigit() and int(text) < NO_LIMIT]
    return min(limits, default=None)


def _control_groups(controller: str, root: Path) -> Iterator[Path]:
    """The folders of this process's control groups, versions 1 and 2, each with all those above it."""
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / controllers
        group = top / path.lstrip("/")
        yield from [folder for folder in (group, *group.parents) if folder.is_relative_to(top)]


def _space(folder: Path) -> tuple[float | None, float | None]:
    """MiB of a file system, in all and free; None where there is none."""
    try:
        space = os.statvfs(folder)
    except OSError:
        return None, None
    return rounded(space.f_blocks * space.f_frsize / 2**20), rounded(space.f_bavail * space.f_frsize / 2**20)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
