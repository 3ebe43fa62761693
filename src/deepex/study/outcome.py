"""The outcome of a study, finished or not, as plain values for study.json. It reads runs, and draws nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from statistics import fmean, median
from typing import Any

from deepex import sync as strategies
from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.record.typed_json import to_json
from deepex.study.estimate import Estimate, compare, estimate
from deepex.study.facts import COMPUTING, Facts, read_facts
from deepex.study.findings import find_sentences
from deepex.study.folder import StudyFolder
from deepex.study.learning import Reached, Saturation, judge_cutoff
from deepex.study.plan import Cell, Plan, make_cells
from deepex.study.scaling import Point, find_crossover
from deepex.study.sweep import plan_runs

UNAVAILABLE = "unavailable"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A cell with its finished runs, and those of the cell that its speedups are counted from."""

    cell: Cell
    states: Sequence[Mapping[str, Any]]
    runs: Sequence[Facts]
    base: Sequence[Facts]
    base_ranks: int
    is_base: bool
    base_failed: int

    @property
    def oversubscribed(self) -> bool:
        """Whether there were more ranks than cores."""
        return any(state.get("oversubscribed") for state in self.states) or any(run.shares_cores for run in self.runs)

    @property
    def uneven(self) -> bool:
        """Whether a rank had more or fewer cores than one of the cell that speedups are counted from."""
        own, base = ({run.cores / run.ranks for run in runs} for runs in (self.runs, self.base))
        return bool(own and base) and own != base

    @property
    def failed(self) -> int:
        return sum(state["state"] == "failed" for state in self.states)

    @property
    def speedup(self) -> Estimate | None:
        """S_p = T_s / T_p."""
        if not self.runs or not self.base:
            return None
        if self.is_base:
            return Estimate(value=1.0, runs=len(self.runs))
        return compare([run.epoch_seconds for run in self.base], [run.epoch_seconds for run in self.runs])

    @property
    def efficiency(self) -> Estimate | None:
        """S_p by the number of ranks; none where ranks shared cores, or had more or fewer than the base's."""
        found = self.speedup
        if found is None or self.oversubscribed or self.uneven:
            return None
        scale = self.base_ranks / self.cell.ranks
        low, high = (None if end is None else end * scale for end in (found.low, found.high))
        return Estimate(value=found.value * scale, low=low, high=high, runs=found.runs)

    def phase_seconds(self, phase: str) -> float:
        return fmean(run.phase_seconds[phase] for run in self.runs)

    @property
    def point(self) -> Point:
        return Point(
            ranks=self.cell.ranks,
            compute_seconds=sum(self.phase_seconds(phase) for phase in COMPUTING),
            sync_seconds=self.phase_seconds("sync"),
        )

    @property
    def noise_scale(self) -> float | None:
        known = [run.noise_scale for run in self.runs if run.noise_scale is not None]
        return median(known) if known else None


def read_outcome(folder: StudyFolder) -> dict[str, Any]:
    """Everything that the runs of a study show so far."""
    recipe, plan = folder.read()
    cells = make_cells(recipe, plan.varied)
    states = [run.to_json() for run in plan_runs(folder, cells, plan.varied.seeds, at_work=folder.is_held)]
    facts = {
        state["name"]: read_facts(folder.runs / state["name"], state["seed"], plan.judged)
        for state in states
        if state["state"] == "done"
    }
    judgements = [_judge(cell, cells, states, facts) for cell in cells]
    reached = {each.cell.name: _reach(each, plan) for each in judgements}
    series = [_describe_series(name, settings, judgements) for name, settings in _series(cells)]
    shown = [_describe(each, reached[each.cell.name]) for each in judgements]
    outcome = {
        "study": folder.path.resolve().name,
        "task": recipe.task.name,
        "metric": plan.judged.metric,
        "direction": plan.judged.direction,
        "cutoffs": list(plan.judged.cutoffs),
        "precision": recipe.precision,
        "scaling": list(plan.varied.scaling),
        "seeds": list(plan.varied.seeds),
        "command": command(folder, plan),
        "where": {"launcher": plan.where.launcher, "cluster": plan.where.cluster},
        "cores_per_rank": plan.where.cores_per_rank,
        "started": min((run.record.started for run in facts.values()), default=None),
        "states": {
            state: sum(run["state"] == state for run in states)
            for state in ("done", "running", "stopped", "left", "failed")
        },
        "failures": {run["name"]: run["error"] for run in states if run["state"] == "failed"},
        "environments": find_environments(list(facts.values())),
        "data_sha256": sorted({str(run.record.data_sha256) for run in facts.values()}),
        "base_ranks": min(cell.ranks for cell in cells),
        "cells": shown,
        "series": series,
        "recipe": folder.files.recipe.read_text(),
        "plan": (folder.path / "study.toml").read_text(),
    }
    return {**outcome, "findings": find_sentences(outcome)}


def command(folder: StudyFolder, plan: Plan) -> str:
    """The command that runs the study again, from its own recipe."""
    varied, where = plan.varied, plan.where
    words = [
        f"deepex study {folder.files.recipe} --ranks {','.join(map(str, varied.ranks))}",
        f"--sync {quote(','.join(varied.sync))} --scaling {','.join(varied.scaling)} --repeats {len(varied.seeds)}",
        *(f"--vary {quote(line)}" for line in varied.settings),
        f"--cutoffs {','.join(map(repr, plan.judged.cutoffs))}",
    ]
    words += [f"--launcher {quote(where.launcher)}"] if where.launcher else []
    words += [f"--cluster {where.cluster}"] if where.cluster else []
    words += [f"--cores-per-rank {where.cores_per_rank}"] if where.cores_per_rank else []
    return " ".join(words) + " --out AGAIN"


def find_environments(runs: Sequence[Facts]) -> list[dict[str, Any]]:
    """Machines, commits and versions that the runs of a study saw; more than one is worth a warning."""
    found: dict[str, dict[str, Any]] = {}
    for run in runs:
        hardware, code = run.record.hardware, run.record.code
        seen = {
            "host": hardware.host,
            "processor": hardware.processor,
            "instructions": hardware.instructions,
            "memory_gib": hardware.memory_gib,
            "system": hardware.system,
            "accelerators": hardware.accelerators,
            "commit": code.commit,
            "clean": code.clean,
            "versions": dict(run.record.versions),
        }
        entry = found.setdefault(repr(seen), {**seen, "launchers": [], "runs": []})
        how = f"{run.record.launcher}, fabric {run.record.fabric}"
        if len(run.record.places) > 1 and how not in entry["launchers"]:
            entry["launchers"].append(how)
        entry["runs"].append(run.name)
    return list(found.values())


def _judge(
    cell: Cell, cells: Sequence[Cell], states: Sequence[Mapping[str, Any]], facts: Mapping[str, Facts]
) -> Judgement:
    peers = [each for each in cells if each.settings == cell.settings and each.series in ("", cell.series)]
    base = min(peers, key=lambda peer: peer.ranks)

    def finished(of: Cell) -> list[Facts]:
        return [facts[state["name"]] for state in states if state["cell"] == of.name and state["name"] in facts]

    alone = finished(base)
    return Judgement(
        cell=cell,
        states=[state for state in states if state["cell"] == cell.name],
        runs=alone if base is cell else finished(cell),
        base=alone,
        base_ranks=base.ranks,
        is_base=base is cell,
        base_failed=sum(state["state"] == "failed" for state in states if state["cell"] == base.name),
    )


def _reach(judgement: Judgement, plan: Plan) -> list[Reached]:
    return [
        judge_cutoff(place, cutoff, judgement.runs, judgement.base, (judgement.failed, judgement.base_failed))
        for place, cutoff in enumerate(plan.judged.cutoffs)
    ]


def _describe(judgement: Judgement, reached: Sequence[Reached]) -> dict[str, Any]:
    """A cell, for programs."""
    cell, runs = judgement.cell, judgement.runs
    said: dict[str, Any] = {
        "name": cell.name,
        "ranks": cell.ranks,
        "sync": cell.sync,
        "series": cell.series,
        "settings": list(cell.settings),
        "scaling": cell.scaling,
        "noise_from": "gradients" if _tells_gradients(cell) else "weights",
        "batch": cell.batch,
        "oversubscribed": judgement.oversubscribed,
        "uneven_cores": judgement.uneven,
        "states": {state["name"]: state["state"] for state in judgement.states},
        "runs": [run.to_json() for run in runs],
    }
    if not runs:
        return said
    wall = sum(judgement.phase_seconds(phase) for phase in STEP_PHASES)
    joules = [run.energy_joules for run in runs if run.energy_joules is not None]
    rates = ("epoch_seconds", "samples_per_second", "gflops_per_second", "share_of_peak")
    return {
        **said,
        **{name: _plain(estimate([getattr(run, name) for run in runs])) for name in rates},
        "speedup": _plain(judgement.speedup),
        "efficiency": _plain(judgement.efficiency),
        "phase_seconds": {name: judgement.phase_seconds(name) for name in STEP_PHASES + BESIDE_PHASES},
        "phase_shares": {name: judgement.phase_seconds(name) / wall for name in STEP_PHASES},
        "cutoffs": [each.to_json() for each in reached],
        "target_epochs": [run.epochs_to[-1] for run in runs],
        "noise_scale": judgement.noise_scale,
        "energy_joules": fmean(joules) if len(joules) == len(runs) else UNAVAILABLE,
        "cores": runs[0].cores,
        "diagnosis": to_json(runs[0].diagnosis),
    }


def _series(cells: Sequence[Cell]) -> list[tuple[str, tuple[str, ...]]]:
    """What lines are drawn through: strategies, and settings that vary."""
    named = [cell for cell in cells if cell.series] or list(cells)  # a study of one rank is one of settings
    return list(dict.fromkeys((cell.series, cell.settings) for cell in named))


def _describe_series(name: str, settings: tuple[str, ...], judgements: Sequence[Judgement]) -> dict[str, Any]:
    own = [each for each in judgements if (each.cell.series, each.cell.settings) == (name, settings) and each.runs]
    points = [each.point for each in own if each.cell.ranks > 1 and not each.oversubscribed]
    known = [(each.cell.ranks, each.noise_scale) for each in own if each.noise_scale is not None]
    saturation = None
    if known and own[0].cell.scaling == "weak" and _tells_gradients(own[0].cell):
        last = max(known)[1]
        assert last is not None
        saturation = Saturation(noise_scale=last, batch=own[0].cell.recipe.data.batch).to_json()
    syncs_fall = True
    if own:
        once_an_epoch = strategies.find_traits(own[0].cell.sync).once_an_epoch
        syncs_fall = own[0].cell.scaling == "weak" and not once_an_epoch
    return {
        "name": name,
        "settings": list(settings),
        "crossover": find_crossover(points, syncs_fall=syncs_fall).to_json(),
        "saturation": saturation,
    }


def _tells_gradients(cell: Cell) -> bool:
    """Whether noise is that of gradients, which ranks share, and not that of weights between two syncs."""
    return strategies.parse(cell.sync).traits.shares_gradients


def _plain(found: Estimate | None) -> dict[str, Any] | None:
    return None if found is None else found.to_json()
