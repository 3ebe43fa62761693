"""What a run writes down, as frozen values: a rank's epoch, an epoch of all ranks, the outcome, what bounds it.

It knows what the files say, and nothing of how figures are found or shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from deepex.fabric import TrafficCount
from deepex.record.folder import RunFolder
from deepex.record.typed_json import from_json

EPOCHS_FILE, SUMMARY_FILE = "metrics.jsonl", "summary.json"


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One change that would make a run faster.

    Attributes:
        change: what to type or to do.
        gain: predicted samples a second, over those of now.
        sentence: the gain in words, where it comes from, and what it costs.
    """

    change: str
    gain: float
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What bounds a run.

    Attributes:
        bound: the cause. Computing on cores that others use as well is bound by computation too.
        verdict: one sentence.
        evidence: sentences with numbers.
        advice: the one or two changes that would help most, the best first.
        shares: what each cause takes of a step; they add up to one.
        thin: whether there were too few steps to be sure.
    """

    bound: str
    verdict: str
    evidence: tuple[str, ...]
    advice: tuple[Advice, ...]
    shares: Mapping[str, float]
    thin: bool


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """What a step asks of a rank's processor, and what the processor can do.

    Attributes:
        flops_per_step: floating-point operations of a step of one rank.
        gemm_flops_per_second: the best rate of a matrix product in the run's precision, by all `cores`.
        cores: that the rank may use; `threads` is how many it does use.
        dispatch_seconds: what starting a step's operators takes.
    """

    flops_per_step: int = 0
    gemm_flops_per_second: float = 0.0
    cores: int = 1
    threads: int = 1
    dispatch_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RankRow:
    """A rank's epoch: a line of phases/rankNNNNN.jsonl.

    Attributes:
        trains: whether the rank has batches; a parameter server has none.
        seconds: of training so far, earlier parts of a resumed run included.
        core_wait_seconds: ready to run, without a core to run on; None if not known.
        traffic: what the rank's fabric carried; None if not counted.
        gradient_noise: sums of `signal` and `noise` as this rank saw them; None if it saw none.
        machine: which machine this rank reads the energy of; None for a rank that reads none.
    """

    epoch: int
    seconds: float
    steps: int
    step_wall_seconds: float
    phase_seconds: Mapping[str, float]
    trains: bool = True
    losses: Mapping[str, float] = field(default_factory=dict)
    core_wait_seconds: float | None = None
    traffic: TrafficCount | None = None
    gradient_noise: Mapping[str, float] | None = None
    energy_joules: float | None = None
    machine: str | None = None

    @property
    def sync_hidden_seconds(self) -> float:
        """Of messages, behind computing."""
        return 0.0 if self.traffic is None else self.traffic.hidden_seconds

    @classmethod
    def read(cls, tree: Mapping[str, Any]) -> "RankRow":
        """A line of the file; version 0.1 wrote `fabric` for `traffic`."""
        return from_json(cls, {"traffic": tree.get("fabric"), **tree})


@dataclass(frozen=True, kw_only=True)
class EpochRow:
    """An epoch of all ranks: a line of metrics.jsonl.

    Attributes:
        losses: the loss and the parts it is made of, by name, means over ranks; `loss` comes first.
        beside: further metrics, by name.
        batch: samples of all ranks in one step.
        samples_per_second: by the steps' wall time of the slowest rank.
        step_wall_seconds, phase_seconds, sync_hidden_seconds: means over ranks.
        noise_scale: the batch whose gradient has as much noise as signal, in samples; None where nothing shows it.
        diagnosis: what bounds the run as far as this epoch shows; None where no step was timed.
    """

    epoch: int
    seconds: float
    losses: Mapping[str, float]
    metric: str
    value: float
    learning_rate: float
    batch: int
    steps: int
    samples: int
    samples_per_second: float
    step_wall_seconds: float
    phase_seconds: Mapping[str, float]
    sync_hidden_seconds: float
    beside: Mapping[str, float] = field(default_factory=dict)
    noise_scale: float | None = None
    energy_joules: float | None = None
    diagnosis: Diagnosis | None = None

    @property
    def loss(self) -> float:
        """What backward starts from."""
        return self.losses["loss"]

    @classmethod
    def read(cls, tree: Mapping[str, Any]) -> "EpochRow":
        """A line of the file; version 0.1 wrote losses beside the other keys.

        >>> row = {name: 0 for name in ("epoch", "batch", "steps", "samples")}
        >>> row |= {name: 0.0 for name in ("seconds", "value", "learning_rate", "samples_per_second")}
        >>> row |= {"step_wall_seconds": 0.0, "sync_hidden_seconds": 0.0, "metric": "rmse", "phase_seconds": {}}
        >>> dict(EpochRow.read({**row, "divergence": 0.1, "loss": 0.5}).losses)
        {'loss': 0.5, 'divergence': 0.1}
        """
        if "losses" in tree:
            return from_json(cls, tree)
        known = {each.name for each in fields(cls)}
        parts = {name: value for name, value in tree.items() if name not in known and isinstance(value, float)}
        return from_json(cls, {**tree, "losses": {"loss": parts.pop("loss"), **parts}})


@dataclass(frozen=True, kw_only=True)
class Cutoff:
    """When a run first passed a quality on the way to its target; None where it did not."""

    value: float
    epochs: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The outcome of a run: summary.json.

    Attributes:
        value: of the metric, after the last epoch.
        target: the value to pass; None for a run that has none.
        direction: whether small values of the metric are good (`min`) or large ones (`max`).
        seconds: of training and evaluation, from the first step on.
        samples_per_second: of all ranks, by the steps' wall time of the slowest.
        phase_seconds, sync_hidden_seconds, step_wall_seconds: over all epochs, means over ranks.
        share_of_peak: of the rate of one large matrix product, the mean over ranks.
        noise_scale: the median of the last half of the epochs.
        findings: what the task's illustration found, by name.
        sync_notes: what the strategy found out and chose.
    """

    task: str
    ranks: int
    sync: str
    precision: str
    fabric: str
    threads: int
    metric: str
    value: float
    target: float | None
    target_reached: bool
    epochs: int
    seconds: float
    samples_per_second: float
    phase_seconds: Mapping[str, float]
    sync_hidden_seconds: float
    step_wall_seconds: float
    gflops_per_second: float
    share_of_peak: float
    peak_memory_gib: float
    weights_sha256: str
    epochs_to_target: int | None = None
    seconds_to_target: float | None = None
    cutoffs: tuple[Cutoff, ...] = ()
    direction: str = "min"
    beside: Mapping[str, float] = field(default_factory=dict)
    noise_scale: float | None = None
    energy_joules: float | None = None
    findings: Mapping[str, float] = field(default_factory=dict)
    diagnosis: Diagnosis | None = None
    sync_notes: Mapping[str, Any] = field(default_factory=dict)


def read_epochs(folder: RunFolder) -> list[EpochRow]:
    """The epochs of a run so far."""
    return [folder.understand(EPOCHS_FILE, EpochRow.read, row) for row in folder.read_lines(EPOCHS_FILE)]


def read_ranks(folder: RunFolder) -> dict[int, list[RankRow]]:
    """Each rank's epochs so far, of the ranks that have any."""
    found = {}
    for path in sorted((folder.path / "phases").glob("rank*.jsonl")):
        name = f"phases/{path.name}"
        rows = [folder.understand(name, RankRow.read, row) for row in folder.read_lines(name)]
        if rows:
            found[int(path.stem.removeprefix("rank"))] = rows
    return found


def read_summary(folder: RunFolder) -> Summary | None:
    """The outcome of a run; None while it has none."""
    if not (folder.path / SUMMARY_FILE).exists():
        return None
    return folder.understand(SUMMARY_FILE, lambda tree: from_json(Summary, tree), folder.read_json(SUMMARY_FILE))
