"""A step's wall time by cause: what of it computes, and what it waits for. The causes add up to the step.

A fast rank waits for a slow one inside `sync`, in every step or, at the latest, when an epoch ends. So the shortest
sync of all ranks is what messages take, and what the others spend on top of it is waiting for slower ranks.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from statistics import fmean, median_low
from typing import Literal

from deepex.diagnosis.evidence import Circumstances, Evidence, RankTimes

SLOW = 1.1  # a rank is called slow when its work takes so many times that of the median
SLACK = 2.0  # beside computing, messages may take so many times what the idle link took
HALF_LENGTH_BYTES = 2**16  # of a message whose latency and transfer cost the same, where the link was not measured


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Seconds of a step by cause; the fields add up to its wall time.

    Attributes:
        kernels: computing itself.
        cores: ready to compute, in the queue for a core that others use.
        framework: starting operators, and what lies between phases.
        input: waiting for samples.
        latency, bandwidth: waiting for messages, by how many there are and how long they are.
        steady: waiting for ranks that are slower in all steps.
        turns: waiting for ranks that are late in one step and not in another.
    """

    kernels: float
    cores: float
    framework: float
    input: float
    latency: float
    bandwidth: float
    steady: float
    turns: float

    @property
    def wall(self) -> float:
        return math.fsum(astuple(self))

    @property
    def messages(self) -> float:
        return self.latency + self.bandwidth

    @property
    def imbalance(self) -> float:
        return self.steady + self.turns

    def shares(self) -> dict[str, float]:
        """What each cause takes of the step."""
        seconds = {
            "computation": self.kernels,
            "cores": self.cores,
            "framework": self.framework,
            "input": self.input,
            "latency": self.latency,
            "bandwidth": self.bandwidth,
            "imbalance": self.imbalance,
        }
        return {cause: value / self.wall if self.wall else 0.0 for cause, value in seconds.items()}


@dataclass(frozen=True, kw_only=True)
class Account:
    """A step's time by cause, with who is slow.

    Attributes:
        steady_ranks: those that are not slow; `parts` are their mean.
        slow_ranks: those whose work takes clearly longer than that of the median.
        calls, num_bytes: messages of a step on one rank, and their bytes.
    """

    evidence: Evidence
    parts: Parts
    steady_ranks: Sequence[RankTimes]
    slow_ranks: Sequence[RankTimes]
    calls: float
    num_bytes: float

    @property
    def circumstances(self) -> Circumstances:
        return self.evidence.circumstances

    @property
    def num_ranks(self) -> int:
        """Ranks that train."""
        return len(self.evidence.ranks)

    @property
    def hidden_seconds(self) -> float:
        """What messages take behind computing; the rank that comes last sees them as they are.

        Messages under way at the same time are counted each: together they take no more than the link needs for them.
        """
        hidden = min(rank.hidden_seconds for rank in self.evidence.ranks)
        if self.circumstances.link is None:
            return hidden
        idle = sum(on_idle_link(self.circumstances.link, self.calls, self.num_bytes))
        return min(hidden, max(0.0, idle - self.parts.messages))

    @property
    def share_of_all(self) -> float:
        """Of a step's messages, those of syncs of all ranks; the others stay inside a node or a group.

        Counted as if both were equally long and fast. Between nodes they are slower, so it is more rather than less.
        """
        of_all, inner = _count_syncs(self.evidence)
        return of_all / (of_all + inner)

    @property
    def share_of_peak(self) -> float | None:
        """What computing, while it has a core, reaches of the rate of one large matrix product.

        None if it is not known, or more than all of it: then something held up the product when it was timed.
        """
        known = [rank for rank in self.steady_ranks if rank.flops and rank.gemm_flops_per_second]
        seconds = fmean(rank.compute_seconds for rank in self.steady_ranks) - self.parts.cores
        if not known or seconds <= 0:
            return None
        share = fmean(rank.flops / rank.gemm_flops_per_second for rank in known) / seconds
        return share if share <= 1 else None

    def mean(self, phase: str) -> float:
        """Seconds of a phase of a step, over ranks that are not slow."""
        return fmean(rank.phase_seconds[phase] for rank in self.steady_ranks)

    def slowdown(self, rank: RankTimes) -> float:
        """How many times as long as the others a rank takes for its work."""
        return rank.work_seconds / max(fmean(other.work_seconds for other in self.steady_ranks), 1e-12)

    def slow_phase(self) -> Literal["input", "computing"]:
        """Where slow ranks lose most."""
        more_input = fmean(rank.phase_seconds["input"] for rank in self.slow_ranks) - self.mean("input")
        computing = fmean(rank.compute_seconds for rank in self.steady_ranks)
        more_computing = fmean(rank.compute_seconds for rank in self.slow_ranks) - computing
        return "input" if more_input > more_computing else "computing"


def account(evidence: Evidence) -> Account:
    """Divide the mean step of all ranks that are not slow among the causes."""
    slow = find_slow(evidence.ranks)
    slow_numbers = {rank.rank for rank in slow}
    steady_ranks = [rank for rank in evidence.ranks if rank.rank not in slow_numbers]
    waited, synced = min(_sync(rank) for rank in evidence.ranks), fmean(_sync(rank) for rank in steady_ranks)
    compute = fmean(rank.compute_seconds for rank in steady_ranks)
    dispatch = min(compute, fmean(rank.dispatch_seconds for rank in steady_ranks))
    cores = min(compute - dispatch, fmean(_queue(rank) for rank in steady_ranks))
    own = waited if len(evidence.ranks) == 1 else 0.0  # a rank alone waits for nobody: that is the strategy's code
    calls, num_bytes = _messages(evidence)
    latency, bandwidth, turns = _split(evidence, waited - own, calls, num_bytes)
    parts = Parts(
        kernels=compute - dispatch - cores,
        cores=cores,
        framework=dispatch + own + fmean(rank.other_seconds for rank in steady_ranks),
        input=fmean(rank.phase_seconds["input"] for rank in steady_ranks),
        latency=latency,
        bandwidth=bandwidth,
        steady=synced - waited,
        turns=turns,
    )
    return Account(
        evidence=evidence,
        parts=parts,
        steady_ranks=steady_ranks,
        slow_ranks=slow,
        calls=calls,
        num_bytes=num_bytes,
    )


def on_idle_link(link: Mapping[str, float], calls: float, num_bytes: float) -> tuple[float, float]:
    """Seconds that a link takes for messages as such, and for their bytes, when nothing else goes on."""
    return calls * link["latency_seconds"], num_bytes / link["bytes_per_second"]


def find_slow(ranks: Sequence[RankTimes]) -> list[RankTimes]:
    """Ranks whose work takes clearly longer than that of the median."""
    usual = median_low([rank.work_seconds for rank in ranks])
    return [rank for rank in ranks if rank.work_seconds > SLOW * usual]


def _sync(rank: RankTimes) -> float:
    return rank.phase_seconds["sync"]


def _queue(rank: RankTimes) -> float:
    """What of the queue for a core falls into a rank's own work, and not into waiting for others."""
    return (rank.core_wait_seconds or 0.0) * (1 - _sync(rank) / rank.wall_seconds)


def _messages(evidence: Evidence) -> tuple[float, float]:
    """Messages of a step and their bytes, on one rank; where nobody counted, what the strategy sends."""
    counted = [(rank.calls, rank.num_bytes) for rank in evidence.ranks if rank.calls is not None]
    if counted:
        return fmean(calls or 0.0 for calls, _ in counted), fmean(num_bytes or 0.0 for _, num_bytes in counted)
    if len(evidence.ranks) == 1:
        return 0.0, 0.0
    syncs = sum(_count_syncs(evidence))
    return syncs, syncs * evidence.circumstances.weights_bytes


def _count_syncs(evidence: Evidence) -> tuple[float, float]:
    """Syncs of a step that the strategy promises: of all ranks, and inside nodes or groups."""
    traits = evidence.circumstances.traits
    inner = 1 / traits.inner_interval if traits.inner_interval else 0.0
    return 1 / (traits.interval or evidence.steps_per_epoch), inner


def _split(evidence: Evidence, waited: float, calls: float, num_bytes: float) -> tuple[float, float, float]:
    """Latency, bandwidth, and what the link does not explain: ranks that come late by turns."""
    link = evidence.circumstances.link
    if link is None:
        latency, bandwidth = calls * HALF_LENGTH_BYTES, num_bytes
        explained = waited
    else:
        latency, bandwidth = on_idle_link(link, calls, num_bytes)
        expected = latency + bandwidth
        hidden = min(rank.hidden_seconds for rank in evidence.ranks)
        # The last of a step's messages leaves when there is nothing left to hide behind.
        explained = min(waited, SLACK * max(expected - hidden, expected / max(calls, 1.0)))
    if not latency + bandwidth:
        return 0.0, 0.0, waited
    share = latency / (latency + bandwidth)
    return explained * share, explained * (1 - share), waited - explained
