"""The outcome of a study, finished or not, for study.json. It reads runs, and draws nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from statistics import fmean, median

from deepex import sync as strategies
from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.record.rows import Diagnosis
from deepex.record.study_rows import (
    CellRow,
    CutoffRow,
    Environment,
    Estimate,
    LaunchedBy,
    RunFacts,
    RunState,
    SeriesRow,
    State,
    StudyOutcome,
)
from deepex.study.estimate import compare, estimate
from deepex.study.facts import COMPUTING, FinishedRun, read_run
from deepex.study.findings import find_sentences
from deepex.study.folder import StudyFolder
from deepex.study.learning import find_saturation, judge_cutoff
from deepex.study.plan import Cell, Plan, make_cells
from deepex.study.scaling import Point, find_crossover
from deepex.study.sweep import plan_runs

STATES: tuple[State, ...] = ("done", "running", "stopped", "left", "failed")  # in the order in which they are told


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A cell with its finished runs, and those of the cell that its speedups are counted from."""

    cell: Cell
    states: Sequence[RunState]
    runs: Sequence[RunFacts]
    diagnosis: Diagnosis | None
    base: Sequence[RunFacts]
    base_ranks: int
    is_base: bool
    base_failed: int

    @property
    def oversubscribed(self) -> bool:
        """Whether there were more ranks than cores."""
        return any(state.oversubscribed for state in self.states) or any(run.shares_cores for run in self.runs)

    @property
    def uneven(self) -> bool:
        """Whether a rank had more or fewer cores than one of the cell that speedups are counted from."""
        own, base = ({run.cores / run.ranks for run in runs} for runs in (self.runs, self.base))
        return bool(own and base) and own != base

    @property
    def failed(self) -> int:
        return sum(state.state == "failed" for state in self.states)

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


def read_outcome(folder: StudyFolder) -> StudyOutcome:
    """Everything that the runs of a study show so far."""
    recipe, plan = folder.read()
    cells = make_cells(recipe, plan.varied)
    states = [run.row for run in plan_runs(folder, cells, plan.varied.seeds, at_work=folder.is_held)]
    finished = {
        state.name: read_run(folder.runs / state.name, state.seed, plan.judged)
        for state in states
        if state.state == "done"
    }
    judgements = [_judge(cell, cells, states, finished) for cell in cells]
    outcome = StudyOutcome(
        study=folder.path.resolve().name,
        task=recipe.task.name,
        metric=plan.judged.metric,
        direction=plan.judged.direction,
        cutoffs=plan.judged.cutoffs,
        precision=recipe.precision,
        scaling=plan.varied.scaling,
        seeds=plan.varied.seeds,
        command=command(folder, plan),
        where=LaunchedBy(launcher=plan.where.launcher, cluster=plan.where.cluster),
        cores_per_rank=plan.where.cores_per_rank,
        started=min((run.record.started for run in finished.values()), default=None),
        states={name: sum(run.state == name for run in states) for name in STATES},
        failures={run.name: run.error for run in states if run.state == "failed"},
        environments=find_environments(list(finished.values())),
        data_sha256=tuple(sorted({str(run.record.data_sha256) for run in finished.values()})),
        base_ranks=min(cell.ranks for cell in cells),
        cells=tuple(_describe(each, _reach(each, plan)) for each in judgements),
        series=tuple(_describe_series(name, settings, judgements) for name, settings in _series(cells)),
        recipe=folder.files.recipe.read_text(),
        plan=(folder.path / "study.toml").read_text(),
    )
    return replace(outcome, findings=tuple(find_sentences(outcome)))


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


def find_environments(runs: Sequence[FinishedRun]) -> tuple[Environment, ...]:
    """Machines, commits and versions that the runs of a study saw; more than one is worth a warning."""
    found: dict[str, tuple[Environment, list[FinishedRun]]] = {}
    for run in runs:
        seen = _environment(run)
        found.setdefault(repr(seen), (seen, []))[1].append(run)
    return tuple(
        replace(
            seen,
            launchers=tuple(
                dict.fromkeys(
                    f"{run.record.launcher}, fabric {run.record.fabric}" for run in own if len(run.record.places) > 1
                )
            ),
            runs=tuple(run.facts.name for run in own),
        )
        for seen, own in found.values()
    )


def _environment(run: FinishedRun) -> Environment:
    hardware, code = run.record.hardware, run.record.code
    return Environment(
        host=hardware.host,
        processor=hardware.processor,
        instructions=hardware.instructions,
        memory_gib=hardware.memory_gib,
        system=hardware.system,
        accelerators=hardware.accelerators,
        commit=code.commit,
        clean=code.clean,
        versions=run.record.versions,
    )


def _judge(
    cell: Cell, cells: Sequence[Cell], states: Sequence[RunState], finished: Mapping[str, FinishedRun]
) -> Judgement:
    peers = [each for each in cells if each.settings == cell.settings and each.series in ("", cell.series)]
    base = min(peers, key=lambda peer: peer.ranks)
    own, base_states = ([state for state in states if state.cell == each.name] for each in (cell, base))
    ended = [finished[state.name] for state in own if state.name in finished]
    alone = [finished[state.name].facts for state in base_states if state.name in finished]
    return Judgement(
        cell=cell,
        states=own,
        runs=alone if base is cell else [run.facts for run in ended],
        diagnosis=ended[0].diagnosis if ended else None,
        base=alone,
        base_ranks=base.ranks,
        is_base=base is cell,
        base_failed=sum(state.state == "failed" for state in base_states),
    )


def _reach(judgement: Judgement, plan: Plan) -> tuple[CutoffRow, ...]:
    return tuple(
        judge_cutoff(place, cutoff, judgement.runs, judgement.base, (judgement.failed, judgement.base_failed))
        for place, cutoff in enumerate(plan.judged.cutoffs)
    )


def _describe(judgement: Judgement, cutoffs: tuple[CutoffRow, ...]) -> CellRow:
    """A cell, for programs."""
    cell, runs = judgement.cell, judgement.runs
    row = CellRow(
        name=cell.name,
        ranks=cell.ranks,
        sync=cell.sync,
        series=cell.series,
        settings=cell.settings,
        scaling=cell.scaling,
        noise_from="gradients" if _tells_gradients(cell) else "weights",
        batch=cell.batch,
        oversubscribed=judgement.oversubscribed,
        uneven_cores=judgement.uneven,
        states={state.name: state.state for state in judgement.states},
        runs=tuple(runs),
    )
    if not runs:
        return row
    wall = sum(judgement.phase_seconds(phase) for phase in STEP_PHASES)
    joules = [run.energy_joules for run in runs if run.energy_joules is not None]
    return replace(
        row,
        epoch_seconds=estimate([run.epoch_seconds for run in runs]),
        samples_per_second=estimate([run.samples_per_second for run in runs]),
        gflops_per_second=estimate([run.gflops_per_second for run in runs]),
        share_of_peak=estimate([run.share_of_peak for run in runs]),
        speedup=judgement.speedup,
        efficiency=judgement.efficiency,
        phase_seconds={name: judgement.phase_seconds(name) for name in STEP_PHASES + BESIDE_PHASES},
        phase_shares={name: judgement.phase_seconds(name) / wall for name in STEP_PHASES},
        cutoffs=cutoffs,
        target_epochs=tuple(run.epochs_to[-1] for run in runs),
        noise_scale=judgement.noise_scale,
        energy_joules=fmean(joules) if len(joules) == len(runs) else None,
        cores=runs[0].cores,
        diagnosis=judgement.diagnosis,
    )


def _series(cells: Sequence[Cell]) -> list[tuple[str, tuple[str, ...]]]:
    """What lines are drawn through: strategies, and settings that vary."""
    named = [cell for cell in cells if cell.series] or list(cells)  # a study of one rank is one of settings
    return list(dict.fromkeys((cell.series, cell.settings) for cell in named))


def _describe_series(name: str, settings: tuple[str, ...], judgements: Sequence[Judgement]) -> SeriesRow:
    own = [each for each in judgements if (each.cell.series, each.cell.settings) == (name, settings) and each.runs]
    points = [each.point for each in own if each.cell.ranks > 1 and not each.oversubscribed]
    known = [(each.cell.ranks, each.noise_scale) for each in own if each.noise_scale is not None]
    saturation = None
    if known and own[0].cell.scaling == "weak" and _tells_gradients(own[0].cell):
        last = max(known)[1]
        assert last is not None
        saturation = find_saturation(last, own[0].cell.recipe.data.batch)
    syncs_fall = True
    if own:
        once_an_epoch = strategies.find_traits(own[0].cell.sync).once_an_epoch
        syncs_fall = own[0].cell.scaling == "weak" and not once_an_epoch
    crossover = find_crossover(points, syncs_fall=syncs_fall)
    return SeriesRow(name=name, settings=settings, crossover=crossover, saturation=saturation)


def _tells_gradients(cell: Cell) -> bool:
    """Whether noise is that of gradients, which ranks share, and not that of weights between two syncs."""
    return strategies.parse(cell.sync).traits.shares_gradients
