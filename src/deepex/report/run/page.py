"""The page of a run: what was found, what bounds it, curves, phases, pictures and the record, in one file.

It puts sections together; it measures nothing and knows no task.
"""

from pathlib import Path

from deepex.record.folder import RunFolder
from deepex.report.html import Gallery, fill_page, show_sentences
from deepex.report.run.run_data import RunData, read_run
from deepex.report.run.sections import SECTIONS
from deepex.report.run.sentences import find_sentences
from deepex.report.run.tables import key_figures, record_tables
from deepex.text import say_plural


def write_report(folder: RunFolder, out: Path | None = None) -> Path:
    """Write a run's report.html and its figures for a paper; nothing of its record changes.

    Arguments:
        folder: the directory of a run, finished or not.
        out: another place for the page; its figures then stand beside it.
    """
    data = read_run(folder)
    gallery = Gallery()
    page = build_page(data, gallery)
    gallery.save(folder.path / "figures" if out is None else out.with_suffix(".figures"))
    place = folder.page if out is None else out
    return RunFolder(place.parent).write_text(place.name, page)


def build_page(data: RunData, gallery: Gallery) -> str:
    """The whole page as text; its figures are then in the gallery."""
    recipe, record = data.recipe, data.record
    title = f"{recipe.task} on {say_plural(recipe.num_ranks, 'rank')}, sync {recipe.sync}"
    date = record.started.replace("T", " ").replace("+00:00", " UTC")
    return fill_page(
        title=title,
        caption=f"{date} · {data.folder.path.resolve().name}",
        found=show_sentences(find_sentences(data)),
        tiles=key_figures(data),
        sections=[show(data, gallery) for show in SECTIONS] if data.rows else [],
        record=record_tables(data),
    )
