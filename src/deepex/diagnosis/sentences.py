"""Why a run is not faster: what bounds it, by which numbers, and what would help most. Pure functions on plain values.

The bound is the cause that costs the most time which could be had back; computing is the bound where no other is
comparable with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Literal

from deepex.diagnosis.advice import Advice, advise, predict_ranks
from deepex.diagnosis.causes import Account, account, on_idle_link
from deepex.diagnosis.evidence import Evidence
from deepex.text import say_bytes, say_count, say_part, say_ranks, say_ratio, say_time

Bound = Literal["computation", "input", "latency", "bandwidth", "imbalance", "framework"]
Trouble = Literal["cores", "input", "imbalance", "communication", "framework"]

COMPARABLE = 1 / 3  # of the time that computes; what costs less does not bound a step
NEARLY = 0.8  # of the largest cause: the second is then named too
THIN_STEPS, THIN_SECONDS = 20, 1.0
LOW_PEAK = 0.3
NOTED = 0.05  # of a step; where nothing binds, the largest cause is named and explained from here on
TIMES = 4


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

    bound: Bound
    verdict: str
    evidence: tuple[str, ...]
    advice: tuple[Advice, ...]
    shares: Mapping[str, float]
    thin: bool

    def to_json(self) -> dict[str, Any]:
        """Plain values, for summary.json and metrics.jsonl."""
        return {
            "bound": self.bound,
            "verdict": self.verdict,
            "evidence": list(self.evidence),
            "advice": [advice.to_json() for advice in self.advice],
            "shares": dict(self.shares),
            "thin": self.thin,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Diagnosis":
        return cls(
            bound=found["bound"],
            verdict=found["verdict"],
            evidence=tuple(found["evidence"]),
            advice=tuple(Advice(**advice) for advice in found["advice"]),
            shares=found["shares"],
            thin=found["thin"],
        )


def diagnose(evidence: Evidence) -> Diagnosis:
    """Judge a run, or a part of one, by where its ranks' time went.

    >>> from deepex.diagnosis.evidence import Circumstances
    >>> row = {"steps": 90, "step_wall_seconds": 9.0, "phase_seconds": {"input": 6.0, "forward": 3.0}}
    >>> evidence = Evidence.gather([[row]], Circumstances(batch=64))
    >>> diagnose(evidence).verdict
    'Bound by input: 67 % of a step waits for samples.'
    """
    found = account(evidence)
    troubles = sorted(_troubles(found).items(), key=lambda trouble: -trouble[1])
    (worst, share), (second, next_share) = troubles[:2]
    least = COMPARABLE * found.parts.shares()["computation"]
    binding = [worst] if share >= max(least, NOTED) else []
    if binding and next_share >= max(least, NEARLY * share):
        binding.append(second)
    bound = _bound(found, binding[0] if binding else None)
    return Diagnosis(
        bound=bound,
        verdict=_verdict(found, binding),
        evidence=tuple(_sentences(found, binding)),
        advice=tuple(advise(found, computes=not binding)),
        shares=found.parts.shares(),
        thin=_is_thin(evidence),
    )


def _troubles(found: Account) -> dict[Trouble, float]:
    """What each trouble takes of a step; of equal ones, that which is easiest to cure stands first."""
    shares = found.parts.shares()
    return {
        "cores": shares["cores"],
        "input": shares["input"],
        "imbalance": shares["imbalance"],
        "communication": shares["latency"] + shares["bandwidth"],
        "framework": shares["framework"],
    }


def _noted(found: Account) -> Trouble | None:
    """The largest trouble, if it is worth a word."""
    troubles = _troubles(found)
    largest = max(troubles, key=lambda trouble: troubles[trouble])
    return largest if troubles[largest] >= NOTED else None


def _bound(found: Account, trouble: Trouble | None) -> Bound:
    if trouble == "communication":
        return "latency" if found.parts.latency > found.parts.bandwidth else "bandwidth"
    return "computation" if trouble is None or trouble == "cores" else trouble


def _is_thin(evidence: Evidence) -> bool:
    return evidence.steps < THIN_STEPS or evidence.seconds < THIN_SECONDS


def _verdict(found: Account, binding: Sequence[Trouble]) -> str:
    if not binding:
        share = say_part(found.parts.shares()["computation"])
        peak = found.share_of_peak
        rate = f", at {say_part(peak)} of the rate of one large matrix product" if peak is not None else ""
        noted = _noted(found)
        next_to_it = f"; {NAMES[noted]} takes {say_part(_troubles(found)[noted])}" if noted else ""
        return f"Bound by computation: {share} of a step computes{rate}{next_to_it}."
    clauses = [_clause(found, trouble) for trouble in binding]
    return f"Bound by {', and nearly as much by '.join(clauses)}."


def _clause(found: Account, trouble: Trouble) -> str:
    part = say_part(_troubles(found)[trouble])
    if trouble == "cores":
        return f"computation, on cores that others use as well: {part} of a step is ready to compute and has no core"
    if trouble == "input":
        return f"input: {part} of a step waits for samples"
    if trouble == "framework":
        return f"the framework: {part} of a step starts operators instead of computing with them"
    if trouble == "communication":
        kind = _bound(found, trouble)
        why = "that messages take however short they are" if kind == "latency" else "for bytes to travel"
        return f"communication ({kind}): {part} of a step {'is time ' if kind == 'latency' else 'waits '}{why}"
    if found.slow_ranks and found.parts.steady >= found.parts.turns:
        slow = found.slow_ranks
        who = say_ranks([rank.rank for rank in slow], [rank.host for rank in slow])
        where = "computing" if found.slow_phase() == "computing" else "getting samples"
        return f"imbalance: {part} of a step waits for {who}, slower in {where}"
    return f"imbalance: {part} of a step waits for ranks that are late by turns"


def _sentences(found: Account, binding: Sequence[Trouble]) -> list[str]:
    """The numbers behind a verdict: the step as a whole, what binds it, what else is worth a word, how it scales."""
    noted = _noted(found)
    explained = binding or ([noted] if noted else [])
    sentences = [_whole(found), *(EXPLAIN[trouble](found) for trouble in explained)]
    if binding in ([], ["cores"]):
        sentences.append(_explain_computation(found))
    sentences += [_explain_scaling(found), _explain_cold(found.evidence), _explain_thin(found.evidence)]
    return [sentence for sentence in sentences if sentence]


def _whole(found: Account) -> str:
    ranks, computing = found.evidence.ranks, found.parts.shares()["computation"]
    parts = {"computing": computing} | {NAMES[trouble]: share for trouble, share in _troubles(found).items()}
    named = ", ".join(f"{name} {say_part(share)}" for name, share in parts.items() if share >= 0.005)
    over = f", mean of {len(ranks)} ranks" if len(ranks) > 1 else ""
    if found.slow_ranks:
        over = f", mean of ranks that are not slow, {len(found.steady_ranks)} of {len(ranks)}"
    return f"A step takes {say_time(found.parts.wall)} ({found.evidence.steps:,} steps{over}): {named}."


def _explain_input(found: Account) -> str:
    waited, batch = found.mean("input"), found.circumstances.batch
    return (
        f"Each step waits {say_time(waited)} for its {batch} samples: they come at {batch / found.parts.wall:,.0f} a "
        f"second and rank, and could be used at {batch / max(found.parts.wall - waited, 1e-12):,.0f}."
    )


def _explain_cores(found: Account) -> str:
    return f"In each step a rank is ready to run for {say_time(found.parts.cores)} while others use its cores."


def _explain_communication(found: Account) -> str:
    calls, num_bytes = found.calls, found.num_bytes
    if calls >= 0.95:
        sent = f"Ranks exchange {say_bytes(num_bytes)} a step in {say_count(calls)} messages"
    else:
        sent = (
            f"Ranks exchange {say_bytes(num_bytes / max(calls, 1e-12))} about every {1 / max(calls, 1e-12):.0f} steps"
        )
    waits = f"{sent}, and wait {say_time(found.parts.messages)} a step for them"
    hidden = (
        f"; {say_time(found.hidden_seconds)} more are hidden behind computing" if found.hidden_seconds > 1e-4 else ""
    )
    return f"{waits}{hidden}.{_explain_link(found)}"


def _explain_link(found: Account) -> str:
    link, calls, num_bytes = found.circumstances.link, found.calls, found.num_bytes
    if link is None or not calls:
        return ""
    latency, travel = on_idle_link(link, calls, num_bytes)
    return (
        f" The idle link, measured before the first step, takes {say_time(latency)} for the messages as such and "
        f"{say_time(travel)} for their bytes."
    )


def _explain_imbalance(found: Account) -> str:
    slow, parts = found.slow_ranks, found.parts
    if parts.turns > parts.steady:
        return _explain_turns(found)
    if not slow:
        last = max(found.steady_ranks, key=lambda rank: rank.work_seconds)
        waits = f"Ranks wait {say_time(parts.steady)} a step for the slowest of them"
        return f"{waits}, {say_ranks([last.rank], [last.host])}, though none takes a tenth longer than the median."
    who = say_ranks([rank.rank for rank in slow], [rank.host for rank in slow])
    worst = max(found.slowdown(rank) for rank in slow)
    ratio = f"{say_ratio(worst)} as long as the others" if len(slow) == 1 else f"up to {say_ratio(worst)} as long"
    verb = "takes" if len(slow) == 1 else "take"
    return (
        f"{who[0].upper()}{who[1:]} {verb} {ratio} for samples and computing; the others wait "
        f"{say_time(parts.steady)} a step.{_reason_for_slow(found)}"
    )


def _explain_turns(found: Account) -> str:
    parts = found.parts
    if parts.cores > parts.turns / 4:
        reason = f", and queues {say_time(parts.cores)} a step for cores that others use."
    else:
        reason = ". Steps of uneven length do that, and whatever else takes time from a rank."
    waits = f"All ranks wait {say_time(parts.turns)} a step longer than the link explains"
    return f"{waits}: each is late now and then{reason}"


def _reason_for_slow(found: Account) -> str:
    """Why slow ranks are slow, as far as it shows: their cores are shared, or were slower from the start."""
    slow = found.slow_ranks
    its, they = ("Its", "it queues") if len(slow) == 1 else ("Their", "they queue")
    queue = fmean(rank.core_wait_seconds or 0.0 for rank in slow)
    if queue > found.parts.steady / 2:
        return f" {its} cores are shared: {they} {say_time(queue)} a step for them."
    usual, mine = ([rank.gemm_flops_per_second for rank in ranks] for ranks in (found.steady_ranks, slow))
    if found.slow_phase() == "input" or not all((*usual, *mine)):
        return ""
    ratio = fmean(mine) / median(usual)
    if ratio < 0.9:
        return f" {its} cores were slower from the start: matrix products at {say_ratio(ratio)} the usual rate."
    return f" {its} cores were as fast as others before the first step: other programs came, or steps differ in length."


def _explain_framework(found: Account) -> str:
    dispatch = fmean(rank.dispatch_seconds for rank in found.steady_ranks)
    computing = fmean(rank.compute_seconds for rank in found.steady_ranks)
    between = found.parts.framework - min(dispatch, computing)
    if not dispatch:
        return f"Between its phases a step spends {say_time(between)}."
    starting = f"about {say_time(min(dispatch, computing))} of the {say_time(computing)} that it computes"
    return (
        f"Starting a step's operators takes {starting}, whatever the batch; {say_time(between)} lie between its phases."
    )


def _explain_computation(found: Account) -> str:
    peak = found.share_of_peak
    if peak is None:
        return ""
    rate = median(rank.gemm_flops_per_second for rank in found.steady_ranks) / 1e9
    while_running = "While it has a core, computing" if found.parts.shares()["cores"] >= NOTED else "Computing"
    text = f"{while_running} reaches {say_part(peak)} of the {rate:,.0f} GFLOP/s of one large matrix product"
    if peak >= LOW_PEAK:
        return f"{text}."
    if any(rank.core_wait_seconds is None for rank in found.steady_ranks):
        return f"{text}: it moves data, has little to multiply, or shares its cores, which was not timed."
    return f"{text}: most of it moves data or has little to multiply, which larger layers or batches would change."


def _explain_scaling(found: Account) -> str:
    ranks = found.num_ranks
    if ranks == 1:
        return ""
    alone = found.parts.wall - found.parts.messages - found.parts.imbalance
    worth = ranks * alone / found.parts.wall
    more = f"{TIMES} × as many on {TIMES} × the cores would give about {say_ratio(predict_ranks(found, TIMES))}"
    return f"{ranks} ranks do as much as about {say_count(worth)} that never wait; {more} the samples a second."


def _explain_cold(evidence: Evidence) -> str:
    if evidence.cold_ratio is None or evidence.cold_ratio < 1.2:
        return ""
    return f"The first epoch is left out: its steps took {say_ratio(evidence.cold_ratio)} as long as later ones."


def _explain_thin(evidence: Evidence) -> str:
    if not _is_thin(evidence):
        return ""
    few = f"{evidence.steps:,} steps in {say_time(evidence.seconds)}"
    return f"The evidence is thin, {few}: train longer before you trust it."


NAMES: Mapping[Trouble, str] = {
    "cores": "waiting for a core",
    "input": "waiting for samples",
    "communication": "waiting for messages",
    "imbalance": "waiting for slower ranks",
    "framework": "starting operators",
}
EXPLAIN = {
    "cores": _explain_cores,
    "input": _explain_input,
    "communication": _explain_communication,
    "imbalance": _explain_imbalance,
    "framework": _explain_framework,
}
