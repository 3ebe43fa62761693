"""From what was found to what to do about it: each rule is a function of the machine, and says something or nothing.

It measures nothing. A rule's text says what was found, what that costs and what to do.
"""

from collections.abc import Callable

from deepex.doctor.machine import Advice, Machine

LEAST_BF16_RATIO = 1.2
SLOW_MB_PER_SECOND = 200.0
LEAST_SHM_MIB = 64.0  # containers start with this much unless told otherwise
BUSY_LOAD = 0.5
LEAST_FREE_MEMORY = 0.1


def advise(machine: Machine) -> tuple[Advice, ...]:
    """All warnings for a machine."""
    said = (rule(machine) for rule in RULES)
    return tuple(advice for advice in said if advice is not None)


def busy(machine: Machine) -> Advice | None:
    load, others = machine.processor.load_average, machine.others_cores or 0.0
    if max(load, others) <= BUSY_LOAD:
        return None
    counts = [f"the load average before measuring was {load:g}"] if load > BUSY_LOAD else []
    counts += [f"others took {others:g} of our cores while measuring"] if others > BUSY_LOAD else []
    return Advice(
        name="busy",
        found=f"Other programs are running: {' and '.join(counts)}.",
        costs="The figures are lower than what the machine can do, those with all threads most.",
        cure="Run deepex doctor again when it is quiet, or in a job that has the node to itself.",
    )


def too_many_threads(machine: Machine) -> Advice | None:
    usable, asked = machine.processor.usable_cpus, _threads_asked(machine)
    if max(asked, machine.processor.torch_threads) <= usable:
        return None
    found = f"OMP_NUM_THREADS asks for {asked} threads" if asked > usable else _torch_threads(machine)
    return Advice(
        name="too_many_threads",
        found=f"{found}, but this process may use {_count(usable, 'core')}.",
        costs="Threads that share a core wait for each other, and a program can run several times slower. "
        "deepex run sets its own number; NumPy and other programs don't.",
        cure=f"export OMP_NUM_THREADS={machine.processor.usable_cores}, or ask the scheduler for more cores.",
    )


def too_few_threads(machine: Machine) -> Advice | None:
    cores, threads = machine.processor.usable_cores, machine.processor.torch_threads
    if threads >= cores:
        return None
    told = machine.processor.omp_num_threads
    because = f" (OMP_NUM_THREADS is {told})" if told is not None else ""
    return Advice(
        name="too_few_threads",
        found=f"{_torch_threads(machine)}{because}, but this process may use {_count(cores, 'core')}.",
        costs=f"{_count(cores - threads, 'core')} would stay idle in programs that leave it at that. "
        "deepex run sets its own number and uses them all.",
        cure=f"export OMP_NUM_THREADS={cores} for other programs, or unset it.",
    )


def low_quota(machine: Machine) -> Advice | None:
    quota, cores = machine.processor.quota_cores, machine.processor.usable_cores
    if quota is None or quota >= cores:
        return None
    whole = max(1, int(quota))
    return Advice(
        name="low_quota",
        found=f"This container or job may use {quota:g} cores' worth of time, but sees {_count(cores, 'core')}.",
        costs="With a thread on each core, the kernel stops all of them for a part of every tenth of a second.",
        cure=f"Ask for a quota of {cores} cores, or start programs with taskset on {whole} of "
        f"the CPUs {machine.processor.affinity}.",
    )


def no_bf16(machine: Machine) -> Advice | None:
    best = {rate.dtype: rate.best_gflops for rate in machine.gemm if rate.threads == 1}  # others disturb it least
    fp32, bf16 = best["fp32"], best["bf16"]
    if bf16 / fp32 >= LEAST_BF16_RATIO:
        return None
    return Advice(
        name="no_bf16",
        found=f"bf16 gains nothing here: its matrix products run at {bf16 / fp32:.2g} × the rate of fp32 "
        f"({bf16:g} against {fp32:g} GF/s with one thread).",
        costs="deepex rounds as bf16 does and multiplies in fp32 on such a processor: --precision bf16 shows whether a "
        "model learns in it, but saves no time.",
        cure="Stay with fp32, the default. bf16 pays on processors with AVX512-BF16 or AMX (Zen 4, Sapphire Rapids "
        "or newer).",
    )


def full_memory(machine: Machine) -> Advice | None:
    total, available = machine.memory.total_gib, machine.memory.available_gib
    if available >= LEAST_FREE_MEMORY * total:
        return None
    return Advice(
        name="full_memory",
        found=f"Memory is nearly full: {available:g} of {total:g} GiB are available.",
        costs="Data no longer stay in memory between epochs, and the system may kill a run.",
        cure="End what else is running, or take another node. See it with: ps aux --sort=-rss | head",
    )


def small_shm(machine: Machine) -> Advice | None:
    free = machine.memory.shm_free_mib
    if free is None or free > LEAST_SHM_MIB:
        return None
    return Advice(
        name="small_shm",
        found=f"Shared memory is small: {free:g} MiB of /dev/shm are free.",
        costs="Processes that share memory through it (data loaders, MPI, ranks of one node) fail or fall back to "
        "slower ways.",
        cure="Start the container with a larger one (docker run --shm-size=8g), or delete what fills it.",
    )


def slow_data(machine: Machine) -> Advice | None:
    folder = machine.data_folder
    rate = folder.read_mb_per_second
    if rate is None or rate >= SLOW_MB_PER_SECOND:
        return None
    return Advice(
        name="slow_data",
        found=f"The data folder {folder.path} is slow to read: {rate:g} MB/s ({folder.filesystem}).",
        costs=f"10 GB of data take {_duration(10_000 / rate)} to read, in each epoch if they don't fit into memory.",
        cure="Copy the data to a local disk or the parallel file system first, and measure that with --data.",
    )


def slow_temporary(machine: Machine) -> Advice | None:
    folder = machine.temporary_folder
    rate = folder.write_mb_per_second
    if rate is None or rate >= SLOW_MB_PER_SECOND:
        return None
    return Advice(
        name="slow_temporary",
        found=f"The temporary folder {folder.path} is slow to write: {rate:g} MB/s ({folder.filesystem}).",
        costs=f"Programs that put data there wait: 1 GB takes {_duration(1000 / rate)}.",
        cure="Set TMPDIR to a local disk, or to a folder in memory if there is enough of it: export TMPDIR=/dev/shm",
    )


def several_mpis(machine: Machine) -> Advice | None:
    found = machine.software.mpi
    if len(found) < 2:
        return None
    programs = ", ".join(f"{mpi.program} ({mpi.version})" for mpi in found)
    return Advice(
        name="several_mpis",
        found=f"{len(found)} MPIs are on the PATH: {programs}.",
        costs="Ranks started by one MPI and linked to another each believe to be alone, or hang at the start.",
        cure="Keep one: unload the other's module, or take its folder out of PATH. The first one is used.",
    )


def no_fabric(machine: Machine) -> Advice | None:
    if any(fabric.works for fabric in machine.fabrics):
        return None
    reasons = "; ".join(f"{fabric.name}: {fabric.reason}" for fabric in machine.fabrics)
    return Advice(
        name="no_fabric",
        found=f"Two ranks on this machine can't talk ({reasons}).",
        costs="Training works on one rank only.",
        cure="See that this host's name resolves to an address (getent hosts $(hostname)), or name the network "
        "interface: export GLOO_SOCKET_IFNAME=lo",
    )


RULES: tuple[Callable[[Machine], Advice | None], ...] = (
    busy,
    too_many_threads,
    too_few_threads,
    low_quota,
    no_bf16,
    full_memory,
    small_shm,
    slow_data,
    slow_temporary,
    several_mpis,
    no_fabric,
)


def _threads_asked(machine: Machine) -> int:
    """The number in OMP_NUM_THREADS (the first, where it is a list for nested regions); 0 for none."""
    first = (machine.processor.omp_num_threads or "").split(",")[0].strip()
    return int(first) if first.isdigit() else 0


def _torch_threads(machine: Machine) -> str:
    return f"torch uses {_count(machine.processor.torch_threads, 'thread')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
