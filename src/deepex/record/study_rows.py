"""What a study writes down, as frozen values: how far its runs are, and what they show together.

It knows what cells.json and study.json say, and nothing of how figures are found or shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from deepex.record.folder import RunFolder
from deepex.record.rows import Diagnosis
from deepex.record.typed_json import from_json, read_rows, to_json

STATES_FILE, STUDY_FILE = "cells.json", "study.json"
UNAVAILABLE = "unavailable"  # study.json's word for energy that no counter told
FIGURES = ("phase_seconds", "phase_shares", "cutoffs", "target_epochs")  # that a cell with a finished run has

Scaling = Literal["weak", "strong"]
State = Literal["left", "running", "stopped", "done", "failed"]
CrossoverKind = Literal["measured", "extrapolated", "never", "unknown"]


@dataclass(frozen=True, kw_only=True)
class RunState:
    """How far a run of a study is: an entry of cells.json.

    Attributes:
        series: the line that its cell is on; empty for one rank, which begins every line.
        settings: what else varies, as in `data.batch=32`.
        seconds: how long its process took, start included.
        began: when it began, as a unix time, while it is running.
        error: why it failed.
        oversubscribed: whether its ranks had no cores of their own.
    """

    name: str
    cell: str
    ranks: int
    series: str = ""
    settings: tuple[str, ...] = ()
    seed: int
    state: State
    seconds: float = 0.0
    began: float | None = None
    error: str = ""
    oversubscribed: bool = False


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A positive figure with its 95 % confidence interval, from `runs` runs; one run has no interval."""

    value: float
    low: float | None = None
    high: float | None = None
    runs: int = 1


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A run over its epochs, a value for each; no noise scale where nothing shows it."""

    epoch: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()
    value: tuple[float, ...] = ()
    loss: tuple[float, ...] = ()
    noise_scale: tuple[float | None, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """A finished run of a study.

    Attributes:
        epoch_seconds: the median over its epochs, evaluation and checkpoints included.
        epochs_to: epochs after which each cut-off was passed; None for one that was not.
        seconds_to: seconds after which it was, as the clock showed.
        value: of the metric, after the last epoch.
        samples: of all ranks, in an epoch.
        phase_seconds: a mapping over the phases, for an epoch, the mean over epochs and ranks.
        cores: of all ranks.
        shares_cores: whether ranks had less than a core each.
    """

    name: str
    seed: int
    ranks: int
    epochs: int
    epoch_seconds: float
    epochs_to: tuple[int | None, ...]
    seconds_to: tuple[float | None, ...]
    value: float
    samples: int
    samples_per_second: float
    gflops_per_second: float
    share_of_peak: float
    phase_seconds: Mapping[str, float]
    noise_scale: float | None = None
    energy_joules: float | None = None
    cores: float
    shares_cores: bool
    curve: Curve


@dataclass(frozen=True, kw_only=True)
class CutoffRow:
    """How a cell came to a cut-off; figures are None unless every one of its runs did.

    Attributes:
        reached: how many of its runs did.
        epochs, seconds: N, and T N.
        speedup: S_L, the learning speedup.
        why_no_speedup: in words, where there is none.
        samples, core_hours: that it took.
    """

    cutoff: float
    reached: int
    runs: int
    epochs: Estimate | None = None
    seconds: Estimate | None = None
    speedup: Estimate | None = None
    why_no_speedup: str = ""
    samples: Estimate | None = None
    core_hours: Estimate | None = None


@dataclass(frozen=True, kw_only=True)
class CellRow:
    """One combination of what varies. Without a finished run it has no figures: None, or nothing in them.

    Attributes:
        series, settings: as in `RunState`.
        noise_from: what the noise scale is of: gradients, which ranks share, or weights between two syncs.
        batch: samples of all ranks in one step.
        oversubscribed: whether there were more ranks than cores.
        uneven_cores: whether a rank had more or fewer cores than one of the cell that speedups are counted from.
        states: of its runs, by name.
        runs: those that are finished.
        speedup: S_p, of an epoch.
        efficiency: S_p by the number of ranks; None where it would compare unequal cores.
        phase_seconds, phase_shares: of an epoch, by phase, the mean over ranks, epochs and runs.
        cutoffs: the easier one first.
        target_epochs: of each run to the last cut-off; None for one that did not get there.
        energy_joules: of a run, the mean; None where no counter told.
        cores: of all ranks of a run.
        diagnosis: what bounds its first run.
    """

    name: str
    ranks: int
    sync: str
    series: str
    settings: tuple[str, ...]
    scaling: Scaling
    noise_from: Literal["gradients", "weights"]
    batch: int
    oversubscribed: bool
    uneven_cores: bool
    states: Mapping[str, State]
    runs: tuple[RunFacts, ...]
    epoch_seconds: Estimate | None = None
    samples_per_second: Estimate | None = None
    gflops_per_second: Estimate | None = None
    share_of_peak: Estimate | None = None
    speedup: Estimate | None = None
    efficiency: Estimate | None = None
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    phase_shares: Mapping[str, float] = field(default_factory=dict)
    cutoffs: tuple[CutoffRow, ...] = ()
    target_epochs: tuple[int | None, ...] = ()
    noise_scale: float | None = None
    energy_joules: float | None = None
    cores: float | None = None
    diagnosis: Diagnosis | None = None


@dataclass(frozen=True, kw_only=True)
class Crossover:
    """The number of ranks at which communication takes as long as computing, and how it is known."""

    kind: CrossoverKind
    ranks: float | None
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Saturation:
    """Where synchronous training gains no more from larger batches.

    Attributes:
        critical_batch: the noise scale: samples whose gradient has as much noise as signal.
        batch: samples that one rank takes a step.
        critical_ranks: that have half of all that larger batches can bring.
        most_learning_speedup: that no number of ranks exceeds.
    """

    critical_batch: float
    batch: int
    critical_ranks: float
    most_learning_speedup: float


@dataclass(frozen=True, kw_only=True)
class SeriesRow:
    """A line through cells: a strategy, with the settings that vary. Saturation is None where nothing shows it."""

    name: str
    settings: tuple[str, ...]
    crossover: Crossover
    saturation: Saturation | None = None


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A machine, commit and versions that some runs of a study saw, and how their ranks were started."""

    host: str
    processor: str
    instructions: str
    memory_gib: float
    system: str
    accelerators: int
    commit: str | None
    clean: bool | None
    versions: Mapping[str, str]
    launchers: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LaunchedBy:
    """What started the ranks of a study's runs; neither where they were those of one machine."""

    launcher: str | None = None
    cluster: str | None = None


@dataclass(frozen=True, kw_only=True)
class StudyOutcome:
    """Everything that the runs of a study show so far: study.json.

    Attributes:
        study: its directory's name.
        cutoffs: qualities that count, the easier one first.
        command: that runs it again.
        cores_per_rank: of this machine, in every cell; None under a launcher.
        started: when its first run did; None before.
        states: how many runs are in each state.
        failures: why runs failed, by their names.
        base_ranks: the fewest, from which speedups are counted.
        recipe, plan: the text of recipe.toml and of study.toml.
        findings: what was found, in sentences.
    """

    study: str
    task: str
    metric: str
    direction: Literal["min", "max"]
    cutoffs: tuple[float, ...]
    precision: str
    scaling: tuple[Scaling, ...]
    seeds: tuple[int, ...]
    command: str
    where: LaunchedBy
    cores_per_rank: int | None
    started: str | None
    states: Mapping[State, int]
    failures: Mapping[str, str]
    environments: tuple[Environment, ...]
    data_sha256: tuple[str, ...]
    base_ranks: int
    cells: tuple[CellRow, ...]
    series: tuple[SeriesRow, ...]
    recipe: str
    plan: str
    findings: tuple[str, ...] = ()

    @classmethod
    def read(cls, tree: Mapping[str, Any]) -> "StudyOutcome":
        """The outcome that plain values of study.json stand for."""
        return from_json(cls, {**tree, "cells": [_read_cell(cell) for cell in read_rows(tree, "cells")]})

    def to_plain(self) -> dict[str, Any]:
        """Plain values as study.json has them: words stand where a learning speedup or energy is not known."""
        tree: dict[str, Any] = to_json(self)
        for cell in tree["cells"]:
            if cell["runs"] and cell["energy_joules"] is None:
                cell["energy_joules"] = UNAVAILABLE
            for cutoff in cell["cutoffs"]:
                words = cutoff.pop("why_no_speedup")
                cutoff["speedup"] = words if cutoff["speedup"] is None else cutoff["speedup"]
        return tree


def _read_cell(cell: Mapping[str, Any]) -> Mapping[str, Any]:
    """A cell of study.json with numbers and words apart, and what version 0.1 left out of a diagnosis."""
    missing = [key for key in FIGURES if cell.get("runs") and key not in cell]
    if missing:
        raise ValueError(f"'{missing[0]}' is missing")
    changed = dict(cell)
    if cell.get("energy_joules") == UNAVAILABLE:
        changed["energy_joules"] = None
    if "cutoffs" in cell:
        changed["cutoffs"] = [
            {**cutoff, "speedup": None, "why_no_speedup": cutoff["speedup"]}
            if isinstance(cutoff.get("speedup"), str)
            else cutoff
            for cutoff in read_rows(cell, "cutoffs")
        ]
    found = cell.get("diagnosis")
    if isinstance(found, Mapping):
        known = found.get("verdict") is not None  # version 0.1 wrote keys without values
        changed["diagnosis"] = {"evidence": [], "shares": {}, "thin": False, **found} if known else None
    return changed


@dataclass(frozen=True, kw_only=True)
class _States:
    """The whole of cells.json."""

    runs: tuple[RunState, ...]


def write_states(folder: RunFolder, states: Sequence[RunState]) -> None:
    """How far each run is, for whoever watches."""
    folder.write_json(STATES_FILE, to_json(_States(runs=tuple(states))))


def read_states(folder: RunFolder) -> tuple[RunState, ...]:
    """How far each run of a study is; none before its first has begun."""
    if not (folder.path / STATES_FILE).exists():
        return ()
    cure = f"Delete it: deepex study {folder.path} writes it anew, from the runs' own directories"
    tree = folder.read_json(STATES_FILE, cure=cure)
    return folder.understand(STATES_FILE, lambda tree: from_json(_States, tree), tree, cure=cure).runs


def write_study(folder: RunFolder, outcome: StudyOutcome) -> None:
    folder.write_json(STUDY_FILE, outcome.to_plain())


def read_study(folder: RunFolder) -> StudyOutcome:
    """The outcome of a study as it was written, by this version or an earlier one."""
    cure = f"Write it anew with: deepex study {folder.path}"
    return folder.understand(STUDY_FILE, StudyOutcome.read, folder.read_json(STUDY_FILE, cure=cure), cure=cure)
