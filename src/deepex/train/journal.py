"""What a run writes down as it goes: what was settled, its epochs, what bounds it, and its outcome.

All ranks keep a journal; rank 0 writes what is of all, each rank its own phases. It trains nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from deepex.config import to_toml
from deepex.diagnosis.evidence import Circumstances, Evidence
from deepex.diagnosis.sentences import diagnose
from deepex.fabric import Fabric
from deepex.fabric.link import measure_link
from deepex.record.folder import RunFolder
from deepex.record.sinks.progress import Listener
from deepex.train.checkpoint import Position
from deepex.train.compute.step_cost import Yardstick
from deepex.train.recipe import Recipe
from deepex.train.summary import epoch_row, summarise
from deepex.train.task import Tally


class Journal:
    """The record of one rank's run."""

    def __init__(self, folder: RunFolder, fabric: Fabric, listener: Listener) -> None:
        self.folder, self.fabric, self.listener = folder, fabric, listener
        self.writes = fabric.world.is_first
        self._phases = f"phases/{fabric.world.file_stem}.jsonl"

    def begin(self, recipe: Recipe, notes: Mapping[str, Any], yardstick: Yardstick, weights_bytes: int) -> None:
        """Write down the recipe as it is run, and what the run knows of itself before its first step."""
        self.recipe = recipe
        self.yardsticks = self.fabric.gather(yardstick)
        self._places = self.fabric.gather({"host": self.fabric.world.host, "threads": yardstick.cores})
        link = measure_link(self.fabric, weights_bytes).to_json() if self.fabric.world.size > 1 else None
        self._circumstances = Circumstances.of(recipe, self.fabric, weights_bytes, link)
        if self.writes:
            as_run = replace(recipe, sync=notes.get("as_run", recipe.sync))
            self.folder.write_text("recipe.toml", to_toml(as_run))

    def rewind(self, last_epoch: int) -> None:
        """Forget what came after an epoch: a resumed run writes it again."""
        self.folder.keep_lines(self._phases, last_epoch)
        if self.writes:
            self.folder.keep_lines("metrics.jsonl", last_epoch)

    def write_epoch(self, position: Position, ranks: list[dict[str, Any]], tally: Tally) -> None:
        """An epoch's lines, with what bounds the run as far as that epoch shows."""
        self.folder.append_line(self._phases, {"epoch": position.epoch, **ranks[self.fabric.world.rank]})
        if not self.writes:
            return
        row = epoch_row(self.recipe, position, ranks, tally)
        row["diagnosis"] = self._diagnose([[rank] for rank in ranks])
        self.listener.epoch(row)
        self.folder.append_line("metrics.jsonl", row)

    def finish(self, position: Position, memory: Sequence[int], notes: Mapping[str, Any], sha256: str) -> None:
        """The outcome, for programs; `memory` is each rank's, in bytes."""
        if not self.writes:
            return
        logs = [f"phases/rank{rank:05d}.jsonl" for rank in range(len(memory))]
        outcome = summarise(self.recipe, self.fabric, self.folder, position, self.yardsticks, memory)
        outcome["diagnosis"] = self._diagnose([self.folder.read_lines(log) for log in logs])
        self.folder.write_json("summary.json", {**outcome, "sync_notes": dict(notes), "weights_sha256": sha256})

    def _diagnose(self, rows: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any] | None:
        yardsticks = [yardstick.to_json() for yardstick in self.yardsticks]
        evidence = Evidence.gather(rows, self._circumstances, yardsticks=yardsticks, places=self._places)
        return None if evidence is None else diagnose(evidence).to_json()
