"""Changes that would make a run faster, each with its predicted gain. One rule a change; none knows another.

A gain is samples a second after the change over those before. What it does to learning is said, not predicted.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from deepex import sync as strategies
from deepex.diagnosis.causes import Account
from deepex.errors import ConfigError
from deepex.sync.spec import Written
from deepex.text import say_bytes, say_ranks, say_ratio, say_time

LEAST_GAIN = 1.05
MOST = 2
INTERVAL, LONGER = 8, 4  # steps between meetings where there was one a step, and how many times more where not
MORE_RANKS = 4
# What messages between ranks of one host take, where nobody has measured it: shared memory, on two busy cores.
GUESSED_LATENCY_SECONDS, GUESSED_BYTES_PER_SECOND = 3e-4, 1.5e9
# What rounding and adding in bf16 costs for each byte of float32, on processors without instructions for it.
ROUNDING_SECONDS = 4e-10


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One change.

    Attributes:
        change: what to type or to do.
        gain: predicted samples a second, over those of now.
        sentence: the gain in words, where it comes from, and what it costs.
    """

    change: str
    gain: float
    sentence: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def advise(account: Account, computes: bool) -> list[Advice]:
    """The one or two changes that would help most; more ranks only where computing is what takes the time.

    Arguments:
        computes: whether computing is what bounds the run.
    """
    found = [advice for rule in RULES if (advice := rule(account)) is not None and advice.gain >= LEAST_GAIN]
    found = list({advice.change: advice for advice in sorted(found, key=lambda advice: advice.gain)}.values())[::-1]
    wider = more_ranks(account) if computes else None
    if wider is None or wider.gain < LEAST_GAIN:
        return found[:MOST]
    return [*found[: MOST - 1], wider]


def change_sync(account: Account) -> Advice | None:
    """One other strategy: the mildest, unless another predicts clearly more."""
    best = None
    for rule in (halve_bytes, hide_messages, meet_less):
        found = rule(account)
        if found is not None and (best is None or found.gain > LEAST_GAIN * best.gain):
            best = found
    return best


def meet_less(account: Account) -> Advice | None:
    manner, parts = account.circumstances.manner, account.parts
    interval = manner.interval or account.evidence.steps_per_epoch
    if account.num_ranks == 1 or manner.hides or (manner.interval is None and not manner.is_local):
        return None
    fewer = INTERVAL if interval == 1 else LONGER
    steps = fewer * interval
    if steps >= account.evidence.steps_per_epoch:
        steps, fewer = account.evidence.steps_per_epoch, max(1, account.evidence.steps_per_epoch // interval)
    text = _rewrite(account, "local", "epoch" if steps == account.evidence.steps_per_epoch else str(steps))
    if text is None or fewer == 1:
        return None
    # Lateness by turns adds up like a random walk: over n steps it is sqrt(n) times that of one.
    left = (parts.messages + account.hidden_seconds) / fewer + parts.turns / math.sqrt(fewer)
    saved = parts.messages + parts.turns - left
    return _saving(
        account,
        f"--sync {text}",
        saved,
        f"ranks meet every {steps} steps instead of {'each' if interval == 1 else f'every {interval}'}. "
        "Replicas drift apart in between: watch the metric",
    )


def hide_messages(account: Account) -> Advice | None:
    circumstances, parts = account.circumstances, account.parts
    manner = circumstances.manner
    if account.num_ranks == 1 or manner.hides or manner.interval is None or not circumstances.overlaps:
        return None
    if manner.interval == 1:
        text, behind = _rewrite(account, "lagged"), account.mean("forward") + account.mean("backward")
        cost = "gradients are a step old"
    else:
        text, behind = _rewrite(account, "background", str(manner.interval)), parts.kernels * manner.interval
        cost = f"replicas learn of each other {manner.interval} steps later"
    if text is None:
        return None
    # On processors, the cores that compute also move the bytes: beside computing they only save the waiting.
    hideable = parts.latency if circumstances.device == "cpu" else parts.messages
    saved = min(hideable, behind)
    return _saving(account, f"--sync {text}", saved, f"messages travel while ranks compute; {cost}")


def halve_bytes(account: Account) -> Advice | None:
    if account.num_ranks == 1 or "+" in account.circumstances.sync:
        return None
    text = f"{account.circumstances.sync}+bf16"
    if not _exists(text):
        return None
    reason = f"half of {say_bytes(account.num_bytes)} a step travel; each number keeps 8 bits of 24"
    cost = 0.0 if account.circumstances.has_bf16 else ROUNDING_SECONDS * account.num_bytes
    return _saving(account, f"--sync {text}", account.parts.bandwidth / 2 - cost, reason)


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
    circumstances = account.circumstances
    change, reason = _cure_input(account)
    others = "" if circumstances.stage else "; if samples are decoded in every epoch, deepex data pack does it once"
    return _saving(account, change, account.parts.input, f"steps no longer wait for samples{reason}{others}")


def mend_ranks(account: Account) -> Advice | None:
    """Bring slow ranks up to the others."""
    slow, parts = account.slow_ranks, account.parts
    if not slow:
        return None
    works = [rank.work_seconds for rank in account.steady_ranks]
    saved = parts.steady - (max(works) - sum(works) / len(works))
    who = say_ranks([rank.rank for rank in slow], [rank.host for rank in slow])
    if account.slow_phase() == "input":
        change, reason = _cure_input(account)
        return _saving(account, change, saved, f"{who} would get samples as fast as the others{reason}")
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
    text = account.circumstances.sync if len(ranks) > 1 else f"local:{INTERVAL}"
    if not _exists(text):
        return None
    apart = INTERVAL if len(ranks) == 1 else 1
    messages = _messages_among(account, cores * len(ranks)) / apart
    wall = parts.kernels * threads + parts.cores + parts.framework + parts.input + parts.imbalance + messages
    gain = cores * parts.wall / wall
    sync = f" --sync {text}" if len(ranks) == 1 else ""
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


def _cure_input(account: Account) -> tuple[str, str]:
    """What to set, of what is not set yet, and a word on it."""
    circumstances = account.circumstances
    if circumstances.memory_gib is not None:
        larger = max(1.0, 2 * circumstances.memory_gib)
        return f"data.memory_gib={larger:g}", ", if what they need fits into memory"
    if circumstances.stage is None:
        return "--stage DIR", ", if DIR is a disk of the node's own that is fast enough"
    return "deepex data pack", ", once they are decoded, converted and stored in one file"


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


def _rewrite(account: Account, name: str, argument: str = "") -> str | None:
    """A strategy with the same compression, and the same options where they are its own; None if there is none."""
    written = Written.parse(account.circumstances.sync)
    options = written.options.items() if name == written.name else ()
    text = name + (f":{argument}" if argument else "") + "".join(f",{key}={value}" for key, value in options)
    text += f"+{written.compression}" if written.compression else ""
    return text if _exists(text) else None


def _exists(text: str) -> bool:
    try:
        strategies.parse(text)
    except ConfigError:
        return False
    return True


RULES: tuple[Callable[[Account], Advice | None], ...] = (
    change_sync,
    larger_batch,
    feed_faster,
    mend_ranks,
    free_cores,
    compute_in_bf16,
    one_rank_a_core,
)
