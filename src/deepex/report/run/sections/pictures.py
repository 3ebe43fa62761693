"""The interactive figures as plotly's own data: curves, phases, point clouds. They know no HTML and no files."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.record.rows import loss_names
from deepex.report.run.run_data import Material, RankTime, Row
from deepex.report.run.sentences import say_share
from deepex.report.style import ACCENT, GOAL, GRID, PHASE_COLOURS, Figure, lay_out, make_axis
from deepex.train.task import Matrix, PointCloud, ScatterPanel

PATTERNS = {"evaluate": "/", "checkpoint": "x"}
PART_COLOURS = ("#6b7785", "#b07a1e", "#2f8f6b", "#8a5bb5")
MAX_BARS = 96


def loss_colours(rows: Sequence[Row]) -> dict[str, str]:
    """The loss and the parts it is made of, each with its colour."""
    parts = loss_names(rows[0])[1:]
    return {"loss": ACCENT, **{name: PART_COLOURS[index % len(PART_COLOURS)] for index, name in enumerate(parts)}}


def loss_curve(rows: Sequence[Row], against: str) -> Figure:
    """The loss and its parts, against `epoch` or `seconds`."""
    traces = [
        _line(rows, against, name, name, colour, 2.5 if name == "loss" else 1.5)
        for name, colour in loss_colours(rows).items()
    ]
    y_axis = {"title": {"text": "loss (training)"}, "rangemode": "tozero"}
    return {"data": traces, "layout": lay_out(_time_axis(rows, against), y_axis)}


def metric_curve(material: Material, against: str) -> Figure:
    """The metric against `epoch` or `seconds`, with the target as a dashed line."""
    rows, target = material.rows, material.recipe.target
    values = [row["value"] for row in rows] + [target.threshold]
    margin = 0.14 * (max(values) - min(values)) or 0.1
    goal = {
        "type": "scatter",
        "mode": "lines",
        "name": "target",
        "x": [0, rows[-1][against]],
        "y": [target.threshold] * 2,
        "line": {"color": GOAL, "width": 1.5, "dash": "dash"},
        "hoverinfo": "skip",
    }
    label = {
        "text": f"target {target}",
        "x": rows[-1][against],
        "y": target.threshold,
        "xanchor": "right",
        # A falling metric comes from above, a rising one from below: the label stands on the other side.
        "yshift": -10 if target.direction == "min" else 10,
        "showarrow": False,
        "font": {"color": GOAL, "size": 12},
    }
    y_range = [min(values) - margin, max(values) + margin]
    layout = lay_out(_time_axis(rows, against), {"title": {"text": f"{material.metric} (held-out)"}, "range": y_range})
    layout["annotations"] = [label]
    return {"data": [_line(rows, against, "value", material.metric, ACCENT, 2.5), goal], "layout": layout}


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


def point_cloud(cloud: PointCloud) -> tuple[Figure, list[dict[str, Any]]]:
    """A scatter that can be turned, and a choice of what it is coloured by."""
    columns = np.asarray(cloud.points, dtype=np.float32).T
    colourings = [_colouring(name, values) for name, values in cloud.colours.items()]
    bar = {"orientation": "h", "thickness": 12, "len": 0.9, "y": 0, "yanchor": "top", "outlinewidth": 0}
    marker: dict[str, Any] = {
        "size": 3 if len(cloud.points) < 1500 else 2,
        "color": ACCENT,
        "opacity": 0.9,
        "line": {"width": 0},
    }
    trace: Figure = {"type": "scatter3d", "mode": "markers", **dict(zip("xyz", columns, strict=True)), "marker": marker}
    if colourings:
        first = colourings[0]["traces"]
        title = {"text": first["marker.colorbar.title.text"], "side": "top"}
        marker |= {
            "color": first["marker.color"][0],
            "colorscale": "Viridis",
            "showscale": True,
            "colorbar": bar | {"title": title},
        }
        trace["hovertemplate"] = first["hovertemplate"]
    axes = {
        f"{letter}axis": {
            "title": {"text": name},
            "gridcolor": GRID,
            "zerolinecolor": "#c3cad3",
            "showbackground": False,
        }
        for letter, name in zip("xyz", cloud.axes, strict=True)
    }
    layout = lay_out({}, {})
    camera = {"center": {"x": 0, "y": 0, "z": -0.12}}  # a little higher, clear of the colour bar
    layout |= {"scene": {**axes, "aspectmode": "cube", "dragmode": "orbit", "camera": camera}, "height": 560}
    layout |= {"margin": {"l": 0, "r": 0, "t": 0, "b": 60}}
    return {"data": [trace], "layout": layout}, colourings


def confusion(matrix: Matrix) -> Figure:
    """How often one class was taken for another, as shares of each true class."""
    counts = matrix.counts.astype(np.int64)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    names = list(matrix.names)
    hover = [
        [f"{true} taken for {taken}: {count:,} of {row.sum():,}" for taken, count in zip(names, row, strict=True)]
        for true, row in zip(names, counts, strict=True)
    ]
    trace: Figure = {
        "type": "heatmap",
        "x": names,
        "y": names,
        "z": np.round(shares, 4).tolist(),
        "zmin": 0,
        "zmax": 1,
        "xgap": 1,
        "ygap": 1,
        "colorscale": [[0, "#f5f7f9"], [0.02, "#dbe7f5"], [0.5, "#4a8fd0"], [1, "#102a5c"]],
        "colorbar": {"thickness": 12, "outlinewidth": 0, "title": {"text": "share", "side": "top"}},
        "text": hover,
        "hovertemplate": "%{text}<extra></extra>",
    }
    every = {"tickvals": names, "showgrid": False, "automargin": True}
    layout = lay_out(
        every | {"title": {"text": "taken for"}, "tickangle": -60},
        every | {"title": {"text": "true class"}, "autorange": "reversed"},
    )
    layout |= {"height": 180 + max(17 * len(names), 160), "hovermode": "closest"}
    return {"data": [trace], "layout": layout}


def prediction(panel: ScatterPanel) -> Figure:
    """What was predicted against what is true, with the line on which both are equal."""
    true, predicted = (np.asarray(values, dtype=np.float64) for values in (panel.true, panel.predicted))
    low, high = float(min(true.min(), predicted.min())), float(max(true.max(), predicted.max()))
    margin = 0.04 * (high - low) or 0.1
    bounds = [low - margin, high + margin]
    line = {
        "type": "scatter",
        "mode": "lines",
        "x": bounds,
        "y": bounds,
        "line": {"color": GOAL, "width": 1.5, "dash": "dash"},
        "hoverinfo": "skip",
    }
    points = {
        "type": "scatter",
        "mode": "markers",
        "x": [float(f"{value:.5g}") for value in true],
        "y": [float(f"{value:.5g}") for value in predicted],
        "marker": {"size": 4, "color": ACCENT, "opacity": 0.45},
        "hovertemplate": "true %{x:.4g}<br>predicted %{y:.4g}<extra></extra>",
    }
    axis = {"range": bounds, "nticks": 6}
    layout = lay_out(axis | {"title": {"text": "true"}}, axis | {"title": {"text": "predicted"}})
    layout |= {"height": 330, "hovermode": "closest"}
    return {"data": [points, line], "layout": layout}


def _colouring(name: str, values: NDArray[np.float32]) -> dict[str, Any]:
    """A choice of colours; a point without a value has none, since JSON knows no NaN."""
    known = values[np.isfinite(values)]
    span = f": {known.min():.3g} to {known.max():.3g}" if len(known) else ": no values"
    colours = [float(f"{value:.4g}") if np.isfinite(value) else None for value in values]
    return {
        "name": name,
        "traces": {
            "marker.color": [colours],
            "marker.colorbar.title.text": name + span,
            "hovertemplate": f"{name}: %{{marker.color:.3g}}<extra></extra>",
        },
    }


def _line(rows: Sequence[Row], against: str, key: str, name: str, colour: str, width: float) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(rows) <= 30 else "lines",
        "name": name,
        "x": [row[against] for row in rows],
        "y": [row[key] for row in rows],
        "line": {"color": colour, "width": width},
        "marker": {"size": 5},
        "hovertemplate": "%{y:.4g}",
    }


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


def _time_axis(rows: Sequence[Row], against: str) -> dict[str, Any]:
    last = rows[-1][against]
    axis: dict[str, Any] = {"range": [0, 1.04 * last]}
    if against == "seconds":
        return axis | {"title": {"text": "time (s)"}}
    return axis | {"title": {"text": "epochs"}} | ({"dtick": 1} if last <= 10 else {"nticks": 8})
