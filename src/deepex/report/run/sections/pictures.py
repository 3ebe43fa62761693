"""What the task shows of its model: images, matrices, predictions, points in space."""

from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepex.record.illustration import ImageGrid, Matrix, Picture, PointCloud, Scatter, ScatterPanel
from deepex.report.html import Gallery, show_section, unbroken
from deepex.report.run.run_data import RunData
from deepex.report.run.sections.image_grid import image_grid
from deepex.report.style import ACCENT, GOAL, GRID, Figure, lay_out


def show_pictures(data: RunData, gallery: Gallery) -> str:
    """A section a picture; where there is none, why."""
    if data.illustration is None:
        note = escape(data.why_no_pictures)
        return f'<section class="note"><p>{note}</p></section>' if note else ""
    return "\n".join(_picture(number, picture, gallery) for number, picture in enumerate(data.illustration.pictures))


def _picture(number: int, picture: Picture, gallery: Gallery) -> str:
    match picture:
        case ImageGrid():
            content = image_grid(picture)
        case Matrix():
            content = gallery.show(f"matrix-{number}", confusion(picture))
        case Scatter():
            content = _panels(number, picture, gallery)
        case PointCloud():
            content = _points(number, picture, gallery)
    return show_section(picture.title, picture.caption, content)


def _panels(number: int, scatter: Scatter, gallery: Gallery) -> str:
    cells = "".join(
        f"<div><h3>{escape(panel.name)}</h3>"
        + (f'<p class="caption">{unbroken(escape(panel.note))}</p>' if panel.note else "")
        + gallery.show(f"scatter-{number}-{place}", prediction(panel))
        + "</div>"
        for place, panel in enumerate(scatter.panels)
    )
    return f'<div class="panels">{cells}</div>'


def _points(number: int, picture: PointCloud, gallery: Gallery) -> str:
    figure, colourings = point_cloud(picture)
    return gallery.show(f"points-{number}", figure, colourings, "colour by")


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
