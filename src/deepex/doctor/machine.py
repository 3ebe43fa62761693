"""What the doctor found, as values with their units in the names, and their text for machine.toml and for programs.

It does not know how anything was found. What could not be found is None: "none" in TOML, null in JSON.
"""

import dataclasses
import json
from dataclasses import dataclass

from deepex.config import to_toml


@dataclass(frozen=True, kw_only=True)
class Processor:
    """The processor, and how much of it this process may use."""

    name: str
    instructions: str
    cpus: int
    cores: int
    usable_cpus: int
    usable_cores: int
    affinity: str
    quota_cores: float | None
    torch_threads: int
    omp_num_threads: str | None
    numa_nodes: int
    l1d_kib: int | None
    l2_kib: int | None
    l3_kib: int | None
    load_average: float


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Main memory and what it is shared by."""

    total_gib: float
    available_gib: float
    limit_gib: float | None
    shm_total_mib: float | None
    shm_free_mib: float | None
    huge_pages: str | None


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """A GPU that torch can use."""

    name: str
    memory_gib: float


@dataclass(frozen=True, kw_only=True)
class Scheduler:
    """A scheduler whose programs are on the PATH; `job` is the job that this process runs in."""

    name: str
    program: str
    job: str | None


@dataclass(frozen=True, kw_only=True)
class MpiProgram:
    """An MPI's launcher."""

    program: str
    version: str


@dataclass(frozen=True, kw_only=True)
class Software:
    """Versions, schedulers and MPIs."""

    versions: dict[str, str]
    schedulers: tuple[Scheduler, ...]
    mpi: tuple[MpiProgram, ...]
    mpi4py: str


@dataclass(frozen=True, kw_only=True)
class GemmRate:
    """The rate of a square matrix product, in 10⁹ floating-point operations a second."""

    dtype: str
    threads: int
    size: int
    repeats: int
    best_gflops: float
    median_gflops: float


@dataclass(frozen=True, kw_only=True)
class CopyRate:
    """The rate at which memory is copied, bytes read and bytes written counted together."""

    threads: int
    megabytes: int
    best_gb_per_second: float
    median_gb_per_second: float


@dataclass(frozen=True, kw_only=True)
class AllReduceTime:
    """The time to average a buffer over the ranks; GB/s is the buffer's bytes by that time."""

    bytes: int
    median_seconds: float
    gb_per_second: float


@dataclass(frozen=True, kw_only=True)
class FabricCheck:
    """Whether ranks of this machine can talk by a fabric, how fast, and else why not."""

    name: str
    ranks: int
    reason: str | None
    times: tuple[AllReduceTime, ...]

    @property
    def works(self) -> bool:
        return self.reason is None


@dataclass(frozen=True, kw_only=True)
class FolderSpeed:
    """How fast one reader and one writer get at a folder; `measured_by` says with what, or why not."""

    path: str
    filesystem: str
    free_gib: float
    measured_by: str
    write_mb_per_second: float | None
    read_mb_per_second: float | None
    cached_mb_per_second: float | None

    @property
    def in_memory(self) -> bool:
        return self.filesystem in ("tmpfs", "ramfs")


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A warning in plain words: what was found, what it costs, what to do."""

    name: str
    found: str
    costs: str
    cure: str


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Everything that was found; `others_cores` is what others took of our cores while computing was measured."""

    measured: str
    seconds: float
    host: str
    system: str
    processor: Processor
    memory: Memory
    accelerators: tuple[Accelerator, ...]
    software: Software
    others_cores: float | None
    gemm: tuple[GemmRate, ...]
    copy: tuple[CopyRate, ...]
    fabrics: tuple[FabricCheck, ...]
    data_folder: FolderSpeed
    temporary_folder: FolderSpeed
    warnings: tuple[Advice, ...] = ()

    def to_toml(self) -> str:
        """The text of machine.toml."""
        title = "# What `deepex doctor` found on this machine. GB and MB are powers of ten, GiB, MiB and KiB of two.\n"
        return title + to_toml(self)

    def to_json(self) -> str:
        """The same for programs."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"


def rounded(value: float) -> float:
    """A measured figure with the four digits that mean something.

    >>> rounded(87.528407)
    87.53
    """
    return float(f"{value:.4g}")
