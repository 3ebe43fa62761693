"""Staging: what the ranks of a node read, copied once to storage of the node's own, checked, and used again next time.

Where all nodes need the same samples, each reads a part of them from the shared file and passes it to the others over
the fabric, so that no byte leaves the shared file system twice. It knows packed data sets, and nothing of training.
"""

import hashlib
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from deepex.data.feeding.plan import Plan
from deepex.data.feeding.prepare import Splits
from deepex.data.packing.block import explained_writing
from deepex.data.packing.job import Job, PackConfig, silent, write_alone
from deepex.data.packing.packed import PackedSource
from deepex.data.source import Indices, Source, Subset, allocate
from deepex.errors import ConfigError, DataError
from deepex.fabric import Fabric
from deepex.sample import Batch

STAGED = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}\.h5(\.parts)?")
PACKING = PackConfig(keep_nan=True)  # a copy keeps what there is


def stage_splits(splits: Splits, folder: Path, plan: Plan, fabric: Fabric) -> tuple[Splits, str]:
    """The same splits, read from a copy in `folder`, and a line for people on where it came from. All ranks call it.

    In `local` shuffling the copy holds the share of the node's ranks, else all samples; validation samples always.
    """
    train, trained_on = _packed(splits.train)
    judged, judged_on = _packed(splits.validation)
    if train is not judged:
        raise ConfigError("--stage needs training and validation samples in one packed file. Pack them together.")
    hosts = fabric.gather(fabric.world.host)
    neighbours = [rank for rank, host in enumerate(hosts) if host == fabric.world.host]
    shares = [trained_on[replace(plan, rank=rank).owned()] for rank in neighbours]
    needed = np.unique(np.concatenate([*shares, judged_on]))
    path = folder / f"{train.content_sha256[:16]}-{hashlib.sha256(needed.tobytes()).hexdigest()[:16]}.h5"
    leads = fabric.world.rank == neighbours[0]
    sentence = f"reading samples from {path}, staged by an earlier run"
    missing = leads and not _is_sound(path)
    if any(fabric.gather(missing)):
        leaders = sorted({hosts.index(host) for host in hosts})
        sentence = f"reading samples from {path}, a copy of {len(needed):,} samples of {train.path}"
        if plan.shuffle == "global" and len(leaders) > 1:
            _relay(Subset(train, needed), path, fabric, leaders, missing)
            sentence += f"; {len(leaders)} nodes read a part each and passed it on"
        elif missing:
            _copy(Subset(train, needed), path)
        if missing:
            _compare(path, train, len(needed))
        fabric.gather(None)
    staged = Staged(PackedSource(path), needed, len(train))
    return replace(splits, train=Subset(staged, trained_on), validation=Subset(staged, judged_on)), sentence


def clean_stage(folder: Path) -> tuple[int, int]:
    """Remove what staging left in a folder, and nothing else; returns how many files and bytes that were."""
    count = size = 0
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if STAGED.fullmatch(path.name):
            for file in [path] if path.is_file() else sorted(path.rglob("*"), reverse=True):
                size += file.stat().st_size if file.is_file() else 0
                count += file.is_file()
                file.unlink() if file.is_file() else file.rmdir()
            if path.is_dir():
                path.rmdir()
    return count, size


class Staged:
    """A data set of which only some samples are here, under the numbers that they have in the whole."""

    def __init__(self, source: Source, present: NDArray[np.int64], num_samples: int) -> None:
        self.source, self.present, self.num_samples, self.spec = source, present, num_samples, source.spec

    def __len__(self) -> int:
        return self.num_samples

    def read(self, indices: Indices, out: Batch) -> None:
        self.source.read(np.searchsorted(self.present, np.asarray(indices)), out)

    def name(self, index: int) -> str:
        return self.source.name(int(np.searchsorted(self.present, index)))


class Relayed:
    """A source that several nodes read together: one reads from the file, and all others get it from there.

    All ranks read the same samples in the same order; who reads from the file changes from call to call.
    """

    def __init__(self, source: Source, fabric: Fabric, readers: Sequence[int]) -> None:
        self.source, self.fabric, self.readers, self.spec = source, fabric, readers, source.spec
        self.calls = 0

    def __len__(self) -> int:
        return len(self.source)

    def name(self, index: int) -> str:
        return self.source.name(index)

    def read(self, indices: Indices, out: Batch) -> None:
        reader = self.readers[self.calls % len(self.readers)]
        self.calls += 1
        if self.fabric.world.rank == reader:
            self.source.read(indices, out)
        for name in sorted(out):
            self.fabric.broadcast_(out[name].view(torch.uint8), reader).wait()


def _relay(source: Source, path: Path, fabric: Fabric, leaders: Sequence[int], writes: bool) -> None:
    """Write the same copy on every node that has none, with each block read from the shared file once."""
    relayed = Relayed(source, fabric, leaders)
    job = Job.of(relayed, path, PACKING)
    if not writes:
        for number in range(job.layout.num_blocks):
            samples = job.layout.place(number).samples
            relayed.read(samples, allocate(source.spec, len(samples)))
        return
    with explained_writing(path):
        _clear(path)
    write_alone(job, silent)


def _copy(source: Source, path: Path) -> None:
    """Copy samples into a packed file, or go on with a copy that was interrupted."""
    with explained_writing(path):
        path.unlink(missing_ok=True)
    write_alone(Job.of(source, path, PACKING), silent)


def _is_sound(path: Path) -> bool:
    """Whether a copy is there, with all its bytes as they were written."""
    if not path.exists():
        return False
    try:
        PackedSource(path).verify()
    except DataError:
        return False
    return True


def _compare(path: Path, original: PackedSource, count: int) -> None:
    """Verify a new copy, against the original's own checksums where it holds all of it."""
    copy = PackedSource(path)
    copy.verify()
    if count < len(original):
        return
    for name, column in copy.files[0].columns.items():
        expected = tuple(chain.from_iterable(file.columns[name].block_sha256 for file in original.files))
        for number, (found, packed) in enumerate(zip(column.block_sha256, expected, strict=True)):
            if found != packed:
                path.unlink()
                raise DataError(
                    f"{original.path} was changed since it was packed: block {number} of '{name}' has sha256 {found}, "
                    f"its header says {packed}. Pack it again, and stage that."
                )


def _packed(source: Source) -> tuple[PackedSource, NDArray[np.int64]]:
    """The packed data set that a source is a part of, and which part."""
    whole, indices = source, np.arange(len(source))
    while isinstance(whole, Subset):
        indices = whole.indices[indices]
        whole = whole.source
    if not isinstance(whole, PackedSource):
        raise ConfigError("--stage copies packed data, and this task's is not. Pack it with: deepex data pack")
    return whole, indices


def _clear(path: Path) -> None:
    for stale in (path, path.with_name(path.name + ".parts")):
        if stale.is_dir():
            shutil.rmtree(stale)
        else:
            stale.unlink(missing_ok=True)
