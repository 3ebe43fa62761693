"""The folder of a packing's parts: made or found again, held by one process at a time, and only for the same packing.

It knows locks, free space and plan.json, and nothing of blocks.
"""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deepex.data.packing.block import explained_writing
from deepex.errors import DataError
from deepex.files import write_whole

PLAN_FILE = "plan.json"


@contextmanager
def claimed(parts: Path, out: Path, num_bytes: int) -> Iterator[None]:
    """Hold the folder of parts of `out`, which will need `num_bytes`; one that fails before its plan is written goes.

    Arguments:
        parts: the folder; made if it is not there.
        out: what is packed; a file that exists is refused.
        num_bytes: what must be free where nothing is done yet.
    """
    if out.exists():
        raise DataError(f"{out} exists already. Choose another place, or delete it.")
    with explained_writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        if not parts.exists():
            _need_space(out, num_bytes)
        (parts / "shards").mkdir(parents=True, exist_ok=True)
        lock = os.open(parts / "lock", os.O_RDWR | os.O_CREAT)
    try:
        _lock(lock, out)
        yield
    finally:
        if parts.exists() and not (parts / PLAN_FILE).exists():
            shutil.rmtree(parts)
        os.close(lock)


def read_plan(parts: Path) -> Mapping[str, Any] | None:
    """What an earlier try wrote down; none if there was no such."""
    file = parts / PLAN_FILE
    return dict(json.loads(file.read_text())) if file.exists() else None


def write_plan(parts: Path, plan: Mapping[str, Any]) -> None:
    """Write down what is packed: from here on, parts are kept."""
    write_whole(parts / PLAN_FILE, json.dumps(plan, indent=1))


def compare_plans(parts: Path, earlier: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Refuse parts of another packing."""
    now = json.loads(json.dumps(plan))
    other = [key for key in now if earlier.get(key) != now[key]]
    if other:
        raise DataError(
            f"{parts} holds the parts of another packing (other {', '.join(other)}). Delete that folder to begin anew, "
            "or choose another place."
        )


def _lock(file: int, out: Path) -> None:
    """Refuse to work where another process does; a file system without locks can't tell."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with this process, unlike flock's
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise DataError(f"{out} is being packed already. Wait for it, or choose another place.") from None


def _need_space(out: Path, num_bytes: int) -> None:
    free = shutil.disk_usage(out.parent).free
    if free < num_bytes:
        raise DataError(
            f"{out} needs {num_bytes / 2**20:,.1f} MiB, and its file system has {free / 2**20:,.1f} MiB left. Free "
            "some space, or choose another place."
        )
