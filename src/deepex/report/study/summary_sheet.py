"""The scaling summary: one sheet of paper for a proposal, a PDF with vector figures. It draws what a StudySet holds."""

import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure as Sheet
from matplotlib.figure import SubFigure

from deepex.record.folder import RunFolder
from deepex.report.paper.paper import LOOK, draw_figure
from deepex.report.study import figures as figures
from deepex.report.study.record import find_warnings, say_hardware, say_software
from deepex.report.study.study_set import PlacedCell, StudySet
from deepex.report.study.tables import say_estimate
from deepex.report.style import FAINT, GOAL, GRID, INK, Figure
from deepex.text import say_figure, say_share

WIDTH, HEIGHT = 8.27, 11.69  # inches: A4, which fits onto a letter sheet too
MARGIN = 0.6
BODY, SMALL = (9.5, 0.168, 104), (7.5, 0.132, 124)  # points, inches a line, letters a line
MOST_ROWS = 12
HEADS = ("", "s an epoch", "S_p", "efficiency", "in sync", "epochs", "S_L", "core-hours")

Text = tuple[str, tuple[float, float, int], str]


def write_summary_sheet(studies: StudySet, path: Path) -> Path:
    """Write the sheet, whole or not at all."""
    content = io.BytesIO()
    with rc_context(LOOK):
        sheet = _draw_sheet(studies)
        to_pdf: Any = FigureCanvasPdf(sheet).print_pdf
        to_pdf(content, metadata={"Title": f"Scaling summary: {studies.task}", "CreationDate": None})
    return RunFolder(path.parent).write_bytes(path.name, content.getvalue())


def _draw_sheet(studies: StudySet) -> Sheet:
    """Head, four figures, table and foot, each as high as it needs; the figures take what is left."""
    head = [(sentence, BODY, INK) for study in studies.studies[:2] for sentence in study.findings]
    foot = _foot(studies)
    rows = [cell for cell in studies.cells if cell.runs]
    heights = [0.85 + _height(head), 0.0, 0.3 + 0.19 * min(len(rows), MOST_ROWS), _height(foot) + 0.5]
    heights[1] = max(HEIGHT / 3, HEIGHT - sum(heights))
    sheet = Sheet(figsize=(WIDTH, HEIGHT), dpi=100, layout="constrained")
    parts: Any = sheet.subfigures(4, 1, height_ratios=heights)
    _write_head(parts[0], studies, head, heights[0])
    places: Any = _within_margins(parts[1]).subfigures(2, 2)
    for place, figure in zip(places.ravel(), _figures(studies), strict=True):
        draw_figure(figure, place)
    _write_table(_within_margins(parts[2]), studies, rows)
    _write(parts[3], foot, heights[3], heights[3] - 0.1)
    return sheet


def _within_margins(part: SubFigure) -> SubFigure:
    columns: Any = part.subfigures(1, 3, width_ratios=[MARGIN, WIDTH - 2 * MARGIN, MARGIN])
    middle: SubFigure = columns[1]
    return middle


def _figures(studies: StudySet) -> tuple[Figure, ...]:
    """Speed beside learning, efficiency beside phases."""
    learning, choices = figures.learning_speedup(studies)
    learning["layout"]["yaxis"]["title"]["text"] = f"S<sub>L</sub> to {choices[0]['name']}"
    return figures.speedup(studies)[0], learning, figures.efficiency(studies), figures.phases(studies, "share")


def _write_head(part: SubFigure, studies: StudySet, head: Sequence[Text], height: float) -> None:
    date = min((study.started for study in studies.studies if study.started), default="")[:10]
    names = ", ".join(study.study for study in studies.studies)
    left, top = MARGIN / WIDTH, 1 - 0.42 / height
    part.text(left, top, f"Scaling of {studies.task}", size=16, weight="bold", va="center")
    part.text(1 - left, top, f"{date}   {names}", size=8, color=FAINT, va="center", ha="right")
    _write(part, head, height, height - 0.75)


def _foot(studies: StudySet) -> list[Text]:
    """Warnings, how figures are meant, and what was run where."""
    base = studies.studies[0].base_ranks
    meant = (
        f"T: median seconds of an epoch, evaluation included. S_p = T_s/T_p against {base} rank{'s' * (base > 1)}; "
        "efficiency = S_p by the ratio of ranks; S_L = T_s N_s/(T_p N_p), with N the epochs to "
        f"{studies.say_cutoff(-1)}. Geometric means over {len(studies.studies[0].seeds)} runs a cell; brackets and "
        "bars: 95 % confidence intervals."
    )
    texts: list[Text] = [(warning, SMALL, GOAL) for warning in find_warnings(studies)[:4]]
    texts.append((meant, SMALL, FAINT))
    texts += [(say_hardware(each), SMALL, FAINT) for each in studies.environments[:3]]
    texts += [(say_software(each), SMALL, FAINT) for each in studies.environments[:2]]
    texts += [(study.command, SMALL, FAINT) for study in studies.studies[:2]]
    return texts


def _write_table(part: SubFigure, studies: StudySet, rows: Sequence[PlacedCell]) -> None:
    axes = part.add_subplot()
    axes.set_axis_off()
    table = axes.table(
        cellText=[_values(studies, cell) for cell in rows[:MOST_ROWS]],
        colLabels=HEADS,
        colWidths=[0.2, 0.17, 0.17, 0.09, 0.06, 0.06, 0.17, 0.08],
        loc="upper center",
        edges="horizontal",
        cellLoc="right",
    )
    table.auto_set_font_size(False)
    table.set_fontsize(6.8)
    for (row, column), box in table.get_celld().items():
        box.set_edgecolor(GRID)
        box.set_height(0.19 / (0.3 + 0.19 * min(len(rows), MOST_ROWS)))
        shared = row > 0 and rows[row - 1].oversubscribed
        box.get_text().set_color(GOAL if shared else FAINT if row == 0 else INK)
        if column == 0:
            box.get_text().set_horizontalalignment("left")


def _values(studies: StudySet, cell: PlacedCell) -> list[str]:
    last = cell.cutoffs[-1]
    efficiency = "cores shared" if cell.oversubscribed else ""
    if cell.efficiency is not None:
        efficiency = f"{100 * cell.efficiency.value:.0f} %"
    return [
        studies.short_name(cell),
        say_estimate(cell.epoch_seconds),
        say_estimate(cell.speedup),
        efficiency,
        say_share(cell.phase_shares["sync"]),
        "" if last.epochs is None else say_figure(last.epochs.value),
        "not reached" if last.speedup is None else say_estimate(last.speedup),
        "" if last.core_hours is None else f"{last.core_hours.value:.3g}",
    ]


def _height(texts: Sequence[Text]) -> float:
    """Inches that texts take."""
    return sum(0.06 + inches * len(textwrap.wrap(text, letters)) for text, (_, inches, letters), _ in texts)


def _write(part: SubFigure, texts: Sequence[Text], height: float, top: float) -> None:
    """Texts below each other, from `top` inches above the part's lower end."""
    for text, (points, inches, letters), colour in texts:
        lines = textwrap.wrap(text, letters)
        for line in lines:
            part.text(MARGIN / WIDTH, top / height, line, size=points, color=colour, va="top", parse_math=False)
            top -= inches
        top -= 0.06
