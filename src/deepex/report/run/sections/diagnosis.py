"""The page's answer to why a run is not faster: verdict, where a step's time goes by cause, numbers, advice."""

from html import escape

from deepex.record.rows import Diagnosis
from deepex.report.html import Gallery, show_section, unbroken
from deepex.report.run.run_data import RunData
from deepex.report.style import CAUSE_COLOURS
from deepex.text import say_ratio, say_share

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


def show_diagnosis(data: RunData, gallery: Gallery) -> str:
    """The section; none before there is a diagnosis."""
    if data.diagnosis is None:
        return ""
    caption = (
        "Where a step's time goes by cause, judged by the phases of all ranks. Gains are predictions, in samples a "
        "second; whether a change also learns as well, a run tells."
    )
    return show_section("Why it is not faster", caption, unbroken(describe_diagnosis(data.diagnosis)))


def describe_diagnosis(found: Diagnosis) -> str:
    """Verdict, causes, evidence and advice as HTML."""
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
        f'<div class="advice"><b>{say_ratio(advice.gain)}</b><div><code>{escape(advice.change)}</code>'
        f"<p>{escape(advice.sentence)}</p></div></div>"
        for advice in found.advice
    )
    return f"<h3>What would help most</h3>{items}"
