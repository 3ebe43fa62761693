"""Plotly's axes with matplotlib: panels by their domains, ticks, and the notes and shapes that stand on them."""

from collections.abc import Mapping, Sequence
from itertools import chain
from math import isfinite
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Sheet
from matplotlib.figure import SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogFormatter, MaxNLocator, MultipleLocator
from matplotlib.transforms import blended_transform_factory

from deepex.report.paper.plotly_values import (
    choose,
    find_axis,
    find_domain,
    find_pair,
    find_values,
    make_plain,
    read_colour,
    read_title,
    typeset,
)
from deepex.report.paper.traces import CHARACTER_INCHES, DASHES, POINTS_A_PIXEL, Panel, Scale, label_bars
from deepex.report.style import INK, Figure

ANCHORS = {"left": "left", "center": "center", "right": "right", "top": "top", "middle": "center", "bottom": "bottom"}
AXIS_TYPES = {"-": "linear", "linear": "linear", "log": "log", "category": "linear"}


def make_panels(traces: Sequence[Figure], layout: Figure, target: Sheet | SubFigure) -> dict[tuple[str, str], Panel]:
    """The pairs of axes that traces use, laid out by their domains as a grid, so that lengths keep their ratios."""
    pairs = list(dict.fromkeys(find_pair(trace) for trace in traces)) or [("x", "y")]
    if ("scene", "scene") in pairs:
        if len(pairs) > 1:
            raise ValueError("a scatter3d trace can't be drawn for a paper beside traces of two dimensions.")
        scale = Scale({}, {})
        return {pairs[0]: Panel(target.add_subplot(projection="3d"), scale, scale, ((0, 1), (0, 1)))}
    domains = [(find_domain(layout, x), find_domain(layout, y)) for x, y in pairs]
    columns, widths = _divide([x for x, _ in domains])
    rows, heights = _divide([[1 - y[1], 1 - y[0]] for _, y in domains])
    grid = target.add_gridspec(len(heights), len(widths), width_ratios=widths, height_ratios=heights)
    first: dict[str, Any] = {}
    panels = {}
    for (x, y), domain, column, row in zip(pairs, domains, columns, rows, strict=True):
        keys = [find_axis(layout, name).get("matches") or name for name in (x, y)]
        axes = target.add_subplot(grid[row, column], sharex=first.get(keys[0]), sharey=first.get(keys[1]))
        first |= {key: axes for key in keys if key not in first}
        scales = [Scale(find_axis(layout, name), _find_names(traces, name, find_axis(layout, name))) for name in (x, y)]
        panels[x, y] = Panel(axes, scales[0], scales[1], domain)
    for trace in traces:
        panels[find_pair(trace)].num_bars += trace.get("type") == "bar" and trace.get("visible", True) is True
    return panels


def _divide(domains: Sequence[Sequence[float]]) -> tuple[list[slice], list[float]]:
    """Which cells of a grid each domain covers, and how long the cells are."""
    starts = sorted({domain[0] for domain in domains})
    ends = [min(e for s, e in domains if s == start) for start in starts]
    lengths = [min(end, *starts[n + 1 : n + 2], 1.0) - starts[n] for n, end in enumerate(ends)]
    return [slice(starts.index(s), sum(start < e for start in starts)) for s, e in domains], lengths


def _find_names(traces: Sequence[Figure], axis: str, settings: Mapping[str, Any]) -> dict[Any, int]:
    """Where the names on an axis stand; nothing for an axis of numbers."""
    used = [t for t in traces if axis in find_pair(t) and t.get("visible", True) is True]
    values = list(chain.from_iterable(make_plain(find_values(trace, axis[0])) for trace in used))
    if settings.get("type", "-") != "category" and not any(isinstance(value, str) for value in values):
        return {}
    orders = {"trace": None, "array": None, "category ascending": False, "category descending": True}
    backwards = choose(orders, settings.get("categoryorder", "trace"), "categoryorder")
    known = [value for value in values if value is not None]
    if backwards is not None:
        known = sorted(known, reverse=backwards)
    return {name: place for place, name in enumerate(dict.fromkeys([*settings.get("categoryarray", []), *known]))}


def finish_panels(panels: Mapping[tuple[str, str], Panel], layout: Figure, target: Sheet | SubFigure) -> None:
    """Axes, then what stands on them."""
    for shape in layout.get("shapes", []):
        _draw_shape(panels, shape)
    inches = (target.bbox.width / target.dpi, target.bbox.height / target.dpi)
    finished: set[str] = set()
    for pair, panel in panels.items():
        if pair == ("scene", "scene"):
            _finish_space(panel.axes, layout.get("scene", {}))
            continue
        room = [0.8 * (domain[1] - domain[0]) * length for domain, length in zip(panel.domains, inches, strict=True)]
        for name, scale, length in zip(pair, (panel.x, panel.y), room, strict=True):
            if name in finished:  # a panel beside shows the axis already
                panel.axes.tick_params(axis=name[0], which="both", length=0, labelleft=False, labelbottom=False)
            else:
                _set_axis(panel.axes, name[0], scale, length)
            shows_grid = scale.settings.get("showgrid", True) and not scale.places
            panel.axes.grid(visible=shows_grid, axis=name[0])
            finished.add(name)
        label_bars(panel, room)
    for note in layout.get("annotations", []):
        _annotate(panels, note)


def _finish_space(axes: Any, scene: Mapping[str, Any]) -> None:
    for letter in "xyz":
        axis = getattr(axes, f"{letter}axis")
        axis.set_pane_color((1, 1, 1, 0))
        axis.set_major_locator(MaxNLocator(4, prune="lower" if letter == "y" else None))
        axis.set_tick_params(pad=2 if letter == "z" else -3)
        axis.labelpad = 0 if letter == "z" else -6
        axes.set(**{f"{letter}label": typeset(read_title(scene.get(f"{letter}axis", {})))})
    axes.set_box_aspect((1, 1, 1), zoom=0.98)


def _set_axis(axes: Any, letter: str, scale: Scale, length_inches: float) -> None:
    settings = scale.settings
    if settings.get("overlaying"):
        raise ValueError("an axis overlaying another can't be drawn for a paper: give it a domain of its own.")
    axes.set(**{f"{letter}scale": choose(AXIS_TYPES, settings.get("type", "-"), "type of axis")})
    axes.set(**{f"{letter}label": typeset(read_title(settings))})
    if scale.places:
        axes.set(**{f"{letter}lim": (-0.5, len(scale.places) - 0.5)})
    if settings.get("range") is not None:
        ends = [end if end is None or not scale.is_log else 10.0**end for end in settings["range"]]
        if all(end is None or isfinite(end) for end in ends):  # else nothing that is shown is a number
            axes.set(**{f"{letter}lim": ends})
    elif settings.get("rangemode", "normal") != "normal" and not scale.is_log:
        low, high = getattr(axes, f"get_{letter}lim")()
        least, most = getattr(axes.dataLim, f"interval{letter}")
        axes.set(**{f"{letter}lim": (0 if least >= 0 else low, 0 if most <= 0 else high)})
    axis = getattr(axes, f"{letter}axis")
    limits = getattr(axes, f"get_{letter}lim")()
    _set_ticks(axis, letter, scale, length_inches)
    axes.set(**{f"{letter}lim": limits})  # matplotlib widens an axis to show all ticks, plotly doesn't
    if settings.get("autorange") == "reversed":
        axis.set_inverted(True)


def _set_ticks(axis: Any, letter: str, scale: Scale, length_inches: float) -> None:
    settings = scale.settings
    form, suffix = str(settings.get("tickformat", "")).replace("d", ".0f"), str(settings.get("ticksuffix", ""))
    values = settings.get("tickvals")

    def write(value: float, _: Any = None) -> str:
        return format(value, form or "g") + suffix  # d3's language of formats is Python's, but for whole numbers

    if values is None and scale.places:
        values = list(scale.places)[:: max(1, len(scale.places) // 40)]
    if values is not None:
        texts = settings.get("ticktext")
        texts = [write(v) if isinstance(v, int | float) else v for v in values] if texts is None else texts
        look = _fit_ticks(letter, settings.get("tickangle"), [str(text) for text in texts], length_inches)
        axis.set_ticks(scale.place(values), labels=[typeset(text) for text in texts], **look)
        axis.minorticks_off()
    elif scale.is_log:
        low, high = sorted(axis.get_view_interval())
        if low >= 1e-3 and high <= 1e5:
            axis.set_major_formatter(LogFormatter())
            axis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))
    elif isinstance(settings.get("dtick"), int | float):
        axis.set_major_locator(MultipleLocator(settings["dtick"]))
    elif settings.get("nticks"):
        axis.set_major_locator(MaxNLocator(max(settings["nticks"] - 1, 1), steps=[1, 2, 2.5, 5, 10]))
    if values is None and (form or suffix):
        axis.set_major_formatter(write)
    if settings.get("showticklabels") is False:
        axis.axes.tick_params(axis=letter, which="both", labelleft=False, labelbottom=False)


def _fit_ticks(letter: str, angle: float | None, texts: Sequence[str], length_inches: float) -> dict[str, Any]:
    """Turn labels that would touch their neighbours, and make them smaller where even that is not enough."""
    room = length_inches / max(len(texts), 1)
    if letter == "x" and angle is None and max(map(len, texts), default=0) * CHARACTER_INCHES > 0.95 * room:
        angle = -40
    if angle and room < 0.12:
        angle = -90
    look: dict[str, Any] = {}
    if letter == "x" and angle:
        side = "right" if angle < 0 else "left"
        look = {"rotation": -angle, "rotation_mode": "anchor", "ha": side, "va": "center"}
    return look | ({"fontsize": max(4.0, min(7.5, 72 * room * 0.9))} if letter == "y" or angle else {})


def _annotate(panels: Mapping[tuple[str, str], Panel], note: Figure) -> None:
    refs = note.get("xref", "x"), note.get("yref", "y")
    panel = _find_panel(panels, refs, (note["x"], note["y"]))
    x, y = (_locate(panel, n, refs[n], note["xy"[n]], is_exponent=True) for n in (0, 1))
    anchors = []
    for name, ref, letter, thirds in (("xanchor", refs[0], "x", "left center right"),
                                      ("yanchor", refs[1], "y", "bottom middle top")):  # fmt: skip
        third = int(np.clip(3 * note[letter], 0, 2)) if ref == "paper" else 1
        given = note.get(name, "auto")
        anchors.append(choose(ANCHORS, thirds.split()[third] if given == "auto" else given, name))
    shift = np.asarray([note.get("xshift", 0), note.get("yshift", 0)]) * POINTS_A_PIXEL
    font, arrow = note.get("font", {}), None
    if note.get("showarrow", True):
        shift = shift + np.asarray([note.get("ax", -10), -note.get("ay", -30)]) * POINTS_A_PIXEL
        arrow = {
            "arrowstyle": "-|>",
            "linewidth": 0.6,
            "color": read_colour(note.get("arrowcolor", INK)),
            "shrinkB": 1,
        }
    look: dict[str, Any] = {"color": read_colour(font.get("color", INK)), "ha": anchors[0], "va": anchors[1]}
    look |= {"fontsize": font.get("size", 12) * POINTS_A_PIXEL, "arrowprops": arrow, "annotation_clip": False}
    look |= {"xycoords": (x[1], y[1]), "textcoords": "offset points"}
    panel.axes.annotate(typeset(note["text"]), (x[0], y[0]), tuple(shift), **look)


def _draw_shape(panels: Mapping[tuple[str, str], Panel], shape: Figure) -> None:
    kind = choose({"line": "line", "rect": "rect"}, shape.get("type", "rect"), "shape")
    refs = shape.get("xref", "x"), shape.get("yref", "y")
    panel = _find_panel(panels, refs, (shape["x0"], shape["y0"]))
    axes, line = panel.axes, shape.get("line", {})
    (x0, along_x), (x1, _) = (_locate(panel, 0, refs[0], shape[end], is_exponent=False) for end in ("x0", "x1"))
    (y0, along_y), (y1, _) = (_locate(panel, 1, refs[1], shape[end], is_exponent=False) for end in ("y0", "y1"))
    # As on the page, an axis without a range reaches as far as its shapes.
    axes.update_datalim([(x0, y0), (x1, y1)], updatex=along_x == "data", updatey=along_y == "data")
    to_sheet = {"data": axes.transData, "axes fraction": axes.transAxes}
    look: dict[str, Any] = {
        "transform": blended_transform_factory(to_sheet[along_x], to_sheet[along_y]),
        "linestyle": choose(DASHES, line.get("dash", "solid"), "dash"),
        "linewidth": line.get("width", 2) * POINTS_A_PIXEL,
        "alpha": shape.get("opacity"),
        "zorder": 0.6 if shape.get("layer") == "below" else 2.5,
    }
    ink = read_colour(line.get("color", INK))
    if kind == "line":
        axes.add_artist(Line2D([x0, x1], [y0, y1], color=ink, **look))
    else:
        face = read_colour(shape.get("fillcolor", "rgba(0,0,0,0)"))
        axes.add_artist(Rectangle((x0, y0), x1 - x0, y1 - y0, facecolor=face, edgecolor=ink, **look))


def _find_panel(panels: Mapping[tuple[str, str], Panel], refs: tuple[str, str], at: tuple[Any, Any]) -> Panel:
    """The panel whose axes are meant; of several, the one nearest to a place on the paper."""

    def distance(panel: Panel) -> float:
        places = [(at[n], *panel.domains[n]) for n in (0, 1) if refs[n] == "paper"]
        return float(sum(max(low - place, place - high, 0) for place, low, high in places))

    names = [None if ref == "paper" else ref.split()[0] for ref in refs]
    fitting = [panel for (x, y), panel in panels.items() if names[0] in (None, x) and names[1] in (None, y)]
    if not fitting:
        raise ValueError(f"nothing is drawn on the axes {refs[0]} and {refs[1]}, which a note or shape refers to.")
    return min(fitting, key=distance)


def _locate(panel: Panel, number: int, ref: str, value: Any, *, is_exponent: bool) -> tuple[float, str]:
    """A place along an axis, and in which coordinates. On log axes plotly gives notes, not shapes, as exponents."""
    if ref == "paper":
        low, high = panel.domains[number]
        return (value - low) / (high - low), "axes fraction"
    if ref.endswith(" domain"):
        return float(value), "axes fraction"
    scale = (panel.x, panel.y)[number]
    place = float(scale.place([value])[0])
    return (10.0**place if scale.is_log and is_exponent else place), "data"
