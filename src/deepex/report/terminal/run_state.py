"""A run at one moment, from its files alone: where it stands, whether it still lives, which ranks lag.

It draws nothing.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Literal, TypeVar

from deepex.errors import RunFolderError
from deepex.record.folder import RunFolder
from deepex.record.logs import ChangingFiles, parse_rows, read_last_row
from deepex.record.phases import BESIDE_PHASES
from deepex.record.provenance import RECORD_FILE, Placement, RunRecord
from deepex.record.rows import EPOCHS_FILE, SUMMARY_FILE, Diagnosis, EpochRow, RankRow, Summary
from deepex.record.shown_recipe import ShownRecipe
from deepex.record.sinks.progress import PROGRESS_FILE, ProgressNote
from deepex.record.typed_json import from_json
from deepex.train.task import Target

V = TypeVar("V")
Condition = Literal["starting", "running", "complete", "stopped", "silent"]

MAX_RANKS_READ = 256
LAG = 0.1  # more work of its own than the median rank has, by which a rank lags
OWN_WORK = ("input", "forward", "backward", "update")
PATIENCE_SECONDS = 60.0  # at least, before a run is called silent
FIRST_PATIENCE_SECONDS = 600.0  # while it starts and in its first epoch: data may be staged, evaluations may be long
GRACE_SECONDS = 10.0  # for a rank to write an epoch that rank 0 has written
PAGE_SECONDS = 120.0  # for a page to be drawn after its run is complete


@dataclass(frozen=True, kw_only=True)
class Lag:
    """Ranks that lag in an epoch: by their share of work beyond the median's, the slowest first, or without a line."""

    num_read: int = 0
    slower: Mapping[int, float] = field(default_factory=dict)
    absent: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A run at one moment, as its files tell it; `quiet_seconds` is for how long nothing was written."""

    folder: RunFolder
    recipe: ShownRecipe
    record: RunRecord | None
    progress: ProgressNote | None
    summary: Summary | None
    rows: Sequence[EpochRow]
    lag: Lag
    quiet_seconds: float

    @property
    def num_epochs(self) -> int:
        """How many there are at most."""
        return self.recipe.num_epochs

    @property
    def num_ranks(self) -> int:
        return self.recipe.num_ranks

    @property
    def places(self) -> Sequence[Placement]:
        return self.record.places if self.record is not None else ()

    @property
    def diagnosis(self) -> Diagnosis | None:
        if self.summary is not None:
            return self.summary.diagnosis
        return self.rows[-1].diagnosis if self.rows else None

    @property
    def target(self) -> Target | None:
        return Target(**self.progress.target) if self.progress else None

    @property
    def is_within_epoch(self) -> bool:
        """Whether the steps of an epoch are under way whose line is not written yet."""
        last = self.rows[-1].epoch if self.rows else 0
        return self.progress is not None and self.progress.steps > 0 and self.progress.epoch > last

    @property
    def epochs_done(self) -> float:
        """Whole epochs, and the part of the one that is under way."""
        if self.progress is not None and self.is_within_epoch:
            return self.progress.epoch - 1 + self.progress.step / self.progress.steps
        return float(self.rows[-1].epoch) if self.rows else 0.0

    @property
    def seconds(self) -> float:
        """Of training so far."""
        if self.progress is not None and self.is_within_epoch:
            return self.progress.seconds
        return float(self.rows[-1].seconds) if self.rows else 0.0

    @property
    def condition(self) -> Condition:
        """Whether it runs, by what was written last and when."""
        if self.summary is not None:
            return "complete"
        if self.progress is not None and self.progress.ended:
            return "stopped"
        if self.quiet_seconds > self._patience_seconds():
            return "silent"
        return "running" if self.epochs_done or (self.progress is not None and self.progress.step) else "starting"

    @property
    def awaits_page(self) -> bool:
        """Whether the run is complete and its page may still come."""
        return self.summary is not None and not self.folder.page.exists() and self.quiet_seconds < PAGE_SECONDS

    def _patience_seconds(self) -> float:
        """How long a run that lives may write nothing: a few steps, or an evaluation and a checkpoint."""
        if not self.rows or (self.progress is not None and not self.progress.steps):
            return FIRST_PATIENCE_SECONDS + 10 * self.seconds / max(self.progress.step if self.progress else 0, 1)
        last = self.rows[-1]
        needed: float = 3 * last.seconds / last.epoch
        if self.progress:
            beside = sum(last.phase_seconds[name] for name in BESIDE_PHASES)
            needed = 3 * beside + 10 * last.step_wall_seconds / max(last.steps, 1)
        return max(PATIENCE_SECONDS, needed)


class RunReader:
    """Looks at a run again and again, and reads only what has changed."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder, self.files = folder, ChangingFiles(folder.path)
        self._lag, self._lag_epoch = Lag(), 0

    def read(self) -> Standing:
        """The run at this moment."""
        rows: Sequence[EpochRow] = self.files.read(EPOCHS_FILE, _parse_epochs, [])
        recipe = self.files.read("recipe.toml", partial(ShownRecipe.parse, folder=self.folder), None)
        if recipe is None:
            raise RunFolderError(
                f"{self.folder.recipe} can't be read. Give a run that you may read, as deepex run left it."
            )
        progress = self.files.read(PROGRESS_FILE, partial(_parse, ProgressNote), None)
        return Standing(
            folder=self.folder,
            recipe=recipe,
            record=self.files.read(RECORD_FILE, partial(_parse, RunRecord), None),
            progress=progress,
            summary=self.files.read(SUMMARY_FILE, partial(_parse, Summary), None),
            rows=rows,
            lag=self._find_lag(rows, recipe.num_ranks),
            quiet_seconds=time.time() - max(self.files.written(), progress.time if progress else 0.0),
        )

    def _find_lag(self, rows: Sequence[EpochRow], num_ranks: int) -> Lag:
        """Which ranks lag, looked up once an epoch, and again while lines of ranks are missing."""
        if num_ranks == 1 or not rows:
            return Lag()
        epoch = rows[-1].epoch
        if epoch != self._lag_epoch or self._lag.absent:
            self._lag, self._lag_epoch = find_lag(self.folder, num_ranks, epoch), epoch
        is_fresh = time.time() - self.files.written(EPOCHS_FILE) < GRACE_SECONDS
        return replace(self._lag, absent=()) if is_fresh else self._lag


def _parse_epochs(text: str) -> list[EpochRow]:
    return [EpochRow.read(row) for row in parse_rows(text)]


def _parse(kind: type[V], text: str) -> V:
    return from_json(kind, json.loads(text))


def find_lag(folder: RunFolder, num_ranks: int, epoch: int) -> Lag:
    """Which ranks lag in an epoch, by the last line of each rank's phases; of very many ranks, some are looked at."""
    count = min(num_ranks, MAX_RANKS_READ)
    chosen = [index * num_ranks // count for index in range(count)]
    lines = {rank: read_last_row(folder.path / f"phases/rank{rank:05d}.jsonl") for rank in chosen}
    rows = {rank: RankRow.read(line) for rank, line in lines.items() if line is not None}
    there = {rank: row for rank, row in rows.items() if row.epoch >= epoch}
    work = {rank: sum(row.phase_seconds[name] for name in OWN_WORK) for rank, row in there.items() if row.trains}
    usual = median(work.values()) if work else 0.0
    beyond = {rank: seconds / usual - 1 for rank, seconds in work.items()} if usual else {}
    slowest = sorted(beyond, key=lambda rank: -beyond[rank])
    return Lag(
        num_read=count,
        slower={rank: beyond[rank] for rank in slowest if beyond[rank] > LAG},
        absent=[rank for rank in chosen if rank not in there],
    )
