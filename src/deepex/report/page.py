"""The page of a run: what was found, what bounds it, curves, phases, pictures and the record, in one file.

It puts sections together; it measures nothing and knows no task.
"""

import json
import re
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from plotly.io import to_json
from plotly.offline import get_plotlyjs

from deepex.record.folder import RunFolder
from deepex.report.diagnosis import show_diagnosis
from deepex.report.figures import (
    MAX_BARS,
    Figure,
    confusion,
    loss_colours,
    loss_curve,
    metric_curve,
    phase_bars,
    point_cloud,
    prediction,
)
from deepex.report.material import Material, read_material
from deepex.report.pictures import image_grid
from deepex.report.sentences import find_sentences, say_count
from deepex.report.tables import key_figures, phase_table, record_tables
from deepex.train.task import ImageGrid, Matrix, Picture, PointCloud, Scatter


def write_report(folder: RunFolder) -> Path:
    """Write a run's report.html, and the task's findings into its summary.json.

    Arguments:
        folder: the directory of a run, finished or not.
    """
    material = read_material(folder)
    if material.summary is not None and material.illustration is not None:
        folder.write_json("summary.json", {**material.summary, "findings": dict(material.illustration.findings)})
    return folder.write_text(folder.page.name, build_page(material))


def build_page(material: Material) -> str:
    """The whole page as text."""
    recipe, record = material.recipe, material.record
    title = f"{recipe.task.name} on {say_count(recipe.world.ranks, 'rank')}, sync {recipe.sync}"
    date = str(record.get("started", "")).replace("T", " ").replace("+00:00", " UTC")
    sentences = "".join(f"<p>{_unbroken(escape(sentence))}</p>" for sentence in find_sentences(material))
    sections = []
    if material.rows:
        sections = [_diagnosis(material), _curves(material), _phases(material), *_pictures(material)]
    return Template(_asset("page.html")).substitute(
        title=escape(title),
        date=escape(date),
        run=escape(material.folder.path.resolve().name),
        sentences=sentences,
        tiles=key_figures(material),
        sections="\n".join(sections),
        record=record_tables(material),
        style=_asset("page.css"),
        plotly=get_plotlyjs(),
        script=_asset("page.js"),
    )


def _diagnosis(material: Material) -> str:
    if material.diagnosis is None:
        return ""
    caption = (
        "Where a step's time goes by cause, judged by the phases of all ranks. Gains are predictions, in samples a "
        "second; whether a change also learns as well, a run tells."
    )
    return _section("Why it is not faster", caption, _unbroken(show_diagnosis(material.diagnosis)))


def _curves(material: Material) -> str:
    figures = {
        "loss-epoch": loss_curve(material.rows, "epoch"),
        "loss-seconds": loss_curve(material.rows, "seconds"),
        "metric-epoch": metric_curve(material, "epoch"),
        "metric-seconds": metric_curve(material, "seconds"),
    }
    cells = "".join(_figure(name, figure) for name, figure in figures.items())
    caption = (
        f"The loss on training samples and {material.metric} on held-out samples, each against epochs and against the "
        "seconds since training began. A point is an epoch; the dashed line is the target."
    )
    return _section("Loss and metric", caption, f'{_legend(material)}<div class="curves">{cells}</div>')


def _legend(material: Material) -> str:
    """The parts of the loss by colour; none for a loss of one part."""
    colours = loss_colours(material.rows)
    entries = (
        f'<span><i class="line" style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in colours.items()
    )
    return f'<p class="legend">{"".join(entries)}</p>' if len(colours) > 1 else ""


def _phases(material: Material) -> str:
    ranks = material.ranks
    shown = (
        f" Drawn are {MAX_BARS} of {len(ranks):,} ranks, from the quickest to the slowest."
        if len(ranks) > MAX_BARS
        else ""
    )
    caption = (
        "A bar is a rank. Blue is computing, warm colours are waiting: for samples (input) or for other ranks (sync). "
        f"Hatched, beside it and on the same scale, is what lies between steps.{shown}"
    )
    return _section("Where the time went", caption, _figure("phases", phase_bars(ranks)) + phase_table(material))


def _pictures(material: Material) -> list[str]:
    if material.illustration is None:
        note = escape(material.why_no_pictures)
        return [f'<section class="note"><p>{note}</p></section>'] if note else []
    return [_picture(number, picture) for number, picture in enumerate(material.illustration.pictures)]


def _picture(number: int, picture: Picture) -> str:
    match picture:
        case ImageGrid():
            content = image_grid(picture)
        case Matrix():
            content = _figure(f"matrix-{number}", confusion(picture))
        case Scatter():
            content = _panels(number, picture)
        case PointCloud():
            content = _points(number, picture)
    return _section(picture.title, picture.caption, content)


def _panels(number: int, scatter: Scatter) -> str:
    cells = "".join(
        f"<div><h3>{escape(panel.name)}</h3>"
        + (f'<p class="caption">{_unbroken(escape(panel.note))}</p>' if panel.note else "")
        + _figure(f"scatter-{number}-{place}", prediction(panel))
        + "</div>"
        for place, panel in enumerate(scatter.panels)
    )
    return f'<div class="panels">{cells}</div>'


def _points(number: int, picture: PointCloud) -> str:
    figure, colourings = point_cloud(picture)
    name = f"points-{number}"
    buttons = "".join(
        f'<button type="button" data-index="{index}" aria-pressed="{str(index == 0).lower()}">'
        f"{escape(c['name'])}</button>"
        for index, c in enumerate(colourings)
    )
    choices = (
        f'<div class="choices" data-for="{name}" role="group" aria-label="colour by"><span>colour by</span>'
        f"{buttons}</div>"
    )
    return choices + _figure(name, figure, colourings)


def _section(title: str, caption: str, content: str) -> str:
    return f'<section><h2>{escape(title)}</h2><p class="caption">{escape(caption)}</p>{content}</section>'


def _figure(name: str, figure: Figure, colourings: list[dict[str, Any]] | None = None) -> str:
    """A place for a figure, and its data; `<` is escaped so that no text of a task can end the script."""
    data = f'{{"figure": {to_json(figure)}, "colourings": {json.dumps(colourings or [])}}}'.replace("<", "\\u003c")
    height = figure["layout"]["height"]
    return (
        f'<div class="figure" id="{name}" style="min-height:{height}px"></div>'
        f'<script type="application/json" data-for="{name}">{data}</script>'
    )


def _unbroken(text: str) -> str:
    """Escaped text in which no line ends between a number and its unit or its sign."""
    return re.sub(r"(?<=\d) (?=%|×|[µm]?s\b|min\b|h\b|[kMG]?B\b)|(?<=&[lg]t;) (?=\d)", "\u00a0", text)


def _asset(name: str) -> str:
    return (resources.files("deepex.report") / name).read_text(encoding="utf-8")
