"""Where samples come from: whether a path holds a packed data set, and what a packed one says of its source.

What it says depends on the source alone: not on when, where or by how many ranks it was packed.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import h5py

from deepex.data.source import Source
from deepex.data.sources import READERS

MARKS = ("content_sha256", "block_samples")  # attributes that every packed file has


@dataclass(frozen=True, kw_only=True)
class Files:
    """The files of a source: how many, how large, and a hash of their names, sizes and times of change."""

    count: int
    num_bytes: int
    fingerprint: str


def is_packed(path: Path) -> bool:
    """Whether a path holds a packed data set, or an .h5 file that is missing or damaged: opening it says which."""
    if path.is_dir():
        return any(_has_marks(file) for file in sorted(path.glob("*.h5"))[:1])
    return path.suffix == ".h5" and (not path.exists() or _has_marks(path))


def find_files(path: Path, options: Sequence[str] = ()) -> Files:
    """The file at a path or all files below it, and those that options name."""
    named = [Path(option.partition("=")[2]) for option in options]
    more = [place for name in named for place in (name, path / name) if str(name) != "." and place.is_file()]
    found = sorted(_walk(path, "")) if path.is_dir() else [(path.name, path.stat())]
    found += sorted((place.name, place.stat()) for place in more)
    digest = hashlib.sha256()
    for name, status in found:
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return Files(count=len(found), num_bytes=sum(status.st_size for _, status in found), fingerprint=digest.hexdigest())


def describe_origin(path: Path, reader: str, options: Sequence[str], source: Source, files: Files) -> dict[str, Any]:
    """Attributes of a packed data set: its source and how that was read, with which versions."""
    names = hashlib.sha256()
    for index in range(len(source)):
        names.update(source.name(index).encode() + b"\n")
    chosen = dict(option.split("=", 1) for option in options)
    libraries = READERS[reader].libraries if reader in READERS else ()  # a packed set is read by none of them
    return {
        "source": {
            "path": path.absolute().resolve().name,
            "reader": reader,
            "options": {key: Path(value).name if value.startswith("/") else value for key, value in chosen.items()},
            "files": files.count,
            "names_sha256": names.hexdigest(),
        },
        "versions": _versions(("deepex", "numpy", *libraries)),
    }


def _has_marks(path: Path) -> bool:
    try:
        with h5py.File(path, "r") as file:
            return all(mark in file.attrs for mark in MARKS)
    except OSError:
        return True


def _walk(folder: Path, prefix: str) -> list[tuple[str, os.stat_result]]:
    """Files below a folder by their names there. `scandir` is several times as fast as asking for each file."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                found += _walk(Path(entry.path), f"{prefix}{entry.name}/")
            elif entry.is_file():
                found.append((f"{prefix}{entry.name}", entry.stat()))
    return found


def _versions(names: Sequence[str]) -> dict[str, str]:
    """Versions of those packages that are installed."""
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
