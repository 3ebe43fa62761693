"""What was run, where and on what: commit, versions, hardware, command. Gathered before step 0, never after."""

import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from deepex.errors import RunFolderError
from deepex.record.folder import RunFolder
from deepex.record.typed_json import from_json, to_json

RECORD_FILE = "record.json"
PACKAGES = ("deepex", "torch", "numpy", "h5py")
SCHEDULER_VARIABLES = ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "LSB_JOBID", "PBS_JOBID")
MAX_DIFF_CHARACTERS = 100_000


@dataclass(frozen=True, kw_only=True)
class Repository:
    """The commit of a work tree, and what was changed since; without git, neither is known."""

    commit: str | None = None
    clean: bool | None = None
    changed: tuple[str, ...] = ()
    diff: str = ""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """A host, its processor and memory, and how much of them a process has."""

    host: str
    system: str
    processor: str
    instructions: str
    cores: int
    memory_gib: float
    accelerators: int


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a rank stands, its share of the host's cores, and what was set for its process."""

    rank: int
    host: str
    threads: int
    cores: float | None = None
    heap_kept: bool = False
    own_convolution: bool = False
    own_half_precision: bool = False


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """Everything about a run's start that a reader needs to run it again or to doubt it: record.json.

    `launcher`, `fabric` and `places` are known once its ranks have met.
    """

    started: str
    command: str
    code: Repository
    project: Repository
    versions: Mapping[str, str]
    hardware: Hardware
    scheduler: Mapping[str, str]
    seed: int
    data_sha256: str | None
    data_left_out: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    launcher: str = ""
    fabric: str = ""
    places: tuple[Placement, ...] = ()


def gather_record(
    *, seed: int, recipe: Mapping[str, Any], data_sha256: str | None, data_left_out: Mapping[str, Any]
) -> RunRecord:
    """What is known of a run before its ranks start."""
    return RunRecord(
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        code=_repository(Path(__file__).parent),
        project=_repository(Path.cwd()),
        versions=describe_versions(),
        hardware=describe_hardware(),
        scheduler={name: os.environ[name] for name in SCHEDULER_VARIABLES if name in os.environ},
        seed=seed,
        data_sha256=data_sha256,
        data_left_out=data_left_out,
        recipe=recipe,
    )


def _order(version: str) -> tuple[int, ...]:
    """A version as numbers that can be compared.

    >>> _order("0.10.1") > _order("0.9")
    True
    """
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def write_record(folder: RunFolder, record: RunRecord) -> None:
    folder.write_json(RECORD_FILE, to_json(record))


def read_record(folder: RunFolder) -> RunRecord:
    """The record of a run, of this version or an earlier one."""
    found, own = folder.version, metadata.version("deepex")
    if found is not None and _order(found) > _order(own):
        raise RunFolderError(f"{folder.path} was made by deepex {found}, and this is {own}. Read it with that version.")
    return folder.understand(RECORD_FILE, lambda tree: from_json(RunRecord, tree), folder.read_json(RECORD_FILE))


def describe_versions(more: Sequence[str] = ()) -> dict[str, str]:
    """Versions of Python, of the packages that a run's figures depend on, and of `more` where they are installed."""
    versions = {"python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}}
    installed = {distribution.name for distribution in metadata.distributions()} if more else set()
    return versions | {name: metadata.version(name) for name in more if name in installed}


def describe_hardware() -> Hardware:
    """The hardware that this process runs on."""
    return Hardware(
        host=platform.node(),
        system=platform.platform(),
        processor=_processor(),
        instructions=torch.backends.cpu.get_cpu_capability(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        accelerators=torch.cuda.device_count(),
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _repository(folder: Path) -> Repository:
    """The commit of the work tree that `folder` is in, and what was changed since, if git knows."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return Repository()
    status = _git(folder, "status", "--porcelain") or ""
    diff = (_git(folder, "diff", "HEAD") or "") if status else ""
    return Repository(
        commit=commit, clean=not status, changed=tuple(status.splitlines()), diff=diff[:MAX_DIFF_CHARACTERS]
    )


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
