"""The journal of a packing: which blocks are done, a line each, so that whoever starts again does the rest.

Ranks of a launcher write a file each, and read those of all. It knows what is told of a block, and not where it stands.
"""

import json
from collections.abc import Collection
from pathlib import Path

from deepex.data.packing.block import BlockResult, explained_writing
from deepex.errors import DataError


class Journal:
    """Blocks that are done. More than `skip_bad` bad samples among them are an error.

    Arguments:
        folder: where the journals of all ranks stand.
        rank: whose lines are added here; none if one process writes for all.
        skip_bad: how many samples may be bad.
    """

    def __init__(self, folder: Path, *, rank: int | None = None, skip_bad: int = 0) -> None:
        self.path = folder / ("journal.jsonl" if rank is None else f"journal-{rank:05d}.jsonl")
        self.skip_bad = skip_bad
        self.done: dict[int, BlockResult] = {}
        self.num_samples = 0  # of the blocks that are done

    def read(self) -> None:
        """Take in what all ranks of all tries noted; a last line that was cut off does not count."""
        self.done = {}
        for file in sorted(self.path.parent.glob("journal*.jsonl")):
            for line in file.read_text().splitlines():
                try:
                    result = BlockResult.from_line(line)
                except (json.JSONDecodeError, KeyError, TypeError):
                    continue
                self.done[result.number] = result
        self._count()

    def retain(self, numbers: Collection[int]) -> None:
        """Count these blocks only: others are not on disk as noted, or not of this rank."""
        self.done = {number: result for number, result in self.done.items() if number in numbers}
        self._count()
        self._check_bad()

    def add(self, result: BlockResult) -> None:
        """Note a block that is done."""
        self.done[result.number] = result
        self.num_samples += result.num_samples
        with explained_writing(self.path), open(self.path, "a") as file:
            file.write(result.to_line() + "\n")
        if result.bad:
            self._check_bad()

    @property
    def bad(self) -> dict[int, str]:
        """Samples that can't be used, by index, with the reason."""
        return {index: text for number in sorted(self.done) for index, text in self.done[number].bad.items()}

    def _count(self) -> None:
        self.num_samples = sum(result.num_samples for result in self.done.values())

    def _check_bad(self) -> None:
        bad = self.bad
        if len(bad) > self.skip_bad:
            more = f" ({len(bad)} such samples so far, {self.skip_bad} allowed)" if self.skip_bad else ""
            raise DataError(
                f"{next(iter(bad.values())).rstrip('.')}.{more} What is done is kept: the same command goes on with it."
            )
