"""How fast one writer and one reader get at a folder. It leaves nothing there: its file has no name from the start.

The page cache of this machine is dropped before reading; what a file server or a hypervisor keeps cannot be dropped.
"""

import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter

from deepex.doctor.machine import FolderSpeed, rounded

BLOCK_BYTES = 8 * 10**6
FLUSH_BLOCKS = 4  # blocks between two flushes, so that a slow folder is noticed in time
BUDGET_SECONDS = 3.0  # for writing, and for reading
MOST_FILES, MOST_NAMES, LEAST_FILE_BYTES = 16, 2000, 10**6


def measure_folder(folder: Path, most_bytes: int, mounts: Path = Path("/proc/self/mountinfo")) -> FolderSpeed:
    """Write a temporary file, read it back from the disk and from memory; of a read-only folder, read its own files."""
    space = os.statvfs(folder)
    free = space.f_bavail * space.f_frsize
    place = {"path": str(folder), "filesystem": find_filesystem(folder, mounts)}
    try:
        written, write, read, cached = _measure_new_file(folder, min(most_bytes, free // 4))
        measured_by = f"a temporary file of {written // 10**6} MB"
    except OSError as error:
        write, (total, read, cached) = None, _measure_files(folder, most_bytes)
        instead = f"{total // 10**6} MB of the files there" if total else "not measured: nor are there files to read"
        measured_by = f"{instead} (it can't be written: {error.strerror})"
    return FolderSpeed(
        **place,
        free_gib=rounded(free / 2**30),
        measured_by=measured_by,
        write_mb_per_second=write,
        read_mb_per_second=read,
        cached_mb_per_second=cached,
    )


def find_filesystem(folder: Path, mounts: Path) -> str:
    """The kind of file system that a folder is on, such as ext4, lustre, nfs4 or tmpfs."""
    place, best, kind = folder.resolve(), 0, "unknown"
    for line in mounts.read_text().splitlines() if mounts.exists() else ():
        about, _, source = line.partition(" - ")
        point = Path(about.split()[4].replace("\\040", " "))
        if place.is_relative_to(point) and len(point.parts) >= best:  # a later mount hides an earlier one
            best, kind = len(point.parts), source.split()[0]
    return kind


def _measure_new_file(folder: Path, size: int) -> tuple[int, float | None, float | None, float | None]:
    """Bytes written, and the rates of writing, reading and reading again."""
    with TemporaryFile(dir=folder, buffering=0) as file:
        if size < BLOCK_BYTES:
            raise OSError(errno.ENOSPC, "too little space is free")
        block, written = secrets.token_bytes(BLOCK_BYTES), 0  # no file system can shrink random bytes
        os.pwrite(file.fileno(), block, 0)
        os.fsync(file.fileno())  # the first flush also writes what other programs have left to be written
        start = perf_counter()
        while written + BLOCK_BYTES <= size and perf_counter() - start < BUDGET_SECONDS:
            written += os.write(file.fileno(), block)
            if written % (FLUSH_BLOCKS * BLOCK_BYTES) == 0:
                os.fsync(file.fileno())
        os.fsync(file.fileno())
        write = _rate(written, perf_counter() - start)
        _, read, cached = _measure_reading([file.fileno()], written)
        return written, write, read, cached


def _measure_files(folder: Path, most_bytes: int) -> tuple[int, float | None, float | None]:
    """Bytes read of files that are there, and the rates of reading them and of reading them again."""
    with ExitStack() as stack:
        try:
            files = [stack.enter_context(open(path, "rb")).fileno() for path in _large_files(folder)]
            return _measure_reading(files, most_bytes)
        except OSError:
            return 0, None, None


def _large_files(folder: Path) -> list[Path]:
    """The largest files among the first that are found."""
    sizes: dict[Path, int] = {}
    for path in _first_files(folder):
        if path.is_file() and os.access(path, os.R_OK):
            sizes[path] = path.stat().st_size
    largest = sorted(sizes, key=lambda path: -sizes[path])[:MOST_FILES]
    return [path for path in largest if sizes[path] >= LEAST_FILE_BYTES]


def _first_files(folder: Path) -> Iterator[Path]:
    """Files in and below a folder, at most so many: a data folder can hold millions."""
    seen = 0
    for place, _, names in os.walk(folder):
        for name in names:
            yield Path(place) / name
            seen += 1
            if seen >= MOST_NAMES:
                return


def _measure_reading(files: Sequence[int], most_bytes: int) -> tuple[int, float | None, float | None]:
    """Bytes read, and the rates of reading files that are dropped from the page cache, and of reading them again."""
    for file in files:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    total, seconds = _read(files, most_bytes)
    again, seconds_again = _read(files, total)
    return total, _rate(total, seconds), _rate(again, seconds_again)


def _read(files: Sequence[int], most_bytes: int) -> tuple[int, float]:
    """Read files in large blocks, so many bytes or so many seconds in all."""
    block, total, start = bytearray(BLOCK_BYTES), 0, perf_counter()
    for file in files:
        offset = 0
        while total < most_bytes and perf_counter() - start < BUDGET_SECONDS:
            count = os.preadv(file, [block], offset)
            if count == 0:
                break
            offset, total = offset + count, total + count
    return total, perf_counter() - start


def _rate(num_bytes: int, seconds: float) -> float | None:
    return rounded(num_bytes / seconds / 1e6) if num_bytes else None
