"""What bounds a run: the cause that costs the most time which could be had back. It says nothing in words.

Computing is the bound where no other cause is comparable with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from deepex.diagnosis.causes import Account
from deepex.diagnosis.evidence import Evidence

Bound = Literal["computation", "input", "latency", "bandwidth", "imbalance", "framework"]
Trouble = Literal["cores", "input", "imbalance", "communication", "framework"]

COMPARABLE = 1 / 3  # of the time that computes; what costs less does not bound a step
NEARLY = 0.8  # of the largest cause: the second is then named too
NOTED = 0.05  # of a step; where nothing binds, the largest cause is named and explained from here on
THIN_STEPS, THIN_SECONDS = 20, 1.0


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What bounds a run, and what else is worth a word.

    Attributes:
        bound: the cause. Computing on cores that others use as well is bound by computation too.
        binding: the trouble that binds, and one that costs nearly as much; none where computing is the bound.
        noted: the largest trouble, if it is worth a word.
        troubles: what each takes of a step; of equal ones, that which is easiest to cure stands first.
        thin: whether there were too few steps to be sure.
    """

    bound: Bound
    binding: tuple[Trouble, ...]
    noted: Trouble | None
    troubles: Mapping[Trouble, float]
    thin: bool


def judge(found: Account) -> Verdict:
    """The verdict on a step whose time is divided among the causes."""
    shares = found.parts.shares()
    troubles: dict[Trouble, float] = {
        "cores": shares["cores"],
        "input": shares["input"],
        "imbalance": shares["imbalance"],
        "communication": shares["latency"] + shares["bandwidth"],
        "framework": shares["framework"],
    }
    worst, second = sorted(troubles, key=lambda trouble: -troubles[trouble])[:2]
    least = COMPARABLE * shares["computation"]
    binding = [worst] if troubles[worst] >= max(least, NOTED) else []
    if binding and troubles[second] >= max(least, NEARLY * troubles[worst]):
        binding.append(second)
    return Verdict(
        bound=_bound(found, worst) if binding else "computation",
        binding=tuple(binding),
        noted=worst if troubles[worst] >= NOTED else None,
        troubles=troubles,
        thin=_is_thin(found.evidence),
    )


def _bound(found: Account, trouble: Trouble) -> Bound:
    if trouble == "communication":
        return name_communication(found)
    return "computation" if trouble == "cores" else trouble


def name_communication(found: Account) -> Literal["latency", "bandwidth"]:
    """Which of the two takes more of the waiting for messages."""
    return "latency" if found.parts.latency > found.parts.bandwidth else "bandwidth"


def _is_thin(evidence: Evidence) -> bool:
    return evidence.steps < THIN_STEPS or evidence.seconds < THIN_SECONDS
