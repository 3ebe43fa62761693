"""Loss and metric over epochs and over seconds."""

from collections.abc import Sequence
from html import escape
from typing import Any, Literal

from deepex.record.rows import EpochRow
from deepex.report.html import Gallery, show_section
from deepex.report.run.run_data import RunData
from deepex.report.style import ACCENT, GOAL, Figure, lay_out
from deepex.train.task import Target

PART_COLOURS = ("#6b7785", "#b07a1e", "#2f8f6b", "#8a5bb5")

Against = Literal["epoch", "seconds"]


def show_curves(data: RunData, gallery: Gallery) -> str:
    figures = {
        "loss-epoch": loss_curve(data.rows, "epoch"),
        "loss-seconds": loss_curve(data.rows, "seconds"),
        "metric-epoch": metric_curve(data, "epoch"),
        "metric-seconds": metric_curve(data, "seconds"),
    }
    cells = "".join(gallery.show(name, figure) for name, figure in figures.items())
    goal = "; the dashed line is the target" if data.target is not None and data.target.threshold is not None else ""
    judged = f"{data.metric}, as the loop gives it" if data.recipe.is_own_loop else f"{data.metric} on held-out samples"
    caption = (
        f"The loss on training samples and {judged}, each against epochs and against the seconds since training began. "
        f"A point is an epoch{goal}."
    )
    return show_section("Loss and metric", caption, f'{_legend(data)}<div class="curves">{cells}</div>')


def _legend(data: RunData) -> str:
    """The parts of the loss by colour; none for a loss of one part."""
    colours = loss_colours(data.rows)
    entries = (
        f'<span><i class="line" style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in colours.items()
    )
    return f'<p class="legend">{"".join(entries)}</p>' if len(colours) > 1 else ""


def loss_colours(rows: Sequence[EpochRow]) -> dict[str, str]:
    """The loss and the parts it is made of, each with its colour."""
    parts = [name for name in rows[0].losses if name != "loss"]
    return {"loss": ACCENT, **{name: PART_COLOURS[index % len(PART_COLOURS)] for index, name in enumerate(parts)}}


def loss_curve(rows: Sequence[EpochRow], against: Against) -> Figure:
    """The loss and its parts, against `epoch` or `seconds`."""
    traces = [
        _line(rows, against, [row.losses[name] for row in rows], name, colour, 2.5 if name == "loss" else 1.5)
        for name, colour in loss_colours(rows).items()
    ]
    y_axis = {"title": {"text": "loss (training)"}, "rangemode": "tozero"}
    return {"data": traces, "layout": lay_out(_time_axis(rows, against), y_axis)}


def metric_curve(data: RunData, against: Against) -> Figure:
    """The metric against `epoch` or `seconds`, with the target as a dashed line."""
    rows, target = data.rows, data.target
    values = [row.value for row in rows]
    traces = [_line(rows, against, values, data.metric, ACCENT, 2.5)]
    annotations = []
    if target is not None and target.threshold is not None:
        values = [*values, target.threshold]
        goal, label = _goal(target, target.threshold, getattr(rows[-1], against))
        traces.append(goal)
        annotations.append(label)
    margin = 0.14 * (max(values) - min(values)) or 0.1
    y_range = [min(values) - margin, max(values) + margin]
    title = data.metric if data.recipe.is_own_loop else f"{data.metric} (held-out)"
    layout = lay_out(_time_axis(rows, against), {"title": {"text": title}, "range": y_range})
    layout["annotations"] = annotations
    return {"data": traces, "layout": layout}


def _goal(target: Target, threshold: float, end: float) -> tuple[Figure, dict[str, Any]]:
    """The dashed line of the target from the beginning to `end`, and its label."""
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": "target",
        "x": [0, end],
        "y": [threshold] * 2,
        "line": {"color": GOAL, "width": 1.5, "dash": "dash"},
        "hoverinfo": "skip",
    }
    label = {
        "text": f"target {target}",
        "x": end,
        "y": threshold,
        "xanchor": "right",
        # A falling metric comes from above, a rising one from below: the label stands on the other side.
        "yshift": -10 if target.direction == "min" else 10,
        "showarrow": False,
        "font": {"color": GOAL, "size": 12},
    }
    return line, label


def _line(
    rows: Sequence[EpochRow], against: Against, values: Sequence[float], name: str, colour: str, width: float
) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(rows) <= 30 else "lines",
        "name": name,
        "x": [getattr(row, against) for row in rows],
        "y": list(values),
        "line": {"color": colour, "width": width},
        "marker": {"size": 5},
        "hovertemplate": "%{y:.4g}",
    }


def _time_axis(rows: Sequence[EpochRow], against: Against) -> dict[str, Any]:
    last = getattr(rows[-1], against)
    axis: dict[str, Any] = {"range": [0, 1.04 * last]}
    if against == "seconds":
        return axis | {"title": {"text": "time (s)"}}
    return axis | {"title": {"text": "epochs"}} | ({"dtick": 1} if last <= 10 else {"nticks": 8})
