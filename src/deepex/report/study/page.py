"""The page of one study or of several: what was found, speed beside learning, phases, limits, and the record.

It puts sections together from what a study found; it starts nothing and judges nothing.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from deepex.record.folder import RunFolder
from deepex.record.phases import STEP_PHASES
from deepex.record.study_rows import StudyOutcome
from deepex.report.html import Gallery, fill_page, show_section, show_sentences
from deepex.report.study import figures as figures
from deepex.report.study.record import find_warnings, show_record, show_warnings
from deepex.report.study.study_set import StudySet
from deepex.report.study.tables import learning_table, show_limits, show_tiles, show_verdicts, speed_table
from deepex.report.style import PHASE_COLOURS


def write_study_report(path: Path, outcome: StudyOutcome) -> Path:
    """Write a study's report.html, its figures and its summary on one sheet of paper; returns the page's path.

    Arguments:
        path: the directory of a study, finished or not.
        outcome: what its runs show.
    """
    return _write(StudySet([outcome]), path / "report.html", path / "figures", path / "scaling_summary.pdf")


def write_comparison(outcomes: Sequence[StudyOutcome], out: Path) -> Path:
    """Write one page of one study or several into `out`; its figures and its summary stand beside it."""
    return _write(StudySet(outcomes), out, out.with_suffix(".figures"), out.with_suffix(".pdf"))


def _write(studies: StudySet, page: Path, folder: Path, sheet: Path) -> Path:
    gallery = Gallery()
    text = build_study_page(studies, gallery)
    gallery.save(folder)
    if gallery.figures:
        from deepex.report.study.summary_sheet import write_summary_sheet  # as late as the gallery's own import

        write_summary_sheet(studies, sheet)
    return RunFolder(page.parent).write_text(page.name, text)


def build_study_page(studies: StudySet, gallery: Gallery) -> str:
    """The whole page as text; its figures are then in the gallery."""
    ranks = ", ".join(str(number) for number in sorted({cell.ranks for cell in studies.cells}))
    started = min((study.started for study in studies.studies if study.started), default="not begun")
    date = started.replace("T", " ").replace("+00:00", " UTC")
    names = " and ".join(study.study for study in studies.studies)
    sentences = [sentence for study in studies.studies for sentence in study.findings]
    sections = [show_warnings(find_warnings(studies))]
    if any(cell.runs for cell in studies.cells):
        sections += [make(studies, gallery) for make in (_speed, _rates, _phases, _curves, _limits, _verdicts)]
    return fill_page(
        title=f"Scaling of {studies.task} on {ranks} ranks",
        caption=f"{date} · {names}",
        found=show_sentences(sentences),
        tiles=show_tiles(studies),
        sections=sections,
        record=show_record(studies),
    )


def _speed(studies: StudySet, gallery: Gallery) -> str:
    base = studies.studies[0].base_ranks
    caption = (
        f"Left, how much faster an epoch goes than on {base:,} rank{'s' * (base > 1)}: S_p = T_s/T_p, with T the "
        "median seconds of an epoch, evaluation included. Right, how much sooner the same quality is reached: S_L = "
        "T_s N_s/(T_p N_p), with N the epochs to it. Figures are geometric means over the runs of a cell; bars and "
        "brackets are 95 % confidence intervals (Student's t of the logarithms, Welch's for ratios); one that leaves "
        "the figure is cut off there. Click a name to hide its line."
    )
    speed, learning = figures.speedup(studies), figures.learning_speedup(studies)
    shown = gallery.show("speedup", *speed, "axes"), gallery.show("learning-speedup", *learning, "to")
    return show_section("Speed is not learning", caption, _side_by_side(*shown) + learning_table(studies))


def _rates(studies: StudySet, gallery: Gallery) -> str:
    caption = (
        "Parallel efficiency is S_p divided by how many times as many ranks there are, where each has as many cores. "
        "GFLOP/s are of forward and backward; the share of peak is against a matrix product on the same "
        "cores."
    )
    shown = (
        gallery.show("efficiency", figures.efficiency(studies)),
        gallery.show("epoch-seconds", figures.epoch_seconds(studies)),
    )
    return show_section("How fast", caption, _side_by_side(*shown) + speed_table(studies))


def _phases(studies: StudySet, gallery: Gallery) -> str:
    caption = (
        "The steps of an epoch by phase, the mean over ranks, epochs and runs: in seconds, and as shares of the whole. "
        "Blue is computing; warm colours are waiting, for samples (input) or for other ranks (sync)."
    )
    shown = (
        gallery.show("phases-seconds", figures.phases(studies, "seconds")),
        gallery.show("phases-share", figures.phases(studies, "share")),
    )
    return show_section("Where the time goes", caption, _phase_legend() + _side_by_side(*shown))


def _curves(studies: StudySet, gallery: Gallery) -> str:
    caption = (
        f"{studies.metric} on held-out samples of every run, against epochs and against seconds. Dashed are the two "
        f"cut-offs, {studies.say_cutoff(0)} and {studies.say_cutoff(1)}."
    )
    shown = (
        gallery.show("quality-epochs", figures.quality(studies, "epoch")),
        gallery.show("quality-seconds", figures.quality(studies, "seconds")),
    )
    return show_section("Curves of learning", caption, _side_by_side(*shown))


def _limits(studies: StudySet, gallery: Gallery) -> str:
    caption = (
        "Where communication catches up with computing, and where the noise of gradients ends what larger batches "
        "bring, by the squares of local and mean gradients. Both assume that nothing else changes, the learning rate "
        "above all. Noise by weights, of strategies that share no gradients, is how far replicas went apart between "
        "syncs: it says how noise grows, and not where it ends learning."
    )
    noise = figures.noise(studies)
    shown = [gallery.show("noise", noise)] if noise is not None else []
    shown.append(gallery.show("throughput", figures.throughput(studies)))
    return show_section("What limits it", caption, show_limits(studies) + _side_by_side(*shown))


def _verdicts(studies: StudySet, gallery: Gallery) -> str:
    caption = "By the phases of all its ranks, from its first run."
    return show_section("Why each cell is not faster", caption, show_verdicts(studies))


def _side_by_side(*shown: str) -> str:
    return f'<div class="curves">{"".join(f"<div>{each}</div>" for each in shown)}</div>'


def _phase_legend() -> str:
    names = "".join(
        f'<span><i class="swatch" style="background:{PHASE_COLOURS[phase]}"></i>{escape(phase)}</span>'
        for phase in STEP_PHASES
    )
    return f'<p class="legend">{names}</p>'
