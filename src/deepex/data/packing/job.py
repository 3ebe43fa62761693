"""A packing under way: where each block goes, the journal of those that are done, and the file put in place at the end.

Blocks are written in any order to places that are known from the start. Whoever starts again verifies what the journal
says and does the rest, and the result is the same file, byte for byte. It knows nothing of how ranks share the work.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from deepex.data.packing.block import BlockResult, Writing, explained_writing, verify_block, write_block
from deepex.data.packing.header import Content, Shape, copy_header, write_header
from deepex.data.packing.packed import NAMES, PackedSource
from deepex.data.source import Source, Subset
from deepex.data.statistics import Moments
from deepex.errors import DataError

LEAST_BLOCK, MOST_BLOCK, MOST_BLOCKS = 1 << 20, 64 << 20, 4096  # bytes of a block, and how many a set is cut into

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


class Job:
    """A packing under way: what goes where, and the journal of what is done."""

    def __init__(
        self, source: Source, out: Path, config: PackConfig, attributes: Mapping[str, Any], fingerprint: str
    ) -> None:
        self.source, self.out, self.config, self.attributes = source, out, config, attributes
        self.parts = out.with_name(out.name + ".parts")
        self.names = _checked_names(source)
        self.done: dict[int, BlockResult] = {}
        self.num_done = 0  # samples
        width = max(map(len, self.names))
        total = (source.spec.num_bytes + width) * len(source)
        size = max(1, min(max(total // MOST_BLOCKS, LEAST_BLOCK), MOST_BLOCK) * len(source) // total)
        size = -(-size // config.group) * config.group
        self.num_blocks = -(-len(source) // size)
        shards = min(max(1, config.shards), self.num_blocks)
        self.edges = (*(size * (self.num_blocks * shard // shards) for shard in range(shards)), len(source))
        self.shapes = tuple(
            Shape(spec=source.spec, num_samples=last - first, name_bytes=width, block_samples=size)
            for first, last in zip(self.edges[:-1], self.edges[1:], strict=True)
        )
        self.files = tuple(self.parts / "shards" / f"{shard:05d}.h5" for shard in range(shards))
        self.state = {
            "fields": {name: repr(each) for name, each in source.spec.fields.items()},
            "names": hashlib.sha256(b"\n".join(self.names)).hexdigest(),
            "edges": list(self.edges),
            "fingerprint": fingerprint,
            "keep_nan": config.keep_nan,
            "attributes": dict(attributes),
        }
        self.num_bytes = total

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Make the folder of parts, or find it; nobody else may work there at the same time."""
        if self.out.exists():
            raise DataError(f"{self.out} exists already. Choose another place, or delete it.")
        with explained_writing(self.out):
            self.out.parent.mkdir(parents=True, exist_ok=True)
            if not self.parts.exists():
                self._need_space()
            (self.parts / "shards").mkdir(parents=True, exist_ok=True)
            lock = os.open(self.parts / "lock", os.O_RDWR | os.O_CREAT)
        try:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with this process, unlike flock's
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EAGAIN):  # others: a file system without locks
                    raise DataError(
                        f"{self.out} is being packed already. Wait for it, or choose another place."
                    ) from None
            yield
        finally:
            if self.parts.exists() and not (self.parts / "plan.json").exists():  # it failed before it began
                shutil.rmtree(self.parts)
            os.close(lock)

    def start(self) -> None:
        """Write down what is packed, or compare with what an earlier try wrote; make the files for the blocks."""
        plan = self.parts / "plan.json"
        if plan.exists():
            self._compare(json.loads(plan.read_text()))
            return
        with explained_writing(self.out):
            for shape, file in zip(self.shapes, self.files, strict=True):
                write_header(file, shape)
            temporary = plan.with_suffix(".tmp")
            temporary.write_text(json.dumps(self.state, indent=1))
            os.replace(temporary, plan)

    def block(self, number: int) -> range:
        """The samples of a block."""
        size = self.shapes[0].block_samples
        return range(number * size, min((number + 1) * size, len(self.source)))

    def writing(self) -> Writing:
        """What a rank needs to write blocks."""
        header = self.parts / f"header-{os.getpid()}.h5"
        with explained_writing(self.out):
            columns = tuple(write_header(header, shape) for shape in self.shapes)
            header.unlink()
        return Writing(
            source=self.source,
            names=self.names,
            shapes=self.shapes,
            edges=self.edges,
            files=self.files,
            columns=columns,
            keep_nan=self.config.keep_nan,
        )

    def read_journals(self) -> dict[int, BlockResult]:
        """What all ranks of all tries noted; a last line that was cut off does not count."""
        self.done = {}
        for journal in sorted(self.parts.glob("journal*.jsonl")):
            for line in journal.read_text().splitlines():
                try:
                    result = BlockResult.from_line(line)
                except (json.JSONDecodeError, KeyError, TypeError):
                    continue
                self.done[result.number] = result
        return self.done

    def forget(self, numbers: Sequence[int]) -> None:
        """Drop blocks that are not on disk as noted; too many bad samples among the others end the job."""
        dropped = set(numbers)
        self.done = {number: result for number, result in self.done.items() if number not in dropped}
        self.num_done = sum(result.num_samples for result in self.done.values())
        self._count_bad()

    def note(self, result: BlockResult, journal: str) -> None:
        """Add a finished block to a journal; too many bad samples end the job."""
        self.done[result.number] = result
        with explained_writing(self.out), open(self.parts / journal, "a") as file:
            file.write(result.to_line() + "\n")
        self.num_done += result.num_samples
        if result.bad:
            self._count_bad()

    def write(self, numbers: Sequence[int], journal: str, tell: Tell) -> None:
        """Write blocks one after the other, those aside that an earlier try has written."""
        writing, noted = self.writing(), self.read_journals()
        self.done = {number: noted[number] for number in numbers if number in noted}
        self.forget([number for number, result in self.done.items() if not verify_block(writing, result)])
        mine = sum(len(self.block(number)) for number in numbers)
        for number in numbers:
            if number not in self.done:
                self.note(write_block(writing, number), journal)
                tell(round(self.num_done / mine * len(self.source)), len(self.source))

    def write_alone(self, tell: Tell) -> Packed:
        """Do all of it in this process."""
        with self.claimed():
            self.start()
            self.write(range(self.num_blocks), "journal.jsonl", tell)
            return self.finish()

    @property
    def bad(self) -> dict[int, str]:
        """Samples that can't be used, by index, with the reason."""
        return {index: text for number in sorted(self.done) for index, text in self.done[number].bad.items()}

    def finish(self) -> Packed:
        """Put headers on the files and move them into place, at once."""
        with explained_writing(self.out):
            for shard, file in enumerate(self.files):
                self._put_header(shard, file)
            if self.bad:
                return self._close_gaps()
            PackedSource(self.parts / "shards", verify=False)  # raises if the header is not whole
            os.replace(self.parts / "shards" if self.config.shards else self.files[0], self.out)
            shutil.rmtree(self.parts)
        packed = PackedSource(self.out, verify=False)  # what was written was hashed on the way
        return Packed(path=self.out, content_sha256=packed.content_sha256, num_samples=len(packed))

    def _put_header(self, shard: int, file: Path) -> None:
        shape, header = self.shapes[shard], self.parts / "header.h5"
        columns = write_header(header, shape, self._content(shard))
        descriptor = os.open(file, os.O_RDWR)
        try:
            copy_header(header, descriptor, shape, columns)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _content(self, shard: int) -> Content:
        """What the blocks of a shard say of it, merged in their order."""
        size, fields = self.shapes[0].block_samples, self.source.spec.fields
        blocks = [self.done[number] for number in range(self.edges[shard] // size, -(-self.edges[shard + 1] // size))]
        shards = {"shard": [shard, len(self.files)]} if self.config.shards else {}
        return Content(
            block_sha256={name: tuple(block.sha256[name] for block in blocks) for name in [*fields, NAMES]},
            moments={
                name: reduce(
                    Moments.merge,
                    [block.moments[name] for block in blocks if block.moments],
                    Moments.none(len(each.channels) or 1),
                )
                for name, each in fields.items()
            },
            class_counts={
                name: np.sum([block.class_counts[name] for block in blocks], axis=0)
                for name, each in fields.items()
                if each.classes
            },
            attributes={**self.attributes, **shards},
        )

    def _close_gaps(self) -> Packed:
        """Pack what is good once more, from the files that have gaps: no tool may take a gap for a sample."""
        left_out = {
            name: re.sub(rf"\S*/{re.escape(name)}", name, text)  # where a source stands is no part of the data
            for name, text in ((self.names[index].decode(), text) for index, text in self.bad.items())
        }
        good = np.setdiff1d(np.arange(len(self.source)), list(self.bad))
        if not len(good):
            raise DataError(
                f"none of the {len(self.source)} samples can be used, as {next(iter(left_out.values())).rstrip('.')}."
            )
        for stale in self.parts.glob("good*"):
            shutil.rmtree(stale) if stale.is_dir() else stale.unlink()
        source = Subset(PackedSource(self.parts / "shards", verify=False), good)
        attributes = {**self.attributes, "left_out": left_out}
        again = Job(source, self.parts / "good", replace(self.config, skip_bad=0), attributes, "").write_alone(silent)
        os.replace(again.path, self.out)
        shutil.rmtree(self.parts)
        return replace(again, path=self.out, left_out=left_out)

    def _count_bad(self) -> None:
        bad = self.bad
        if len(bad) > self.config.skip_bad:
            more = f" ({len(bad)} such samples so far, {self.config.skip_bad} allowed)" if self.config.skip_bad else ""
            raise DataError(
                f"{next(iter(bad.values())).rstrip('.')}.{more} What is done is kept: the same command goes on with it."
            )

    def _compare(self, earlier: Mapping[str, Any]) -> None:
        state = json.loads(json.dumps(self.state))
        other = [key for key in state if earlier.get(key) != state[key]]
        if other:
            raise DataError(
                f"{self.parts} holds the parts of another packing (other {', '.join(other)}). Delete that folder to "
                "begin anew, or choose another place."
            )

    def _need_space(self) -> None:
        free = shutil.disk_usage(self.out.parent).free
        if free < self.num_bytes:
            raise DataError(
                f"{self.out} needs {self.num_bytes / 2**20:,.1f} MiB, and its file system has {free / 2**20:,.1f} MiB "
                "left. Free some space, or choose another place."
            )


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
