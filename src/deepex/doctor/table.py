"""What the doctor found, as tables for people. It changes no figure, it only chooses units and words."""

from typing import TextIO

from rich.console import Console
from rich.table import Table

from deepex.doctor.machine import FabricCheck, FolderSpeed, Machine, Memory, Processor, Software
from deepex.text import say_size, say_time


def print_machine(machine: Machine, *, file: TextIO | None = None, width: int | None = None) -> None:
    """Print the machine, its speeds and the warnings, which come last: they are what to act on."""
    console = Console(file=file, width=width, highlight=False, markup=False)  # a reason may hold brackets of its own
    sections = {
        f"the machine ({machine.measured}, examined in {machine.seconds:.0f} s)": _facts(machine),
        "computing": _compute(machine),
        "all-reduce between two ranks of this machine (medians)": _all_reduce(machine.fabrics),
        "folders (one reader, one writer)": _folders(machine),
        f"warnings: {len(machine.warnings)}": _warnings(machine),
    }
    for title, section in sections.items():
        console.print(title, style="bold")
        console.print(section)
        console.print()


def _facts(machine: Machine) -> Table:
    table = _table("", "")
    rows = {
        "host": f"{machine.host}, {machine.system}",
        **_processor(machine.processor, machine.others_cores),
        **_memory(machine.memory),
        "GPUs": ", ".join(f"{gpu.name} ({gpu.memory_gib:g} GiB)" for gpu in machine.accelerators) or "0",
        **_software(machine.software),
    }
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def _processor(processor: Processor, others_cores: float | None) -> dict[str, str]:
    threads_per_core = processor.cpus // processor.cores
    hyper = f", {threads_per_core} hardware threads each" if threads_per_core > 1 else ""
    quota = "none" if processor.quota_cores is None else f"{processor.quota_cores:g} cores"
    omp = "not set" if processor.omp_num_threads is None else processor.omp_num_threads
    busy = "" if others_cores is None else f"; others took {others_cores:g} of our cores while computing was measured"
    caches = {"L1d": processor.l1d_kib, "L2": processor.l2_kib, "L3": processor.l3_kib}
    known = [f"{name} {say_size(1024 * size)}" for name, size in caches.items() if size is not None]
    return {
        "processor": f"{processor.name}, {processor.instructions}",
        "cores": f"{processor.usable_cores} of {processor.cores} may be used (CPUs {processor.affinity}{hyper}); "
        f"NUMA nodes: {processor.numa_nodes}; CPU quota: {quota}",
        "threads": f"{processor.torch_threads} used by torch; OMP_NUM_THREADS: {omp}",
        "caches": ", ".join(known) or "not told",
        "load": f"{processor.load_average:g} in the minute before{busy}",
    }


def _memory(memory: Memory) -> dict[str, str]:
    limit = "" if memory.limit_gib is None else f", limit of this job {memory.limit_gib:g} GiB"
    shm = "none" if memory.shm_total_mib is None else say_size(2**20 * memory.shm_total_mib)
    return {
        "memory": f"{memory.total_gib:g} GiB, {memory.available_gib:g} available{limit}; /dev/shm: {shm}; "
        f"transparent huge pages: {memory.huge_pages or 'not told'}"
    }


def _software(software: Software) -> dict[str, str]:
    schedulers = [
        f"{found.name} ({found.program}), {f'in job {found.job}' if found.job else 'not in a job'}"
        for found in software.schedulers
    ]
    mpi = [f"{found.program} ({found.version})" for found in software.mpi]
    return {
        "versions": ", ".join(f"{name} {version}" for name, version in software.versions.items()),
        "scheduler": "; ".join(schedulers) or "none",
        "MPI": f"{'; '.join(mpi) or 'no mpirun or mpiexec on the PATH'}; mpi4py: {software.mpi4py}",
    }


def _compute(machine: Machine) -> Table:
    table = _table("", "threads", "best", "median", "")
    for rate in machine.gemm:
        figures = f"{rate.best_gflops:.4g} GF/s", f"{rate.median_gflops:.4g} GF/s"
        table.add_row(f"matrix product, {rate.dtype}", str(rate.threads), *figures, f"{rate.size} × {rate.size}")
    for copy in machine.copy:
        speeds = f"{copy.best_gb_per_second:.3g} GB/s", f"{copy.median_gb_per_second:.3g} GB/s"
        table.add_row("memory copy", str(copy.threads), *speeds, f"{copy.megabytes} MB, read + write")
    return table


def _all_reduce(fabrics: tuple[FabricCheck, ...]) -> Table:
    table = _table("fabric", "buffer", "time", "rate", "")
    for fabric in fabrics:
        if not fabric.works:
            table.add_row(fabric.name, "", "", "", f"does not work here: {fabric.reason}")
        for row in fabric.times:
            table.add_row(
                fabric.name, say_size(row.bytes), say_time(row.median_seconds), f"{row.gb_per_second:.3f} GB/s"
            )
    return table


def _folders(machine: Machine) -> Table:
    table = _table("", "read", "read, cached", "write", "")
    for name, folder in (("data", machine.data_folder), ("temporary", machine.temporary_folder)):
        rates = (folder.read_mb_per_second, folder.cached_mb_per_second, folder.write_mb_per_second)
        table.add_row(name, *("–" if rate is None else f"{rate:,.0f} MB/s" for rate in rates), _folder(folder))
    return table


def _folder(folder: FolderSpeed) -> str:
    where = f"{folder.filesystem}, in memory" if folder.in_memory else folder.filesystem
    return f"{folder.path} ({where}, {folder.free_gib:g} GiB free), by {folder.measured_by}"


def _warnings(machine: Machine) -> Table | str:
    if not machine.warnings:
        return "None: nothing was found that would slow training here."
    table = _table("", "")
    for number, advice in enumerate(machine.warnings, start=1):
        table.add_row(f"{number}.", f"{advice.found}\nCosts: {advice.costs}\nDo: {advice.cure}")
    return table


def _table(*columns: str) -> Table:
    """A plain table; a column whose head is empty holds words, the others figures."""
    table = Table(box=None, show_header=any(columns), padding=(0, 2, 0, 0), pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column and column != "fabric" else "left", overflow="fold")
    return table
