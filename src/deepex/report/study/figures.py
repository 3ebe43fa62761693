"""The figures of studies: speedups, efficiency, phases against ranks, curves of quality, noise. They know no HTML.

They draw `StudySet`s, which is what study.json holds, of one study or of several side by side.
"""

from collections.abc import Callable, Sequence
from math import log10
from typing import Any, Literal

from deepex.record.phases import STEP_PHASES
from deepex.record.study_rows import CellRow, Estimate
from deepex.report.html import Choice
from deepex.report.study.study_set import PlacedCell, StudySet
from deepex.report.style import FAINT, GOAL, PHASE_COLOURS, SERIES_COLOURS, Figure, lay_out

BASE_COLOUR = "#6b7785"
MANY_RANKS = 8  # from more on, ranks are drawn on logarithmic axes
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross")
Pick = Callable[[CellRow], Estimate | None]
Known = Sequence[tuple[PlacedCell, Estimate]]


def speedup(studies: StudySet) -> tuple[Figure, list[Choice]]:
    """S_p against ranks, with what would be ideal, and a choice of axes."""
    figure = _against_ranks(studies, [(lambda cell: cell.speedup, "")], "per-epoch speedup S<sub>p</sub>", ideal=True)
    axes = {
        kind: {"xaxis.type": kind, "yaxis.type": kind, "yaxis.range": _span(figure["data"], kind)}
        for kind in ("linear", "log")
    }
    names = {"linear": "linear", "log": "logarithmic"}
    first = figure["layout"]["xaxis"]["type"]
    kinds = sorted(axes, key=lambda kind: kind != first)
    return figure, [{"name": names[kind], "layout": axes[kind]} for kind in kinds]


def learning_speedup(studies: StudySet) -> tuple[Figure, list[Choice]]:
    """S_L against ranks at the last cut-off, and a choice between both."""
    places = range(len(studies.cutoffs))
    picks: list[tuple[Pick, str]] = [(_learning(place), studies.say_cutoff(place)) for place in places]
    figure = _against_ranks(studies, picks, "learning speedup S<sub>L</sub>", ideal=True)
    owners = [trace.pop("meta", None) for trace in figure["data"]]

    def shown(place: int) -> list[bool]:
        return [owner is None or owner == place for owner in owners]

    for trace, visible in zip(figure["data"], shown(places[-1]), strict=True):
        trace["visible"] = visible
    choices = [{"name": studies.say_cutoff(place), "traces": {"visible": shown(place)}} for place in reversed(places)]
    return figure, choices


def efficiency(studies: StudySet) -> Figure:
    """S_p a rank; cells whose ranks shared cores have none."""
    figure = _against_ranks(studies, [(lambda cell: cell.efficiency, "")], "parallel efficiency", ideal=False)
    figure["layout"]["yaxis"] |= {"tickformat": ".0%", "rangemode": "tozero"}
    figure["data"].append(_rule(studies, 1.0))
    return figure


def epoch_seconds(studies: StudySet) -> Figure:
    """Time of an epoch against ranks."""
    figure = _against_ranks(studies, [(lambda cell: cell.epoch_seconds, "")], "time an epoch (s)", ideal=False)
    figure["layout"]["yaxis"] |= {"rangemode": "tozero"}
    return figure


def throughput(studies: StudySet) -> Figure:
    """Samples a second of all ranks."""
    figure = _against_ranks(studies, [(lambda cell: cell.samples_per_second, "")], "samples a second", ideal=False)
    figure["layout"]["yaxis"] |= {"rangemode": "tozero"}
    return figure


def phases(studies: StudySet, what: Literal["seconds", "share"]) -> Figure:
    """A bar a cell: the phases of an epoch's steps, in `seconds` or as `share`."""
    cells = [cell for cell in studies.cells if cell.runs]
    names = [studies.short_name(cell) for cell in cells]
    taken = [cell.phase_seconds if what == "seconds" else cell.phase_shares for cell in cells]
    traces = [
        {
            "type": "bar",
            "name": phase,
            "x": names,
            "y": [each[phase] for each in taken],
            "marker": {"color": PHASE_COLOURS[phase], "line": {"width": 0}},
            "hovertemplate": f"<b>{phase}</b>, %{{x}}<br>%{{y:.3{'f' if what == 'seconds' else '~%'}}}<extra></extra>",
        }
        for phase in STEP_PHASES
    ]
    title = "seconds of an epoch's steps" if what == "seconds" else "share of the steps' time"
    y_axis: dict[str, Any] = {"title": {"text": title}, "rangemode": "tozero"}
    if what == "share":
        y_axis |= {"tickformat": ".0%", "range": [0, 1], "automargin": True}
    layout = lay_out({"showgrid": False, "automargin": True, "type": "category"}, y_axis)
    layout |= {"barmode": "stack", "bargap": 0.35, "height": 340, "hovermode": "closest"}
    return {"data": traces, "layout": layout}


def quality(studies: StudySet, against: Literal["epoch", "seconds"]) -> Figure:
    """The metric of every run against `epoch` or `seconds`; runs of a cell share a colour, cut-offs are dashed."""
    traces: list[Figure] = []
    last = 0.0
    for number, cell in enumerate(studies.cells):
        for place, run in enumerate(cell.runs):
            ends = run.curve.epoch if against == "epoch" else run.curve.seconds
            last = max(last, float(ends[-1]))
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": studies.short_name(cell),
                    "legendgroup": cell.name + studies.group(cell),
                    "showlegend": place == 0,
                    "x": list(ends),
                    "y": list(run.curve.value),
                    "line": {"color": _colour(studies, cell), "width": 2, "dash": DASHES[number % len(DASHES)]},
                    "hovertemplate": f"{studies.short_name(cell)}, seed {run.seed}: %{{y:.4g}}<extra></extra>",
                }
            )
    traces += [_flat([0, last], cutoff, studies.metric) for cutoff in studies.cutoffs]
    title = "epochs" if against == "epoch" else "time (s)"
    layout = lay_out(
        {"title": {"text": title}, "range": [0, 1.03 * last]}, {"title": {"text": f"{studies.metric} (held-out)"}}
    )
    layout |= {"hovermode": "closest", "height": 330} | _legend()
    return {"data": traces, "layout": layout}


DASHES = ("solid", "dash", "dot", "dashdot")


def noise(studies: StudySet) -> Figure | None:
    """The gradient noise scale of every run against epochs; none where no run could tell."""
    traces: list[Figure] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": studies.short_name(cell) + (" (by weights)" if cell.noise_from == "weights" else ""),
            "legendgroup": cell.name + studies.group(cell),
            "showlegend": place == 0,
            "x": list(run.curve.epoch),
            "y": list(run.curve.noise_scale),
            "line": {"color": _colour(studies, cell), "width": 1.5},
            "marker": {"size": 4},
            "hovertemplate": f"{studies.short_name(cell)}, seed {run.seed}: %{{y:,.0f}} samples<extra></extra>",
        }
        for cell in studies.cells
        for place, run in enumerate(cell.runs)
        if any(value is not None for value in run.curve.noise_scale)
    ]
    if not traces:
        return None
    last = max(trace["x"][-1] for trace in traces)
    batches = sorted({cell.batch for cell in studies.cells if cell.runs})
    traces += [
        _flat([0, last], batch, f"batch of {batch}", colour=FAINT, label=f"batch of {batch} samples")
        for batch in batches
    ]
    layout = lay_out(
        {"title": {"text": "epochs"}}, {"title": {"text": "gradient noise scale (samples)"}, "type": "log"}
    )
    layout |= {"hovermode": "closest", "height": 330} | _legend()
    return {"data": traces, "layout": layout}


def _against_ranks(studies: StudySet, picks: Sequence[tuple[Pick, str]], title: str, *, ideal: bool) -> Figure:
    """A line a series and pick, from the cell that it is counted from."""
    ranks = sorted({cell.ranks for cell in studies.cells})
    traces: list[Figure] = []
    for number, series in enumerate(studies.series):
        cells = studies.cells_of(series)
        for place, (pick, goal) in enumerate(picks):
            known = [(cell, found) for cell in cells if cell.runs and (found := pick(cell)) is not None]
            lines = _series_lines(studies, number, known)
            for line in lines if len(picks) > 1 else []:
                line |= {"meta": place, "name": f"{line['name']}, {goal}"}
            traces += lines
    kind = "log" if ranks[-1] > MANY_RANKS else "linear"
    if ideal:
        first = ranks[0]
        line = {"color": FAINT, "width": 1.2, "dash": "dash"}
        shown: Figure = {"type": "scatter", "mode": "lines", "name": "ideal", "line": line, "hoverinfo": "skip"}
        traces.append(shown | {"x": ranks, "y": [number / first for number in ranks]})
    x_axis = {"title": {"text": "ranks"}, "tickvals": ranks, "ticktext": [f"{n:,}" for n in ranks], "type": kind}
    y_axis: dict[str, Any] = {"title": {"text": title}, "automargin": True}
    if ideal:
        y_axis |= {"type": kind, "range": _span(traces, kind)}
    layout = lay_out(x_axis, y_axis)
    layout |= {"height": 320, "hovermode": "closest"} | _legend()
    return {"data": traces, "layout": layout}


def _span(traces: Sequence[Figure], kind: str) -> list[float]:
    """What an axis shows: all values, whatever the intervals of a few runs reach to."""
    values = [value for trace in traces for value in trace["y"]]
    if kind == "log":
        return [log10(min(values)) - 0.1, log10(max(values)) + 0.1]
    return [0.0, 1.12 * max(values)]


def _series_lines(studies: StudySet, number: int, known: Known) -> list[Figure]:
    """A line through cells with cores of their own, and dashed from its end those whose ranks shared cores."""
    fair = [each for each in known if not each[0].oversubscribed]
    shared = [each for each in known if each[0].oversubscribed]
    lines = [_series_line(studies, number, fair, shared=False)] if fair else []
    if shared:
        lines.append(_series_line(studies, number, fair[-1:] + shared, shared=True) | {"showlegend": not fair})
    return lines


def _series_line(studies: StudySet, number: int, known: Known, *, shared: bool) -> Figure:
    colour = SERIES_COLOURS[number % len(SERIES_COLOURS)]
    symbol = SYMBOLS[number % len(SYMBOLS)]
    name = studies.say_series(studies.series[number])
    found = [each for _, each in known]
    note = "<br>more ranks than cores" if shared else ""
    trace: Figure = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "legendgroup": name,
        "x": [cell.ranks for cell, _ in known],
        "y": [each.value for each in found],
        "line": {"color": colour, "width": 2.2, "dash": "dot" if shared else "solid"},
        "marker": {"size": 9, "color": colour, "symbol": f"{symbol}-open" if shared else symbol},
        "hovertemplate": f"{name}<br>%{{x}} ranks: %{{y:.4g}}{note}<extra></extra>",
    }
    if any(each.low is not None for each in found):
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [(each.high or each.value) - each.value for each in found],
            "arrayminus": [each.value - (each.low or each.value) for each in found],
            "thickness": 1.2,
            "width": 4,
            "color": colour,
        }
    return trace


def _learning(place: int) -> Pick:
    return lambda cell: cell.cutoffs[place].speedup


def _rule(studies: StudySet, value: float) -> Figure:
    ranks = [cell.ranks for cell in studies.cells]
    return _flat([min(ranks), max(ranks)], value, "ideal", colour=FAINT)


def _flat(ends: Sequence[float], value: float, name: str, *, colour: str = GOAL, label: str = "") -> Figure:
    """A dashed line across the figure."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(ends),
        "y": [value, value],
        "line": {"color": colour, "width": 1.3, "dash": "dash"},
        "hovertemplate": f"{label or f'{name} {value:g}'}<extra></extra>",
        "showlegend": bool(label),
    }


def _colour(studies: StudySet, cell: PlacedCell) -> str:
    number = studies.number_of(cell)
    return BASE_COLOUR if number is None else SERIES_COLOURS[number % len(SERIES_COLOURS)]


def _legend() -> dict[str, Any]:
    place = {"orientation": "h", "x": 0, "xanchor": "left", "y": -0.24, "yanchor": "top", "font": {"size": 12}}
    return {"showlegend": True, "legend": place, "margin": {"l": 58, "r": 14, "t": 12, "b": 84}}
