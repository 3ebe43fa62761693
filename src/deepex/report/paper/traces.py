"""Plotly's traces drawn with matplotlib: lines, points, bars, heat maps. They know neither axes nor files."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.collections import PolyCollection
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.patches import Patch
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from deepex.report.paper.plotly_values import choose, find_interval, find_values, read_colour, read_title, typeset
from deepex.report.style import INK, Figure

POINTS_A_PIXEL = 8 / 13  # the page's text of 13 pixels is 8 points high here
CHARACTER_INCHES, LINE_INCHES = 0.056, 0.13  # of labels, about
MANY_SHAPES = 5000  # a PDF with more of them as vectors is slow to open: they become an image in it
DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
STEPS = {"linear": "default", "hv": "steps-post", "vh": "steps-pre", "hvh": "steps-mid"}
SYMBOLS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "triangle-down": "v", "x": "X",
           "cross": "P"}  # fmt: skip
HATCHES = {"": "", "/": "////", "\\": "\\\\\\\\", "x": "xxxx", "-": "----", "|": "||||", "+": "++++", ".": "...."}
SCALES = {"Viridis": "viridis", "Cividis": "cividis", "Plasma": "plasma", "Inferno": "inferno", "Magma": "magma"}
BAR_MODES = {"group": "group", "stack": "stack", "overlay": "overlay"}


@dataclass(frozen=True)
class Scale:
    """An axis as plotly sets it, and where its names stand if it has names instead of numbers."""

    settings: Mapping[str, Any]
    places: Mapping[Any, int]

    @property
    def is_log(self) -> bool:
        return self.settings.get("type") == "log"

    def place(self, values: Iterable[Any]) -> NDArray[np.float64]:
        """Numbers to draw at; a gap is NaN."""
        return np.asarray([self.places.get(value, value) for value in values] if self.places else values, np.float64)


@dataclass(frozen=True)
class _BarLabel:
    """A text that belongs to a bar, until the axes are set and tell how large the bar is."""

    box: Bbox
    text: str
    face: tuple[float, float, float, float]
    position: str
    is_flat: bool


@dataclass
class Panel:
    """One pair of axes, and what a trace needs to know of those drawn before it."""

    axes: Any
    x: Scale
    y: Scale
    domains: tuple[Sequence[float], Sequence[float]]
    num_bars: int = 0
    bars_drawn: int = 0
    bar_ends: dict[float, float] = field(default_factory=dict)
    bar_labels: list[_BarLabel] = field(default_factory=list)
    last_line: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None


def _draw_scatter(panel: Panel, trace: Figure, layout: Figure, colour: str) -> Artist:
    x, y = panel.x.place(find_values(trace, "x")), panel.y.place(find_values(trace, "y"))
    line, marker = trace.get("line", {}), trace.get("marker", {})
    parts = (trace.get("mode") or ("lines+markers" if len(x) < 20 else "lines")).split("+")
    if unknown := set(parts) - {"lines", "markers", "none"}:
        raise ValueError(f"a scatter trace of mode {unknown.pop()} can't be drawn for a paper.")
    is_scalar = isinstance(marker.get("color", ""), str)
    opacity = trace.get("opacity", 1.0)
    ink = read_colour(line.get("color") or (marker.get("color") if is_scalar else None) or colour, opacity)
    filled = _fill(panel, trace, x, y, ink)
    panel.last_line = x, y
    look = _style_markers(marker, ink, opacity) if "markers" in parts and is_scalar else {}
    style = choose(DASHES, line.get("dash", "solid"), "dash") if "lines" in parts else "none"
    width = line.get("width", 2) * POINTS_A_PIXEL
    steps = choose(STEPS, line.get("shape", "linear"), "line shape")
    (drawn,) = panel.axes.plot(x, y, color=ink, linestyle=style, linewidth=width, drawstyle=steps, **look)
    if "markers" in parts and not is_scalar:
        _draw_points(panel.axes, (x, y), trace, colour)
    _draw_interval(panel, trace, "y", x, y, ink)
    return filled if filled is not None and (style == "none" or not width) and not look else drawn


def _style_markers(marker: Mapping[str, Any], ink: Any, opacity: float) -> dict[str, Any]:
    symbol = str(marker.get("symbol", "circle"))
    shape = choose(SYMBOLS, symbol.removesuffix("-open"), "marker symbol")
    colour = read_colour(
        read_colour(marker["color"], opacity) if marker.get("color") else ink, marker.get("opacity", 1.0)
    )
    face, edge = ("none", 0.8) if symbol.endswith("-open") else (colour, 0.0)
    return {"marker": shape, "markersize": marker.get("size", 6) * POINTS_A_PIXEL, "markerfacecolor": face,
            "markeredgecolor": colour, "markeredgewidth": edge}  # fmt: skip


def _fill(panel: Panel, trace: Figure, x: NDArray[np.float64], y: NDArray[np.float64], ink: Any) -> Artist | None:
    fill = trace.get("fill", "none")
    if fill == "none":
        return None
    if fill not in ("toself", "tonexty") or (fill == "tonexty" and panel.last_line is None):
        raise ValueError(f"fill {fill} can't be drawn for a paper: toself can, and tonexty after another line.")
    if fill == "tonexty" and panel.last_line is not None:
        x, y = (np.concatenate([own, other[::-1]]) for own, other in zip((x, y), panel.last_line, strict=True))
    gaps = np.flatnonzero(~np.isfinite(x + y))
    colour = read_colour(trace["fillcolor"]) if trace.get("fillcolor") else read_colour(ink, 0.3)
    for part in np.split(np.arange(len(x)), gaps):
        kept = part[np.isfinite(x[part] + y[part])]
        panel.axes.fill(x[kept], y[kept], facecolor=colour, linewidth=0)
    return Patch(facecolor=colour, linewidth=0)


def _draw_interval(panel: Panel, trace: Figure, letter: str, x: Any, y: Any, ink: Any) -> None:
    error, interval = trace.get(f"error_{letter}"), find_interval(trace, letter)
    if trace.get("error_x" if letter == "y" else "error_y"):
        raise ValueError(f"error bars across the {letter} axis can't be drawn for a paper.")
    if error and interval:
        look = {"ecolor": read_colour(error.get("color") or ink), "capsize": 1.6, "capthick": 0.7}
        width = error.get("thickness", 2) * POINTS_A_PIXEL
        panel.axes.errorbar(x, y, **{f"{letter}err": interval}, fmt="none", elinewidth=width, **look)


def _draw_bar(panel: Panel, trace: Figure, layout: Figure, colour: str) -> Artist:
    is_flat = trace.get("orientation") == "h"
    base, value, letter = (panel.y, panel.x, "x") if is_flat else (panel.x, panel.y, "y")
    places, lengths = base.place(find_values(trace, "y" if is_flat else "x")), value.place(find_values(trace, letter))
    mode = choose(BAR_MODES, layout.get("barmode", "group"), "barmode")
    if base.is_log:
        raise ValueError("bars along a log axis can't be drawn for a paper: use an axis of type category.")
    pitch = 1.0 if base.places or len(places) < 2 else float(np.diff(np.unique(places)).min())
    slots = panel.num_bars if mode == "group" else 1
    width = pitch * (1 - layout.get("bargap", 0.2)) / slots
    middles = places + width * (panel.bars_drawn % slots - (slots - 1) / 2)
    starts = np.asarray([panel.bar_ends.get(place, 0.0) if mode == "stack" else 0.0 for place in places])
    panel.bar_ends |= dict(zip(places.tolist(), (starts + np.nan_to_num(lengths)).tolist(), strict=True))
    panel.bars_drawn += 1
    faces, look = _style_bars(trace, colour, len(places))
    sides = np.asarray([starts, starts + np.nan_to_num(lengths), middles - width / 2, middles + width / 2])
    left, right, bottom, top = sides if is_flat else sides[[2, 3, 0, 1]]
    corners = np.stack([left, bottom, left, top, right, top, right, bottom], axis=1).reshape(-1, 4, 2)
    bars = PolyCollection(list(corners), facecolors=faces, **look)  # one artist, quick for very many ranks
    (bars.sticky_edges.x if is_flat else bars.sticky_edges.y).append(0)
    panel.axes.add_collection(bars)
    panel.axes.autoscale_view()
    x, y = (starts + lengths, middles) if is_flat else (middles, starts + lengths)
    _draw_interval(panel, trace, letter, x, y, INK)
    texts = () if trace.get("text") is None else trace["text"]
    texts = [texts] * len(places) if isinstance(texts, str) else texts
    for box, text, face in zip(corners, texts, faces, strict=False):
        panel.bar_labels.append(
            _BarLabel(Bbox([box[0], box[2]]), text, face, trace.get("textposition", "auto"), is_flat)
        )
    return Patch(facecolor=faces[0] if faces else colour, **look)


def _style_bars(trace: Figure, colour: str, count: int) -> tuple[list[Any], dict[str, Any]]:
    """The colour of each bar, and the hatch of all."""
    marker = trace.get("marker", {})
    given = colour if marker.get("color") is None else marker["color"]
    opacity = trace.get("opacity", 1) * marker.get("opacity", 1)
    faces = [read_colour(one, opacity) for one in ([given] * count if isinstance(given, str) else given)]
    pattern = marker.get("pattern", {})
    hatch = choose(HATCHES, pattern.get("shape", ""), "pattern")
    if not hatch:
        return faces, {"linewidth": 0}
    if pattern.get("fillmode") == "overlay":
        return faces, {"linewidth": 0, "hatch": hatch, "edgecolor": read_colour(pattern.get("fgcolor", "#ffffff"))}
    back = read_colour(pattern.get("bgcolor", "#ffffff"))
    return [back] * count, {"linewidth": 0.6, "hatch": hatch, "edgecolor": faces[0] if faces else back}


def label_bars(panel: Panel, inches: Sequence[float]) -> None:
    """Texts inside their bars where they fit, or beyond their ends where plotly may put them there."""
    axes = panel.axes
    for label in panel.bar_labels:
        text = typeset(label.text)
        box = label.box.transformed(axes.transScale + axes.transLimits)
        fits = len(text) * CHARACTER_INCHES < abs(box.width) * inches[0] and abs(box.height) * inches[1] > LINE_INCHES
        x, y = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
        look: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 7}
        if text and fits and label.position in ("inside", "auto"):
            is_dark = np.dot(label.face[:3], (0.299, 0.587, 0.114)) < 0.55
            axes.annotate(text, (x, y), (0, 0), ha="center", va="center", color="w" if is_dark else INK, **look)
        elif text and label.position in ("outside", "auto"):
            place, shift = ((box.x1, y), (2, 0)) if label.is_flat else ((x, box.y1), (0, 2))
            anchors = ("left", "center") if label.is_flat else ("center", "bottom")
            axes.annotate(text, place, shift, ha=anchors[0], va=anchors[1], **look)


def _draw_heatmap(panel: Panel, trace: Figure, layout: Figure, colour: str) -> None:
    cells = np.ma.masked_invalid(np.asarray(trace["z"], np.float64))
    edges = [_find_edges(scale.place(find_values(trace, name))) for name, scale in (("x", panel.x), ("y", panel.y))]
    gap = max(trace.get("xgap", 0), trace.get("ygap", 0)) * POINTS_A_PIXEL
    look = {"edgecolors": "w", "linewidth": gap} if gap else {}
    bounds = {"vmin": trace.get("zmin"), "vmax": trace.get("zmax"), "cmap": _read_colour_scale(trace)}
    mesh = panel.axes.pcolormesh(*edges, cells, **bounds, **look, rasterized=cells.size > MANY_SHAPES)
    panel.axes.spines[:].set_visible(False)
    if trace.get("showscale", True):
        _add_colour_bar(panel.axes, mesh, trace.get("colorbar", {}))


def _draw_points_in_space(panel: Panel, trace: Figure, layout: Figure, colour: str) -> Artist:
    if trace.get("mode", "markers") != "markers":
        raise ValueError(f"a scatter3d trace of mode {trace['mode']} can't be drawn for a paper: only markers can.")
    places = tuple(np.asarray(trace[letter], np.float64) for letter in "xyz")
    return _draw_points(panel.axes, places, trace, colour)


def _draw_points(axes: Any, places: tuple[NDArray[np.float64], ...], trace: Figure, colour: str) -> Artist:
    """Points with a colour each, on a plane or in space; one without a value is grey."""
    marker = trace.get("marker", {})
    given = colour if marker.get("color") is None else marker["color"]
    is_measured = not isinstance(given, str) and not any(isinstance(one, str) for one in given)
    look: dict[str, Any]
    if is_measured:
        look = {"c": np.asarray(given, np.float64), "cmap": _read_colour_scale(marker), "plotnonfinite": True}
        look |= {"vmin": marker.get("cmin"), "vmax": marker.get("cmax")}
    else:
        look = {"c": [read_colour(one) for one in ([given] if isinstance(given, str) else given)]}
    look |= {"depthshade": False} if len(places) == 3 else {}
    shape = choose(SYMBOLS, marker.get("symbol", "circle"), "marker symbol")
    size = (np.asarray(marker.get("size", 6), np.float64) * POINTS_A_PIXEL) ** 2
    look |= {"s": size, "marker": shape, "alpha": marker.get("opacity"), "linewidths": 0}
    drawn: Artist = axes.scatter(*places, **look, rasterized=len(places[0]) > MANY_SHAPES)
    if is_measured and marker.get("showscale"):
        _add_colour_bar(axes, drawn, marker.get("colorbar", {}))
    return drawn


KINDS = {"scatter": _draw_scatter, "bar": _draw_bar, "heatmap": _draw_heatmap, "scatter3d": _draw_points_in_space}


def _find_edges(middles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where cells end, half-way between their middles."""
    if len(middles) < 2:
        return np.asarray([middles[0] - 0.5, middles[0] + 0.5])
    between = (middles[1:] + middles[:-1]) / 2
    return np.concatenate([[2 * middles[0] - between[0]], between, [2 * middles[-1] - between[-1]]])


def _read_colour_scale(trace: Mapping[str, Any]) -> Colormap:
    given = trace.get("colorscale", "Viridis")
    scale: Colormap
    if isinstance(given, str):
        scale = colormaps[choose(SCALES, given, "colorscale")]
    else:
        scale = LinearSegmentedColormap.from_list(
            "given", [(float(place), read_colour(colour)) for place, colour in given]
        )
    return (scale.reversed() if trace.get("reversescale") else scale).with_extremes(bad="#c3cad3")


def _add_colour_bar(axes: Any, drawn: Any, settings: Mapping[str, Any]) -> None:
    place = {"location": "bottom", "pad": 0.04} if settings.get("orientation") == "h" else {"pad": 0.02}
    bar = axes.figure.colorbar(drawn, ax=axes, fraction=0.05, aspect=30, shrink=0.9, **place)
    bar.outline.set_visible(False)
    bar.solids.set_alpha(1)  # points may be seen through, their scale not
    bar.set_label(typeset(read_title(settings)))
