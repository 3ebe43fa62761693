"""The page's answer to why a run is not faster: verdict, where a step's time goes by cause, numbers, advice."""

from html import escape

from deepex.diagnosis.sentences import Diagnosis
from deepex.report.run.sentences import say_share
from deepex.report.style import CAUSE_COLOURS

MEANINGS = {
    "computation": "computing",
    "framework": "starting operators",
    "cores": "waiting for a core",
    "input": "waiting for samples",
    "latency": "messages, by their number",
    "bandwidth": "messages, by their length",
    "imbalance": "waiting for slower ranks",
}
LEAST_SHOWN = 0.005


def show_diagnosis(found: Diagnosis) -> str:
    """The section's content."""
    evidence = "".join(f"<li>{escape(sentence)}</li>" for sentence in found.evidence)
    return (
        f'<p class="verdict">{escape(found.verdict)}</p>{_causes(found)}<ul class="evidence">{evidence}</ul>'
        f"{_advice(found)}"
    )


def _causes(found: Diagnosis) -> str:
    """A step as one bar, cut by cause, with its legend."""
    shown = [(cause, found.shares[cause]) for cause in CAUSE_COLOURS if found.shares.get(cause, 0) >= LEAST_SHOWN]
    pieces = "".join(
        f'<i style="flex-grow:{100 * share:.2f};background:{CAUSE_COLOURS[cause]}" title="{MEANINGS[cause]}"></i>'
        for cause, share in shown
    )
    names = "".join(
        f'<span><i class="swatch" style="background:{CAUSE_COLOURS[cause]}"></i>{MEANINGS[cause]} '
        f"{say_share(share)}</span>"
        for cause, share in shown
    )
    return f'<div class="causes" role="img" aria-label="a step by cause">{pieces}</div><p class="legend">{names}</p>'


def _advice(found: Diagnosis) -> str:
    if not found.advice:
        return ""
    items = "".join(
        f'<div class="advice"><b>{advice.gain:.2f} ×</b><div><code>{escape(advice.change)}</code>'
        f"<p>{escape(advice.sentence)}</p></div></div>"
        for advice in found.advice
    )
    return f"<h3>What would help most</h3>{items}"
