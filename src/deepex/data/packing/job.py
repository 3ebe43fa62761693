"""A packing under way: what is packed and where, its blocks written one after the other, and the set put in place.

Blocks are written in any order to places that are known from the start. Whoever starts again verifies what the journal
says and does the rest, and the result is the same file, byte for byte. It knows nothing of how ranks share the work.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from deepex.data.packing.block import Writing, explained_writing, verify_block, write_block
from deepex.data.packing.claim import claimed, compare_plans, read_plan, write_plan
from deepex.data.packing.finish import put_headers
from deepex.data.packing.header import write_header
from deepex.data.packing.journal import Journal
from deepex.data.packing.layout import Layout
from deepex.data.packing.packed import PackedSource
from deepex.data.source import Source, Subset
from deepex.errors import DataError
from deepex.files import temporary_beside

Tell = Callable[[int, int], None]
"""Told how many samples are done, and of how many."""


@dataclass(frozen=True, kw_only=True)
class PackConfig:
    """How to pack: by how many ranks, into how many shards (0: one file), and what may be wrong with samples.

    `group` neighbouring samples are read at once by one rank, as where one simulation gives several.
    """

    ranks: int = 1
    shards: int = 0
    skip_bad: int = 0
    keep_nan: bool = False
    group: int = 1

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.shards < 0 or self.skip_bad < 0:
            raise DataError(
                f"--ranks {self.ranks} --shards {self.shards} --skip-bad {self.skip_bad}. Allowed: at least 1 rank, "
                "and whole numbers from 0 for the others."
            )


@dataclass(frozen=True, kw_only=True)
class Packed:
    """The outcome: where the set is, the hash of its content, how many samples, and those left out with the reason."""

    path: Path
    content_sha256: str
    num_samples: int
    left_out: Mapping[str, str] = field(default_factory=dict)


def silent(done: int, total: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is packed, how, and where it goes: all that follows from the source and what was asked for."""

    source: Source
    out: Path
    config: PackConfig
    attributes: Mapping[str, Any]
    fingerprint: str
    names: Sequence[bytes]
    layout: Layout

    @classmethod
    def of(
        cls,
        source: Source,
        out: Path,
        config: PackConfig,
        attributes: Mapping[str, Any] | None = None,
        fingerprint: str = "",
    ) -> Self:
        """The packing of a source; `fingerprint` tells one state of its files from another."""
        names = _checked_names(source)
        width = max(map(len, names))
        layout = Layout.of(source.spec, len(source), width, shards=config.shards, group=config.group)
        return cls(
            source=source,
            out=out,
            config=config,
            attributes=attributes or {},
            fingerprint=fingerprint,
            names=names,
            layout=layout,
        )

    @property
    def parts(self) -> Path:
        """The folder for all that is written until the set is complete."""
        return self.out.with_name(self.out.name + ".parts")

    @property
    def shards(self) -> Path:
        """The folder of the set's files, among the parts."""
        return self.parts / "shards"

    @property
    def plan(self) -> dict[str, Any]:
        """What makes two packings the same, as plain values."""
        return {
            "fields": {name: repr(each) for name, each in self.source.spec.fields.items()},
            "names": hashlib.sha256(b"\n".join(self.names)).hexdigest(),
            "edges": list(self.layout.edges),
            "fingerprint": self.fingerprint,
            "keep_nan": self.config.keep_nan,
            "attributes": dict(self.attributes),
        }

    def journal(self, rank: int | None = None) -> Journal:
        """An empty journal of this packing, to read or to write."""
        return Journal(self.parts, rank=rank, skip_bad=self.config.skip_bad)

    def writing(self) -> Writing:
        """What a rank needs to write blocks."""
        with explained_writing(self.out), temporary_beside(self.parts / "header.h5") as header:
            columns = tuple(write_header(header, shape) for shape in self.layout.shapes)
        return Writing(
            source=self.source,
            names=self.names,
            layout=self.layout,
            files=self.layout.files(self.shards),
            columns=columns,
            keep_nan=self.config.keep_nan,
        )


@contextmanager
def begun(job: Job) -> Iterator[None]:
    """Hold a job's folder: a new one with files for all blocks, or what an earlier try of the same packing left."""
    with claimed(job.parts, job.out, job.layout.num_bytes):
        earlier = read_plan(job.parts)
        if earlier is None:
            with explained_writing(job.out):
                for shape, file in zip(job.layout.shapes, job.layout.files(job.shards), strict=True):
                    write_header(file, shape)
                write_plan(job.parts, job.plan)
        else:
            compare_plans(job.parts, earlier, job.plan)
        yield


def write_blocks(job: Job, numbers: Sequence[int], journal: Journal, tell: Tell) -> None:
    """Write blocks one after the other, those aside that an earlier try has written."""
    writing, total = job.writing(), job.layout.num_samples
    journal.read()
    journal.retain(
        [n for n in numbers if n in journal.done and verify_block(writing, journal.done[n])],
    )
    mine = sum(len(job.layout.place(number)) for number in numbers)
    for number in numbers:
        if number not in journal.done:
            journal.add(write_block(writing, number))
            tell(round(journal.num_samples / mine * total), total)


def write_alone(job: Job, tell: Tell) -> Packed:
    """Do all of it in this process."""
    with begun(job):
        journal = job.journal()
        write_blocks(job, range(job.layout.num_blocks), journal, tell)
        return finish(job, journal)


def finish(job: Job, journal: Journal) -> Packed:
    """Put headers on the files and move them into place, at once; what may be left out is left out first."""
    with explained_writing(job.out):
        put_headers(job.layout, job.shards, journal.done, job.attributes, sharded=bool(job.config.shards))
        if journal.bad:
            return _close_gaps(job, journal.bad)
        PackedSource(job.shards, verify=False)  # raises if the header is not whole
        os.replace(job.shards if job.config.shards else job.layout.files(job.shards)[0], job.out)
        shutil.rmtree(job.parts)
    packed = PackedSource(job.out, verify=False)  # what was written was hashed on the way
    return Packed(path=job.out, content_sha256=packed.content_sha256, num_samples=len(packed))


def _close_gaps(job: Job, bad: Mapping[int, str]) -> Packed:
    """Pack what is good once more, from the files that have gaps: no tool may take a gap for a sample."""
    left_out = {
        name: re.sub(rf"\S*/{re.escape(name)}", name, text)  # where a source stands is no part of the data
        for name, text in ((job.names[index].decode(), text) for index, text in bad.items())
    }
    good = np.setdiff1d(np.arange(len(job.source)), list(bad))
    if not len(good):
        raise DataError(
            f"none of the {len(job.source)} samples can be used, as {next(iter(left_out.values())).rstrip('.')}."
        )
    for stale in job.parts.glob("good*"):
        shutil.rmtree(stale) if stale.is_dir() else stale.unlink()
    source = Subset(PackedSource(job.shards, verify=False), good)
    config, attributes = replace(job.config, skip_bad=0), {**job.attributes, "left_out": left_out}
    again = write_alone(Job.of(source, job.parts / "good", config, attributes), silent)
    os.replace(again.path, job.out)
    shutil.rmtree(job.parts)
    return replace(again, path=job.out, left_out=left_out)


def _checked_names(source: Source) -> list[bytes]:
    """The names of all samples, each once."""
    if not len(source):
        raise DataError("the source has no samples. Give one that has.")
    names = [source.name(index).encode() for index in range(len(source))]
    if len(set(names)) < len(names):
        seen: set[bytes] = set()
        for name in names:
            if name in seen:
                raise DataError(f"two samples are called '{name.decode()}'. Give each a name of its own.")
            seen.add(name)
    return names
