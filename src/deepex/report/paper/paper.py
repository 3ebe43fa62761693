"""The page's figures drawn for a paper: of each a PNG, a PDF and its numbers as CSV.

It knows the part of plotly's language that reports use, and refuses the rest; it knows no run and no study.
"""

import io
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure as Sheet
from matplotlib.figure import SubFigure

from deepex.record.folder import RunFolder
from deepex.report.paper.axes import finish_panels, make_panels
from deepex.report.paper.numbers import write_numbers
from deepex.report.paper.plotly_values import choose, find_domain, find_pair, typeset
from deepex.report.paper.traces import CHARACTER_INCHES, KINDS, POINTS_A_PIXEL
from deepex.report.style import GRID, INK, Figure

# What matplotlib must be told while a figure is drawn and while it is saved: rc_context(LOOK).
LOOK: dict[Any, Any] = {
    "font.family": "DejaVu Sans", "font.size": 8, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK,
    "xtick.color": INK, "ytick.color": INK, "axes.labelsize": 8, "xtick.labelsize": 7.5, "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5, "legend.frameon": False, "legend.handlelength": 1.6, "legend.columnspacing": 0.9,
    "axes.linewidth": 0.6, "xtick.major.width": 0.6, "ytick.major.width": 0.6, "xtick.major.size": 2.5,
    "ytick.major.size": 2.5, "xtick.minor.width": 0.4, "ytick.minor.width": 0.4, "axes.spines.top": False,
    "axes.spines.right": False, "axes.axisbelow": True, "grid.color": GRID, "grid.linewidth": 0.6,
    "legend.handletextpad": 0.6, "hatch.linewidth": 0.7, "pdf.fonttype": 42, "text.usetex": False,
}  # fmt: skip
COLUMN_INCHES, PAGE_INCHES, MAX_INCHES = 3.5, 7.0, 9.0
# Settings that would change a drawing and have none here.
UNDRAWN = ("base", "connectgaps", "offset", "offsetgroup", "stackgroup", "texttemplate", "transforms", "width", "zmid")


def save_figures(figures: Mapping[str, Figure], folder: Path) -> list[Path]:
    """Write NAME.png, NAME.pdf and NAME.csv of each figure into a folder (made if missing), whole or not at all.

    Arguments:
        figures: plotly's data and layout as plain dictionaries, by name.
        folder: where the files go; those of the same names are replaced.
    """
    contents = {f"{name}.{kind}": data for name, figure in figures.items() for kind, data in _encode(figure).items()}
    files = RunFolder(folder)
    with files.writing():
        folder.mkdir(parents=True, exist_ok=True)
    return [files.write_bytes(name, data) for name, data in contents.items()]


def draw_figure(figure: Figure, target: Sheet | SubFigure) -> None:
    """Draw a figure into an empty sheet, or into a part of one, that is laid out as "constrained".

    Arguments:
        figure: plotly's data and layout as plain dictionaries.
        target: where to draw; what is drawn is saved within `rc_context(LOOK)`.
    """
    traces, layout = figure["data"], figure.get("layout", {})
    for trace in traces:
        choose(KINDS, trace.get("type", "scatter"), "trace")
        if refused := [name for name in UNDRAWN if trace.get(name)]:
            raise ValueError(f"a trace with {refused[0]} can't be drawn for a paper.")
    colours = layout.get("colorway") or [f"C{number}" for number in range(10)]
    with rc_context(LOOK):
        panels = make_panels(traces, layout, target)
        handles: dict[str, Artist] = {}
        for number, trace in enumerate(traces):
            if trace.get("visible", True) is not True:
                continue
            colour = colours[number % len(colours)]
            handle = KINDS[trace.get("type", "scatter")](panels[find_pair(trace)], trace, layout, colour)
            if trace.get("name") and trace.get("showlegend", True) and handle is not None:
                handles.setdefault(typeset(trace["name"]), handle)
        finish_panels(panels, layout, target)
        if len(handles) > 1:
            columns = _count_legend_columns(handles, target.bbox.width / target.dpi)
            names = list(chain.from_iterable(list(handles)[start::columns] for start in range(columns)))
            target.legend([handles[name] for name in names], names, loc="outside upper center", ncols=columns)


def _encode(figure: Figure) -> dict[str, bytes]:
    """A figure's files by their suffix."""
    with rc_context(LOOK):
        sheet = Sheet(figsize=_find_size(figure), dpi=300, layout="constrained")
        draw_figure(figure, sheet)
        png, pdf = io.BytesIO(), io.BytesIO()
        # The canvases themselves, since savefig draws all twice; the places found for the PNG serve the PDF.
        to_png: Any = FigureCanvasAgg(sheet).print_png
        to_png(png, pil_kwargs={"compress_level": 3})
        sheet.set_layout_engine("none")
        to_pdf: Any = FigureCanvasPdf(sheet).print_pdf
        to_pdf(pdf, metadata={"CreationDate": None})
    return {"png": png.getvalue(), "pdf": pdf.getvalue(), "csv": write_numbers(figure).encode()}


def _find_size(figure: Figure) -> tuple[float, float]:
    traces, layout = figure["data"], figure.get("layout", {})
    is_wide = any(trace.get("type") == "heatmap" or trace.get("orientation") == "h" for trace in traces)
    has_columns = len({tuple(find_domain(layout, find_pair(trace)[0])) for trace in traces}) > 1
    usual = PAGE_INCHES if is_wide or has_columns else COLUMN_INCHES
    width = float((layout.get("meta") or {}).get("paper_width_inches", usual))
    height = layout.get("height", 270) * POINTS_A_PIXEL / 72
    if any(trace.get("type") == "scatter3d" for trace in traces):
        height = min(height, 0.95 * width)
    named = [trace["name"] for trace in traces if trace.get("name") and trace.get("showlegend", True)]
    names = list(dict.fromkeys(named))
    rows = -(-len(names) // _count_legend_columns(names, width)) if len(names) > 1 else 0
    return width, min(height + 0.16 * rows, MAX_INCHES)


def _count_legend_columns(names: Iterable[str], width_inches: float) -> int:
    """How many columns of names fit side by side."""
    lengths = [0.34 + CHARACTER_INCHES * len(name) for name in names]
    fitting = (n for n in range(len(lengths), 1, -1) if sum(max(lengths[k::n]) for k in range(n)) <= width_inches)
    return next(fitting, 1)
