"""Changes that would make a run faster, each with its predicted gain. One rule a change; none knows another.

A gain is samples a second after the change over those before. What it does to learning is said, not predicted.
"""

import math
import re
from collections.abc import Callable
from dataclasses import replace

from deepex import sync as strategies
from deepex.diagnosis.causes import Account
from deepex.record.rows import Advice
from deepex.sync import SyncTraits, alternatives
from deepex.text import say_bytes, say_ranks, say_ratio, say_time

LEAST_GAIN = 1.05
MOST = 2
INTERVAL, LONGER = 8, 4  # steps between syncs where there was one a step, and how many times more where not
MORE_RANKS = 4
# What messages between ranks of one host take, where nobody has measured it: shared memory, on two busy cores.
GUESSED_LATENCY_SECONDS, GUESSED_BYTES_PER_SECOND = 3e-4, 1.5e9
# What rounding and adding in bf16 costs for each byte of float32, on processors without instructions for it.
ROUNDING_SECONDS = 4e-10


def advise(account: Account, computes: bool) -> list[Advice]:
    """The one or two changes that would help most; more ranks only where computing is what takes the time.

    Arguments:
        computes: whether computing is what bounds the run.
    """
    found = [advice for rule in RULES if (advice := rule(account)) is not None and advice.gain >= LEAST_GAIN]
    found = list({advice.change: advice for advice in sorted(found, key=lambda advice: advice.gain)}.values())[::-1]
    wider = more_ranks(account) if computes else None
    best = found[:MOST] if wider is None or wider.gain < LEAST_GAIN else [*found[: MOST - 1], wider]
    in_python = account.circumstances.own_loop
    return [replace(advice, change=say_in_python(advice.change)) if in_python else advice for advice in best]


def change_sync(account: Account) -> Advice | None:
    """One other strategy: the mildest, unless another predicts clearly more."""
    if account.num_ranks == 1:
        return None
    best = None
    for rule in (halve_bytes, hide_messages, sync_less):
        found = rule(account)
        if found is not None and (best is None or found.gain > LEAST_GAIN * best.gain):
            best = found
    return best


def sync_less(account: Account) -> Advice | None:
    traits, parts, per_epoch = account.circumstances.traits, account.parts, account.evidence.steps_per_epoch
    if traits.interval is None:
        return None
    fewer = INTERVAL if traits.interval == 1 else LONGER
    steps = fewer * traits.interval
    text = None
    if steps >= per_epoch:
        steps, fewer = per_epoch, max(1, per_epoch // traits.interval)
        text = alternatives.sync_every(account.circumstances.sync, None)
    text = text or alternatives.sync_every(account.circumstances.sync, steps)
    if text is None or fewer == 1:
        return None
    share = account.share_of_all
    # What hides its messages goes on hiding them; else those that left during backward are waited for too.
    hidden = 0.0 if traits.hides_messages else account.hidden_seconds
    saved = share * (parts.messages - (parts.messages + hidden) / fewer)
    if traits.inner_interval is None:
        # Lateness by turns adds up like a random walk: over n steps it is sqrt(n) times that of one.
        saved += parts.turns - parts.turns / math.sqrt(fewer)
    before = "each" if traits.interval == 1 else f"every {traits.interval}"
    return _saving(
        account,
        f"--sync {text}",
        saved,
        f"ranks sync every {steps} steps instead of {before}{_say_level(traits)}. "
        "Replicas drift apart in between: watch the metric",
    )


def hide_messages(account: Account) -> Advice | None:
    circumstances, parts, traits = account.circumstances, account.parts, account.circumstances.traits
    text = alternatives.hide_messages(circumstances.sync)
    if text is None or traits.interval is None or not circumstances.overlaps:
        return None
    if traits.interval == 1:
        behind, cost = account.mean("forward") + account.mean("backward"), "gradients are a step old"
    else:
        behind = parts.kernels * traits.interval
        cost = f"replicas learn of each other {traits.interval} steps later"
    # On processors, the cores that compute also move the bytes: beside computing they only save the waiting.
    hideable = parts.latency if circumstances.device == "cpu" else parts.messages
    saved = min(account.share_of_all * hideable, behind)
    reason = f"messages travel while ranks compute{_say_level(traits)}; {cost}"
    return _saving(account, f"--sync {text}", saved, reason)


def halve_bytes(account: Account) -> Advice | None:
    circumstances, traits = account.circumstances, account.circumstances.traits
    text = alternatives.halve_bytes(circumstances.sync)
    if text is None:
        return None
    share = 1 - account.share_of_all if traits.compresses_inner else account.share_of_all
    num_bytes = share * account.num_bytes
    where = _say_level(traits, inner=traits.compresses_inner)
    reason = f"half of {say_bytes(num_bytes)} a step travel{where}; each number keeps 8 bits of 24"
    cost = 0.0 if circumstances.has_bf16 else ROUNDING_SECONDS * num_bytes
    return _saving(account, f"--sync {text}", share * account.parts.bandwidth / 2 - cost, reason)


def larger_batch(account: Account) -> Advice | None:
    parts, batch = account.parts, account.circumstances.batch
    if account.evidence.steps_per_epoch < 4:
        return None
    own, larger = parts.kernels + parts.framework, 2 * parts.kernels + parts.framework
    queue = parts.cores * larger / own if own else parts.cores  # who computes longer queues longer
    waits = 2 * (parts.input + parts.steady) + math.sqrt(2) * parts.turns + parts.messages
    gain = 2 * parts.wall / max(larger + queue + waits, 1e-12)
    fixed = "starting operators" if account.num_ranks == 1 else "starting operators and sending messages"
    return Advice(
        change=f"data.batch={2 * batch}",
        gain=gain,
        sentence=f"About {say_ratio(gain)} the samples a second: {fixed} cost the same for {2 * batch} samples as "
        f"for {batch}. An epoch has half as many steps: the learning rate may have to follow.",
    )


def feed_faster(account: Account) -> Advice | None:
    cure = _cure_input(account)
    return cure and _saving(account, cure[0], account.parts.input, f"steps no longer wait for samples{cure[1]}")


def mend_ranks(account: Account) -> Advice | None:
    """Bring slow ranks up to the others."""
    slow, parts = account.slow_ranks, account.parts
    if not slow:
        return None
    works = [rank.work_seconds for rank in account.steady_ranks]
    saved = parts.steady - (max(works) - sum(works) / len(works))
    who = say_ranks([rank.rank for rank in slow], [rank.host for rank in slow])
    if account.slow_phase() == "input":
        cure = _cure_input(account)
        return cure and _saving(account, cure[0], saved, f"{who} would get samples as fast as the others{cure[1]}")
    hosts = list(dict.fromkeys(rank.host for rank in slow if rank.host))
    if len(hosts) == 1 and all(rank.host != hosts[0] for rank in account.steady_ranks):
        change = f"leave {hosts[0]} out, or see what else runs there (deepex doctor)"
    else:
        change = f"see what else runs on {hosts[0] if len(hosts) == 1 else 'those hosts'} (deepex doctor there)"
    return _saving(account, change, saved, f"if {who} computed as fast as the others")


def free_cores(account: Account) -> Advice | None:
    others = "other programs" if account.num_ranks == 1 else "neither other programs nor other ranks"
    reason = f"{others} would {'no longer ' if account.num_ranks == 1 else ''}take them (see deepex doctor)"
    return _saving(account, "give each rank cores of its own", account.parts.cores, reason)


def compute_in_bf16(account: Account) -> Advice | None:
    circumstances = account.circumstances
    if circumstances.precision != "fp32" or not circumstances.has_bf16 or account.share_of_peak is None:
        return None
    products = account.share_of_peak * account.parts.kernels
    return _saving(
        account,
        "--precision bf16",
        products / 2,
        "if this processor multiplies bf16 twice as fast as fp32, which a run in bf16 measures",
    )


def one_rank_a_core(account: Account) -> Advice | None:
    """Starting operators keeps one core busy, however many threads a rank has; more ranks start them side by side."""
    parts, ranks = account.parts, account.evidence.ranks
    cores, threads = min(rank.cores for rank in ranks), max(rank.threads for rank in ranks)
    if cores == 1 or parts.cores > 0.1 * parts.wall:
        return None  # there is no core to spare
    interval = strategies.find_traits(alternatives.FIRST).interval or 1
    messages = _messages_among(account, cores * len(ranks)) / (interval if len(ranks) == 1 else 1)
    wall = parts.kernels * threads + parts.cores + parts.framework + parts.input + parts.imbalance + messages
    gain = cores * parts.wall / wall
    sync = f" --sync {alternatives.FIRST}" if len(ranks) == 1 else ""
    return Advice(
        change=f"--ranks {cores * len(ranks)}{sync}",
        gain=gain,
        sentence=f"About {say_ratio(gain)} the samples a second on the same cores: a rank on each of them starts its "
        f"own operators. Ranks share an epoch: {cores} × the samples a step.",
    )


def more_ranks(account: Account) -> Advice | None:
    gain, ranks = predict_ranks(account, MORE_RANKS), account.num_ranks
    if ranks == 1:
        words = f"Up to {say_ratio(gain)} the samples a second."
    else:
        one_host = len({rank.host for rank in account.evidence.ranks}) == 1
        measured = "" if account.circumstances.link is None else ", by the measured link"
        words = f"About {say_ratio(gain)} the samples a second{measured}{' inside one host' if one_host else ''}."
    return Advice(
        change=f"--ranks {MORE_RANKS * ranks}, on {MORE_RANKS} × the cores",
        gain=gain,
        sentence=words,
    )


def predict_ranks(account: Account, times: int) -> float:
    """Samples a second of `times` as many ranks on as many more cores, over those of now."""
    parts = account.parts
    ranks = account.num_ranks
    messages = 0.0 if ranks == 1 else _messages_among(account, times * ranks)
    return times * parts.wall / (parts.wall - parts.messages + messages)


def _messages_among(account: Account, num_ranks: int) -> float:
    """What messages would take among so many ranks.

    A ring passes 2 (P - 1) short messages and 2 (P - 1) / P of the bytes: Gloo's way, and an upper bound for trees.
    """
    parts, now = account.parts, account.num_ranks
    if now == 1:
        return GUESSED_LATENCY_SECONDS * num_ranks / 2 + account.circumstances.weights_bytes / GUESSED_BYTES_PER_SECOND
    more_bytes = (num_ranks - 1) / num_ranks / ((now - 1) / now)
    return parts.latency * (num_ranks - 1) / (now - 1) + parts.bandwidth * more_bytes


def _cure_input(account: Account) -> tuple[str, str] | None:
    """What to set, of what is not set yet and can be, and a word on it."""
    circumstances = account.circumstances
    if circumstances.memory_gib is not None:
        larger = max(1.0, 2 * circumstances.memory_gib)
        return f"data.memory_gib={larger:g}", ", if what they need fits into memory"
    if circumstances.storage == "given":
        return None
    if circumstances.storage == "packed" and circumstances.stage is None and not circumstances.own_loop:
        again = "; if samples are decoded in every epoch, deepex data pack does it once"
        return "--stage DIR", f", if DIR is a disk of the node's own that is fast enough{again}"
    return "deepex data pack", ", once they are decoded, converted and stored in one file"


def say_in_python(change: str) -> str:
    """A change of a recipe or a command, as a user's own loop is told it.

    >>> say_in_python("--ranks 2 --sync local:8")
    'ranks=2 sync="local:8"'
    """
    keys = change.replace("data.batch=", "batch_size=").replace("data.memory_gib=", "memory_gib=")
    numbers = re.sub(r"--ranks (\d+)", r"ranks=\1", keys)
    return re.sub(r"--(sync|precision) (\S+)", r'\1="\2"', numbers)


def _saving(account: Account, change: str, seconds: float, reason: str) -> Advice | None:
    """Advice that takes `seconds` off each step."""
    wall = account.parts.wall
    if not 0 < seconds < wall:
        return None
    gain = wall / (wall - seconds)
    return Advice(
        change=change,
        gain=gain,
        sentence=f"About {say_ratio(gain)} the samples a second, {say_time(seconds)} off each step: {reason}.",
    )


def _say_level(traits: SyncTraits, *, inner: bool = False) -> str:
    """Which messages a change is about, where ranks sync inside nodes or groups and between them."""
    if traits.inner_interval is None:
        return ""
    return f", only {'inside' if inner else 'between'} nodes or groups"


RULES: tuple[Callable[[Account], Advice | None], ...] = (
    change_sync,
    larger_batch,
    feed_faster,
    mend_ranks,
    free_cores,
    compute_in_bf16,
    one_rank_a_core,
)
