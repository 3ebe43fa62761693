"""Where the time went: a bar a rank, and a table of phases."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.report.html import Gallery, show_section
from deepex.report.run.run_data import RankTime, RunData
from deepex.report.run.tables import phase_table
from deepex.report.style import PHASE_COLOURS, Figure, lay_out, make_axis
from deepex.text import say_share

PATTERNS = {"evaluate": "/", "checkpoint": "x"}
MAX_BARS = 96


def show_phases(data: RunData, gallery: Gallery) -> str:
    ranks = data.ranks
    shown = (
        f" Drawn are {MAX_BARS} of {len(ranks):,} ranks, from the quickest to the slowest."
        if len(ranks) > MAX_BARS
        else ""
    )
    caption = (
        "A bar is a rank. Blue is computing, warm colours are waiting: for samples (input) or for other ranks (sync). "
        f"Hatched, beside it and on the same scale, is what lies between steps.{shown}"
    )
    return show_section("Where the time went", caption, gallery.show("phases", phase_bars(ranks)) + phase_table(data))


def phase_bars(ranks: Sequence[RankTime]) -> Figure:
    """A stacked bar a rank for the step, and beside it, hatched, what lies between steps; one scale for both."""
    shown = choose_ranks(ranks)
    step = max(max(r.wall_seconds, sum(r.phase_seconds[p] for p in STEP_PHASES)) for r in shown)
    beside = max(sum(r.phase_seconds[p] for p in BESIDE_PHASES) for r in shown)
    share = min(max(beside / (step + beside), 0.24), 0.5) if step + beside else 0.24
    usable = 0.96  # of the width; the rest is the gap between the panels
    # Where a panel is wider than its bars need, its range grows: a second is equally long in both.
    longest = 1.03 * max(step / (1 - share), beside / share)
    pitch = 46 if len(shown) <= 4 else 26 if len(shown) <= 16 else 13
    names = [f"rank {r.rank}" for r in shown]
    traces = [_bar(shown, names, phase, "x") for phase in STEP_PHASES]
    traces += [_bar(shown, names, phase, "x2") for phase in BESIDE_PHASES]
    step_axis = {"title": {"text": "in steps (s)"}, "range": [0, longest * (1 - share)]}
    every = max(1, len(shown) // 16)
    rank_axis = {"autorange": "reversed", "showgrid": False, "tickvals": names[::every], "automargin": True}
    layout = lay_out(step_axis | {"domain": [0, usable * (1 - share)]}, rank_axis)
    layout["xaxis2"] = make_axis(
        {"title": {"text": "beside (s)"}, "range": [0, longest * share], "domain": [1 - usable * share, 1], "nticks": 3}
    )
    layout |= {"barmode": "stack", "bargap": 0.28 if pitch > 20 else 0.15, "hovermode": "closest"}
    layout |= {"height": 62 + max(pitch * len(shown), 60)}
    return {"data": traces, "layout": layout}


def choose_ranks(ranks: Sequence[RankTime]) -> list[RankTime]:
    """All ranks, or, of very many, some from the quickest to the slowest, in the order of ranks."""
    if len(ranks) <= MAX_BARS:
        return list(ranks)
    by_wall = sorted(ranks, key=lambda rank: rank.wall_seconds)
    places = np.linspace(0, len(ranks) - 1, MAX_BARS).round().astype(int)
    return sorted((by_wall[place] for place in places), key=lambda rank: rank.rank)


def _bar(ranks: Sequence[RankTime], names: list[str], phase: str, axis: str) -> Figure:
    seconds = [rank.phase_seconds[phase] for rank in ranks]
    shares = [value / (rank.wall_seconds or 1.0) for value, rank in zip(seconds, ranks, strict=True)]
    of_what = "of the step wall time" if phase in STEP_PHASES else "as much as the step wall time, beside it"
    marker: dict[str, Any] = {"color": PHASE_COLOURS[phase], "line": {"width": 0}}
    if phase in PATTERNS:
        marker["pattern"] = {
            "shape": PATTERNS[phase],
            "size": 6,
            "fgcolor": "#ffffff",
            "solidity": 0.3,
            "fillmode": "overlay",
        }
    labels = [f"{phase} {say_share(share)}" if share >= 0.1 and len(ranks) <= 4 else "" for share in shares]
    return {
        "type": "bar",
        "orientation": "h",
        "name": phase,
        "x": seconds,
        "y": names,
        "xaxis": axis,
        "marker": marker,
        "text": labels if axis == "x" else [""] * len(ranks),
        "textposition": "inside",
        "insidetextanchor": "middle",
        "insidetextfont": {"size": 12},
        "textangle": 0,
        "customdata": [[rank.host, say_share(share)] for rank, share in zip(ranks, shares, strict=True)],
        "hovertemplate": f"<b>{phase}</b>, %{{y}} on %{{customdata[0]}}<br>%{{x:.3f}} s, %{{customdata[1]}} {of_what}"
        "<extra></extra>",
    }
