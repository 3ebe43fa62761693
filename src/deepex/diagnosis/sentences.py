"""A verdict and the numbers behind it, as sentences. It judges nothing."""

from collections.abc import Mapping
from statistics import fmean, median

from deepex.diagnosis.advice import predict_ranks
from deepex.diagnosis.causes import Account, on_idle_link
from deepex.diagnosis.evidence import Evidence
from deepex.diagnosis.verdict import NOTED, Trouble, Verdict, name_communication
from deepex.text import say_bytes, say_number, say_ranks, say_ratio, say_share, say_time

LOW_PEAK = 0.3
TIMES = 4


def say_verdict(found: Account, verdict: Verdict) -> str:
    """What bounds a run, in one sentence."""
    if verdict.binding:
        clauses = [_clause(found, trouble, verdict.troubles[trouble]) for trouble in verdict.binding]
        return f"Bound by {', and nearly as much by '.join(clauses)}."
    share = say_share(found.parts.shares()["computation"])
    peak = found.share_of_peak
    rate = f", at {say_share(peak)} of the rate of one large matrix product" if peak is not None else ""
    noted = verdict.noted
    next_to_it = f"; {NAMES[noted]} takes {say_share(verdict.troubles[noted])}" if noted else ""
    return f"Bound by computation: {share} of a step computes{rate}{next_to_it}."


def say_evidence(found: Account, verdict: Verdict) -> list[str]:
    """The numbers behind a verdict: the step as a whole, what binds it, what else is worth a word, how it scales."""
    noted = (verdict.noted,) if verdict.noted else ()
    sentences = [_whole(found, verdict), *(EXPLAIN[trouble](found) for trouble in verdict.binding or noted)]
    if verdict.binding in ((), ("cores",)):
        sentences.append(_explain_computation(found))
    sentences += [_explain_scaling(found), _explain_cold(found.evidence)]
    if verdict.thin:
        sentences.append(_explain_thin(found.evidence))
    return [sentence for sentence in sentences if sentence]


def _clause(found: Account, trouble: Trouble, share: float) -> str:
    part = say_share(share)
    if trouble == "cores":
        return f"computation, on cores that others use as well: {part} of a step is ready to compute and has no core"
    if trouble == "input":
        return f"input: {part} of a step waits for samples"
    if trouble == "framework":
        return f"the framework: {part} of a step starts operators instead of computing with them"
    if trouble == "communication":
        kind = name_communication(found)
        why = "that messages take however short they are" if kind == "latency" else "for bytes to travel"
        return f"communication ({kind}): {part} of a step {'is time ' if kind == 'latency' else 'waits '}{why}"
    if found.slow_ranks and found.parts.steady >= found.parts.turns:
        slow = found.slow_ranks
        who = say_ranks([rank.rank for rank in slow], [rank.host for rank in slow])
        where = "computing" if found.slow_phase() == "computing" else "getting samples"
        return f"imbalance: {part} of a step waits for {who}, slower in {where}"
    return f"imbalance: {part} of a step waits for ranks that are late by turns"


def _whole(found: Account, verdict: Verdict) -> str:
    ranks, computing = found.evidence.ranks, found.parts.shares()["computation"]
    parts = {"computing": computing} | {NAMES[trouble]: share for trouble, share in verdict.troubles.items()}
    named = ", ".join(f"{name} {say_share(share)}" for name, share in parts.items() if share >= 0.005)
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
        sent = f"Ranks exchange {say_bytes(num_bytes)} a step in {say_number(calls)} messages"
    else:
        sent = (
            f"Ranks exchange {say_bytes(num_bytes / max(calls, 1e-12))} about every {1 / max(calls, 1e-12):.0f} steps"
        )
    waits = f"{sent}, and wait {say_time(found.parts.messages)} a step for them"
    hidden = (
        f"; {say_time(found.hidden_seconds)} more are hidden behind computing" if found.hidden_seconds > 1e-4 else ""
    )
    return f"{waits}{hidden}.{_explain_link(found)}{_explain_choice(found)}"


def _explain_link(found: Account) -> str:
    link, calls, num_bytes = found.circumstances.link, found.calls, found.num_bytes
    if link is None or not calls:
        return ""
    latency, travel = on_idle_link(link, calls, num_bytes)
    return (
        f" The idle link, measured before the first step, takes {say_time(latency)} for the messages as such and "
        f"{say_time(travel)} for their bytes."
    )


def _explain_choice(found: Account) -> str:
    if not found.circumstances.traits.chooses_interval:
        return ""
    return " How often they do is the strategy's own choice: sync_notes in summary.json has each choice and its reason."


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
    text = f"{while_running} reaches {say_share(peak)} of the {rate:,.0f} GFLOP/s of one large matrix product"
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
    return f"{ranks} ranks do as much as about {say_number(worth)} that never wait; {more} the samples a second."


def _explain_cold(evidence: Evidence) -> str:
    if evidence.cold_ratio is None or evidence.cold_ratio < 1.2:
        return ""
    return f"The first epoch is left out: its steps took {say_ratio(evidence.cold_ratio)} as long as later ones."


def _explain_thin(evidence: Evidence) -> str:
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
