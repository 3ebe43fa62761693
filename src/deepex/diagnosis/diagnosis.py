"""Why a run is not faster: what bounds it, by which numbers, and what would help most. Pure, on plain values."""

from deepex.diagnosis.advice import advise
from deepex.diagnosis.causes import account
from deepex.diagnosis.evidence import Evidence
from deepex.diagnosis.sentences import say_evidence, say_verdict
from deepex.diagnosis.verdict import judge
from deepex.record.rows import Diagnosis


def diagnose(evidence: Evidence) -> Diagnosis:
    """Judge a run, or a part of one, by where its ranks' time went.

    >>> from deepex.diagnosis.evidence import Circumstances
    >>> from deepex.record.rows import RankRow
    >>> phases = {"input": 6.0, "forward": 3.0}
    >>> row = RankRow(epoch=1, seconds=9.0, steps=90, step_wall_seconds=9.0, phase_seconds=phases)
    >>> evidence = Evidence.gather([[row]], Circumstances(batch=64))
    >>> diagnose(evidence).verdict
    'Bound by input: 67 % of a step waits for samples.'
    """
    found = account(evidence)
    verdict = judge(found)
    return Diagnosis(
        bound=verdict.bound,
        verdict=say_verdict(found, verdict),
        evidence=tuple(say_evidence(found, verdict)),
        advice=tuple(advise(found, computes=not verdict.binding)),
        shares=found.parts.shares(),
        thin=verdict.thin,
    )
