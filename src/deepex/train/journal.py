"""What a run writes down as it goes: what was resolved, its epochs, what bounds it, and its outcome.

All ranks keep a journal; rank 0 writes what is of all, each rank its own phases. It trains nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from deepex.config import to_toml
from deepex.diagnosis.diagnosis import diagnose
from deepex.diagnosis.evidence import Circumstances, Evidence, Storage
from deepex.fabric import Fabric
from deepex.fabric.link import measure_link
from deepex.record.folder import RunFolder
from deepex.record.illustration import Illustration, write_illustration
from deepex.record.rows import (
    EPOCHS_FILE,
    SUMMARY_FILE,
    Diagnosis,
    RankRow,
    StepCost,
    read_epochs,
    read_ranks,
)
from deepex.record.sinks.progress import Listener
from deepex.record.typed_json import to_json
from deepex.train.checkpoint import Position
from deepex.train.compute.precision import has_instructions
from deepex.train.recipe import Recipe
from deepex.train.summary import Ending, epoch_row, summarise
from deepex.train.task import Tally

IMPLAUSIBLE = 1e11  # bytes a second: no link, but noise that was longer than the message


class Journal:
    """The record of one rank's run."""

    def __init__(self, folder: RunFolder, fabric: Fabric, listener: Listener) -> None:
        self.folder, self.fabric, self.listener = folder, fabric, listener
        self.writes = fabric.world.is_first
        self._phases_file = f"phases/{fabric.world.file_stem}.jsonl"

    def begin(
        self,
        recipe: Recipe,
        notes: Mapping[str, Any],
        step_cost: StepCost,
        weights_bytes: int,
        storage: Storage,
        *,
        own_loop: bool = False,
    ) -> None:
        """Write down the recipe as it is run, and what the run knows of itself before its first step."""
        self.recipe = recipe
        self._step_costs = self.fabric.gather(step_cost)
        self._hosts = self.fabric.gather(self.fabric.world.host)
        link = measure_link(self.fabric, weights_bytes).to_json() if self.fabric.world.size > 1 else None
        told = describe_circumstances(recipe, self.fabric, weights_bytes, link)
        self._circumstances = replace(told, storage=storage, own_loop=own_loop)
        if self.writes:
            as_run = replace(recipe, sync=notes.get("as_run", recipe.sync))
            self.folder.write_text("recipe.toml", to_toml(as_run))

    def rewind(self, last_epoch: int) -> None:
        """Forget what came after an epoch: a resumed run writes it again."""
        self.folder.keep_lines(self._phases_file, last_epoch)
        if self.writes:
            self.folder.keep_lines(EPOCHS_FILE, last_epoch)

    def write_epoch(self, ranks: Sequence[RankRow], tally: Tally) -> None:
        """An epoch's lines, with what bounds the run as far as that epoch shows."""
        self.folder.append_line(self._phases_file, to_json(ranks[self.fabric.world.rank]))
        if not self.writes:
            return
        row = epoch_row(self.recipe, ranks, tally, self._diagnose([[rank] for rank in ranks]))
        self.listener.epoch(row)
        self.folder.append_line(EPOCHS_FILE, to_json(row))

    def finish(self, position: Position, peak_bytes: Sequence[int], notes: Mapping[str, Any], sha256: str) -> None:
        """The outcome, for programs; `peak_bytes` is the most memory that each rank has had."""
        if not self.writes:
            return
        rows = read_ranks(self.folder)
        ending = Ending(
            position=position,
            step_costs=self._step_costs,
            peak_bytes=peak_bytes,
            weights_sha256=sha256,
            sync_notes=notes,
            diagnosis=self._diagnose([rows.get(rank, []) for rank in range(len(peak_bytes))]),
        )
        self._summary = summarise(self.recipe, self.fabric.name, read_epochs(self.folder), ending)
        self.folder.write_json(SUMMARY_FILE, to_json(self._summary))

    def illustrate(self, illustration: Illustration) -> None:
        """What the task shows of its model, beside the outcome, and its findings in it."""
        write_illustration(self.folder, illustration)
        self.folder.write_json(SUMMARY_FILE, to_json(replace(self._summary, findings=illustration.findings)))

    def _diagnose(self, rows: Sequence[Sequence[RankRow]]) -> Diagnosis | None:
        evidence = Evidence.gather(rows, self._circumstances, step_costs=self._step_costs, hosts=self._hosts)
        return None if evidence is None else diagnose(evidence)


def describe_circumstances(
    recipe: Recipe, fabric: Fabric, weights_bytes: int, link: Mapping[str, float] | None = None
) -> Circumstances:
    """Those of a run that is about to begin."""
    return Circumstances(
        sync=recipe.sync,
        batch=recipe.data.batch,
        precision=recipe.precision,
        device=fabric.world.device,
        overlaps=fabric.overlaps,
        weights_bytes=weights_bytes,
        link=link if link is not None and link["bytes_per_second"] < IMPLAUSIBLE else None,
        has_bf16=has_instructions("bf16", fabric.world.torch_device),
        memory_gib=recipe.data.memory_gib,
        stage=recipe.data.stage,
    )
