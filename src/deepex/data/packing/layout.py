"""The layout of a packed data set: which samples make up a block, which file it stands in, and from which row on.

It follows from the sizes of samples and names alone, so all ranks know it from the start. It touches no file.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from deepex.data.packing.header import Shape
from deepex.sample import SampleSpec

LEAST_BLOCK, MOST_BLOCK, MOST_BLOCKS = 1 << 20, 64 << 20, 4096  # bytes of a block, and how many a set is cut into


@dataclass(frozen=True, kw_only=True)
class Place:
    """Samples `first` up to `last`, in `shard`, from its row `row` on."""

    first: int
    last: int
    shard: int
    row: int

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def samples(self) -> range:
        return range(self.first, self.last)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Blocks of samples in one file or in several, its shards.

    Shard `s` holds the samples from `edges[s]` to `edges[s + 1]`; edges lie between blocks.
    """

    spec: SampleSpec
    name_bytes: int
    block_samples: int
    edges: tuple[int, ...]

    @classmethod
    def of(cls, spec: SampleSpec, num_samples: int, name_bytes: int, *, shards: int = 1, group: int = 1) -> Self:
        """The layout of so many samples in about `shards` files; `group` neighbours are never parted.

        >>> layout = Layout.of(SampleSpec(), 100, 1 << 18, shards=2)
        >>> layout.block_samples, layout.num_blocks, layout.edges
        (4, 25, (0, 48, 100))
        """
        total = (spec.num_bytes + name_bytes) * num_samples
        size = max(1, min(max(total // MOST_BLOCKS, LEAST_BLOCK), MOST_BLOCK) * num_samples // total)
        size = -(-size // group) * group
        num_blocks = -(-num_samples // size)
        shards = min(max(1, shards), num_blocks)
        edges = (*(size * (num_blocks * shard // shards) for shard in range(shards)), num_samples)
        return cls(spec=spec, name_bytes=name_bytes, block_samples=size, edges=edges)

    @property
    def num_samples(self) -> int:
        return self.edges[-1]

    @property
    def num_bytes(self) -> int:
        """Bytes of all samples and their names."""
        return (self.spec.num_bytes + self.name_bytes) * self.num_samples

    @property
    def num_blocks(self) -> int:
        return -(-self.num_samples // self.block_samples)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """What decides where things stand in each file."""
        return tuple(
            Shape(
                spec=self.spec,
                num_samples=last - first,
                name_bytes=self.name_bytes,
                block_samples=self.block_samples,
            )
            for first, last in zip(self.edges[:-1], self.edges[1:], strict=True)
        )

    def files(self, folder: Path) -> tuple[Path, ...]:
        """A file a shard."""
        return tuple(folder / f"{shard:05d}.h5" for shard in range(len(self.edges) - 1))

    def place(self, number: int) -> Place:
        """Where a block stands."""
        first = number * self.block_samples
        shard = int(np.searchsorted(self.edges, first, side="right")) - 1
        last = min(first + self.block_samples, self.edges[shard + 1])
        return Place(first=first, last=last, shard=shard, row=first - self.edges[shard])

    def blocks(self, shard: int) -> range:
        """The numbers of a shard's blocks."""
        return range(self.edges[shard] // self.block_samples, -(-self.edges[shard + 1] // self.block_samples))
