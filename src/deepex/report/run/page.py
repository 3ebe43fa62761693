"""The page of a run: what was found, what bounds it, curves, phases, pictures and the record, in one file.

It puts sections together; it measures nothing and knows no task.
"""

from html import escape
from pathlib import Path

from deepex.record.folder import RunFolder
from deepex.report.html import Gallery, fill_page, show_section, show_sentences, unbroken
from deepex.report.run.run_data import Material, read_material
from deepex.report.run.sections.diagnosis import show_diagnosis
from deepex.report.run.sections.image_grid import image_grid
from deepex.report.run.sections.pictures import (
    MAX_BARS,
    confusion,
    loss_colours,
    loss_curve,
    metric_curve,
    phase_bars,
    point_cloud,
    prediction,
)
from deepex.report.run.sentences import find_sentences, say_count
from deepex.report.run.tables import key_figures, phase_table, record_tables
from deepex.train.task import ImageGrid, Matrix, Picture, PointCloud, Scatter


def write_report(folder: RunFolder) -> Path:
    """Write a run's report.html, its figures for a paper, and the task's findings into its summary.json.

    Arguments:
        folder: the directory of a run, finished or not.
    """
    material = read_material(folder)
    if material.summary is not None and material.illustration is not None:
        folder.write_json("summary.json", {**material.summary, "findings": dict(material.illustration.findings)})
    gallery = Gallery()
    page = build_page(material, gallery)
    gallery.save(folder.path / "figures")
    return folder.write_text(folder.page.name, page)


def build_page(material: Material, gallery: Gallery) -> str:
    """The whole page as text; its figures are then in the gallery."""
    recipe, record = material.recipe, material.record
    title = f"{recipe.task.name} on {say_count(recipe.world.ranks, 'rank')}, sync {recipe.sync}"
    date = str(record.get("started", "")).replace("T", " ").replace("+00:00", " UTC")
    sections = []
    if material.rows:
        sections = [
            _diagnosis(material),
            _curves(material, gallery),
            _phases(material, gallery),
            *_pictures(material, gallery),
        ]
    return fill_page(
        title=title,
        caption=f"{date} · {material.folder.path.resolve().name}",
        found=show_sentences(find_sentences(material)),
        tiles=key_figures(material),
        sections=sections,
        record=record_tables(material),
    )


def _diagnosis(material: Material) -> str:
    if material.diagnosis is None:
        return ""
    caption = (
        "Where a step's time goes by cause, judged by the phases of all ranks. Gains are predictions, in samples a "
        "second; whether a change also learns as well, a run tells."
    )
    return show_section("Why it is not faster", caption, unbroken(show_diagnosis(material.diagnosis)))


def _curves(material: Material, gallery: Gallery) -> str:
    figures = {
        "loss-epoch": loss_curve(material.rows, "epoch"),
        "loss-seconds": loss_curve(material.rows, "seconds"),
        "metric-epoch": metric_curve(material, "epoch"),
        "metric-seconds": metric_curve(material, "seconds"),
    }
    cells = "".join(gallery.show(name, figure) for name, figure in figures.items())
    caption = (
        f"The loss on training samples and {material.metric} on held-out samples, each against epochs and against the "
        "seconds since training began. A point is an epoch; the dashed line is the target."
    )
    return show_section("Loss and metric", caption, f'{_legend(material)}<div class="curves">{cells}</div>')


def _legend(material: Material) -> str:
    """The parts of the loss by colour; none for a loss of one part."""
    colours = loss_colours(material.rows)
    entries = (
        f'<span><i class="line" style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in colours.items()
    )
    return f'<p class="legend">{"".join(entries)}</p>' if len(colours) > 1 else ""


def _phases(material: Material, gallery: Gallery) -> str:
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
    return show_section(
        "Where the time went", caption, gallery.show("phases", phase_bars(ranks)) + phase_table(material)
    )


def _pictures(material: Material, gallery: Gallery) -> list[str]:
    if material.illustration is None:
        note = escape(material.why_no_pictures)
        return [f'<section class="note"><p>{note}</p></section>'] if note else []
    return [_picture(number, picture, gallery) for number, picture in enumerate(material.illustration.pictures)]


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
