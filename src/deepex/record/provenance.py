"""What was run, where and on what: commit, versions, hardware, command. Gathered before step 0, never after."""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("deepex", "torch", "numpy", "h5py")
SCHEDULER_VARIABLES = ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "LSB_JOBID", "PBS_JOBID")
MAX_DIFF_CHARACTERS = 100_000


def gather_provenance() -> dict[str, Any]:
    """Everything about this moment that a reader needs to run it again or to doubt it."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "code": _repository(Path(__file__).parent),
        "project": _repository(Path.cwd()),
        "versions": describe_versions(),
        "hardware": describe_hardware(),
        "scheduler": {name: os.environ[name] for name in SCHEDULER_VARIABLES if name in os.environ},
    }


def describe_versions(more: Sequence[str] = ()) -> dict[str, str]:
    """Versions of Python, of the packages that a run's figures depend on, and of `more` where they are installed."""
    versions = {"python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}}
    installed = {distribution.name for distribution in metadata.distributions()} if more else set()
    return versions | {name: metadata.version(name) for name in more if name in installed}


def describe_hardware() -> dict[str, Any]:
    """The host, its processor and memory, and how much of them this process has."""
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "processor": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "accelerators": torch.cuda.device_count(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _repository(folder: Path) -> dict[str, Any]:
    """The commit of the work tree that `folder` is in, and what was changed since, if git knows."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return {"commit": None, "clean": None}
    diff = _git(folder, "diff", "HEAD") or ""
    status = _git(folder, "status", "--porcelain") or ""
    found: dict[str, Any] = {"commit": commit, "clean": not status}
    if status:
        found |= {"changed": status.splitlines(), "diff": diff[:MAX_DIFF_CHARACTERS]}
    return found


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
