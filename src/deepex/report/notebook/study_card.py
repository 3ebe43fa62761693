"""A study as a card for the output of a cell: the table of its runs while they go on, then of its cells."""

from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from deepex.record.folder import RunFolder
from deepex.record.study_rows import RunState, StudyOutcome, read_states
from deepex.report.html import typeset
from deepex.report.notebook import elements as html
from deepex.report.study.study_set import PlacedCell, StudySet
from deepex.report.study.tables import say_efficiency, say_estimate, say_speedup
from deepex.report.terminal.study_view import tell_progress, tell_run

COLOURS = {"done": html.GOOD, "running": html.BUSY, "stopped": html.OPEN, "failed": html.BAD}


def draw_states(path: Path) -> str:
    """The runs of a study that goes on, a row a cell and a column a seed, as HTML."""
    states = read_states(RunFolder(path))
    title = html.show_title(f"study {path.name}", tell_progress(states) if states else "", "running", html.BUSY)
    done = sum(state.state in ("done", "failed") for state in states)
    seeds = list(dict.fromkeys(state.seed for state in states))
    rows = []
    for _, runs in groupby(sorted(states, key=_order), key=lambda state: state.cell):
        row = list(runs)
        name = ", ".join([row[0].series or "alone", *row[0].settings])
        told = [
            f'<span style="color:{COLOURS.get(state.state, "inherit")}">{escape(tell_run(path, state).plain)}</span>'
            for state in row
        ]
        rows.append([escape(str(row[0].ranks)), escape(name), *told])
    table = _show_table(["ranks", "sync", *(f"seed {seed}" for seed in seeds)], rows)
    failures = [
        html.show_text(f"{each.name} failed: {each.error}", f"color:{html.BAD}") for each in states if each.error
    ]
    return html.show_card(title, html.show_bar(done / len(states) if states else 0.0), table, *failures)


def describe_states(path: Path) -> str:
    """How far a study is in a line, for those who see no HTML."""
    states = read_states(RunFolder(path))
    return f"study {path.name}: {tell_progress(states) if states else 'no run has begun yet'}"


def draw_study(outcome: StudyOutcome, path: Path) -> str:
    """What a study found, as HTML: its cells with speedups and intervals, its findings, its page."""
    studies = StudySet([outcome])
    total, done = sum(outcome.states.values()), outcome.states["done"]
    mark, colour = ("complete", html.GOOD) if done == total else (f"{done} of {total} runs done", html.OPEN)
    title = html.show_title(f"study of {outcome.task}", f"{outcome.study}, {outcome.precision}", mark, colour)
    heads = ["", "seconds an epoch", "S_p", "efficiency", f"S_L at {studies.say_cutoff(-1)}"]
    table = _show_table(heads, [[escape(text) for text in _row(studies, cell)] for cell in studies.cells])
    findings = [html.show_text(sentence) for sentence in outcome.findings]
    findings += [html.show_text(f"{name} failed: {why}", f"color:{html.BAD}") for name, why in outcome.failures.items()]
    legend = (
        "S_p: how much faster an epoch is. S_L: how much sooner the quality is reached. In brackets, 95 % intervals."
    )
    page = path / "report.html"
    end = [html.show_link(page, "the page of the study")] if page.exists() else []
    end.append(f'<span style="{html.DIM};overflow-wrap:anywhere">{escape(str(path))}</span>')
    return html.show_card(
        title,
        table,
        html.show_text(legend, f"{html.DIM};font-size:11px"),
        *findings,
        html.show_line(" · ".join(end), "font-size:12px"),
    )


def _row(studies: StudySet, cell: PlacedCell) -> list[str]:
    if not cell.runs:
        return [studies.short_name(cell), "no finished run", "", "", ""]
    is_base = studies.base_of(cell) is cell
    return [
        studies.short_name(cell),
        say_estimate(cell.epoch_seconds),
        "" if is_base else say_estimate(cell.speedup),
        "" if is_base else say_efficiency(cell),
        "" if is_base else say_speedup(cell.cutoffs[-1]),
    ]


def _order(state: RunState) -> tuple[int, str, tuple[str, ...], int]:
    return state.ranks, state.series, state.settings, state.seed


def _show_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; heads are plain, rows are HTML."""
    cell = "padding:3px 14px 3px 0;text-align:left;vertical-align:top;background:none;border:none"
    head = "".join(f'<th style="{cell};{html.DIM};font-weight:600">{typeset(text)}</th>' for text in heads)
    body = "".join(
        f'<tr style="background:none;border-top:1px solid {html.FAINT}">'
        + "".join(f'<td style="{cell}">{text}</td>' for text in row)
        + "</tr>"
        for row in rows
    )
    return (
        '<div style="overflow-x:auto;margin-top:10px"><table style="border-collapse:collapse;border:none;margin:0;'
        f'font-size:12px"><thead><tr style="background:none">{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )
