"""The page's figures in text: tiles, the table of phases, and the record of the run. It knows no plots."""

from collections.abc import Mapping
from html import escape
from itertools import groupby
from typing import Any

from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.record.sinks.progress import say_seconds
from deepex.report.html import typeset
from deepex.report.run.run_data import Material
from deepex.report.run.sentences import say_count, say_share, say_value
from deepex.report.style import PHASE_COLOURS

MEANINGS = {
    "input": "waiting for samples",
    "forward": "model and loss",
    "backward": "gradients",
    "update": "optimiser",
    "sync": "waiting for other ranks",
    "evaluate": "metric on held-out samples",
    "checkpoint": "writing the state to disk",
}


def key_figures(material: Material) -> str:
    """The figures that matter most, as tiles."""
    if not material.rows:
        return ""
    last, summary = material.rows[-1], material.summary
    verdict, kind = "no outcome yet", "open"
    if summary is not None:
        verdict, kind = ("reached", "good") if summary["target_reached"] else ("not reached", "open")
    largest = max(STEP_PHASES, key=material.phase_seconds)
    tiles = [
        show_tile(say_value(last["value"]), f"{material.metric}, target {material.recipe.target} {verdict}", kind),
        show_tile(say_seconds(last["seconds"]), f"in {say_count(last['epoch'], 'epoch')}"),
        show_tile(f"{material.samples_per_second:,.0f}", "samples a second"),
        show_tile(say_share(material.phase_share(largest)), f"of the step in {largest}, its largest phase"),
    ]
    if summary is not None:
        rate = f"{summary['gflops_per_second']:,.1f} GFLOP/s"
        tiles.append(show_tile(say_share(summary["share_of_peak"]), f"of the GEMM peak, {rate}"))
    else:
        tiles.append(show_tile(f"{last['epoch']} of {material.recipe.stop.epochs}", "epochs done"))
    waiting = material.phase_share("input") + material.phase_share("sync")
    tiles.append(show_tile(say_share(waiting), "of the step waiting, for samples or other ranks"))
    return "".join(tiles)


def show_tile(figure: str, words: str, kind: str = "") -> str:
    """A figure with a few words."""
    return f'<div class="tile {kind}"><b>{escape(figure)}</b><span>{typeset(words)}</span></div>'


def phase_table(material: Material) -> str:
    """Mean seconds and share of each phase, their sum against the step's wall time, and what lies beside."""
    total, wall = sum(map(material.phase_seconds, STEP_PHASES)), material.wall_seconds
    spread = len(material.ranks) > 1
    rows = [_phase_row(material, phase, spread) for phase in STEP_PHASES]
    rows.append(_total_row("sum", total, wall, spread))
    rows.append(_total_row("step wall time", wall, wall, spread))
    beside = [_phase_row(material, phase, spread) for phase in BESIDE_PHASES]
    over = "<th>least – most</th>" if spread else ""
    mean = "mean of ranks" if spread else "seconds"
    return (
        f'<div class="scroll"><table class="phases"><thead><tr><th>phase</th><th class="words"></th><th>{mean}</th>'
        f"<th>of wall time</th>{over}</tr></thead><tbody>{''.join(rows)}</tbody>"
        f'<tbody class="beside"><tr><th colspan="{4 + spread}">beside the steps</th></tr>{"".join(beside)}</tbody>'
        "</table></div>"
    )


def _phase_row(material: Material, phase: str, spread: bool) -> str:
    each = [rank.phase_seconds[phase] for rank in material.ranks]
    hatched = " hatched" if phase in BESIDE_PHASES else ""
    swatch = f'<i class="swatch{hatched}" style="background-color:{PHASE_COLOURS[phase]}"></i>'
    over = f"<td>{min(each):.2f} – {max(each):.2f} s</td>" if spread else ""
    return (
        f'<tr><td>{swatch}{phase}</td><td class="words">{MEANINGS[phase]}</td>'
        f"<td>{material.phase_seconds(phase):.2f} s</td>"
        f"<td>{100 * material.phase_share(phase):.1f} %</td>{over}</tr>"
    )


def _total_row(name: str, seconds: float, wall: float, spread: bool) -> str:
    share = f"{100 * seconds / wall:.1f} %" if wall else ""
    over = "<td></td>" if spread else ""
    return (
        f'<tr class="total"><td>{name}</td><td class="words"></td><td>{seconds:.2f} s</td><td>{share}</td>{over}</tr>'
    )


def record_tables(material: Material) -> str:
    """Everything that is needed to run it again or to doubt it; long parts are collapsed."""
    record, summary = material.record, material.summary or {}
    rows = {
        "algorithm": escape(_algorithm(material)),
        "command": _code(record.get("command")),
        "again": _code(f"deepex run {material.folder.recipe}"),
        "deepex's commit": _repository(record.get("code", {})),
        "project's commit": _repository(record.get("project", {})),
        "versions": _pairs(record.get("versions", {})),
        "hardware": _hardware(record.get("hardware", {})),
        "ranks": _places(record.get("places", [])),
        "launcher, fabric": escape(f"{record.get('launcher', 'unknown')}, {record.get('fabric', 'unknown')}"),
        "scheduler": _pairs(record.get("scheduler", {})) or "none",
        "precision, layout": escape(f"{material.recipe.precision}, {material.recipe.layout.replace('_', ' ')}"),
        "seed": escape(str(record.get("seed"))),
        "data sha256": _code(record.get("data_sha256")),
        "weights sha256": _code(summary.get("weights_sha256")),
    }
    body = "".join(f"<tr><th>{escape(name)}</th><td>{value}</td></tr>" for name, value in rows.items() if value)
    recipe = f"<details><summary>recipe.toml</summary><pre>{escape(material.folder.recipe.read_text())}</pre></details>"
    return f'<table class="record"><tbody>{body}</tbody></table>{recipe}{_changes(record)}'


def _algorithm(material: Material) -> str:
    """What was trained, how, and to what end, in one line; the recipe has all of it."""
    recipe = material.recipe
    return (
        f"task {recipe.task.name}; {recipe.optimiser.name} at {recipe.optimiser.learning_rate:g}, "
        f"{recipe.schedule.name} rate; {recipe.data.batch} samples a rank and step, "
        f"{recipe.data.batch * recipe.world.ranks:,} of all; sync {recipe.sync}; at most "
        f"{say_count(recipe.stop.epochs, 'epoch')}, to {material.metric} {recipe.target}"
    )


def _code(text: object) -> str:
    return f"<code>{escape(str(text))}</code>" if text else ""


def _pairs(values: Mapping[str, Any]) -> str:
    return escape(", ".join(f"{name} {value}" for name, value in values.items()))


def _repository(found: Mapping[str, Any]) -> str:
    if not found.get("commit"):
        return "not under version control"
    state = "clean" if found.get("clean") else f"with {say_count(len(found.get('changed', [])), 'changed file')}"
    return f"{_code(found['commit'])} {escape(state)}"


def _hardware(found: Mapping[str, Any]) -> str:
    if not found:
        return ""
    return escape(
        f"{found['processor']} ({found['instructions']}), {say_count(found['cores'], 'core')}, "
        f"{found['memory_gib']} GiB, "
        f"{say_count(found['accelerators'], 'accelerator')}; {found['host']}, {found['system']}"
    )


def _places(places: list[Mapping[str, Any]]) -> str:
    """Ranks by host: '0 to 3 on n1 (2 threads each)'."""
    lines = []
    for (host, threads), members in groupby(places, key=lambda place: (place["host"], place["threads"])):
        ranks = [place["rank"] for place in members]
        span = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
        lines.append(f"{span} on {host} ({say_count(threads, 'thread')} each)")
    if len(lines) <= 4:
        return "<br>".join(map(escape, lines))
    listed = "<br>".join(map(escape, lines))
    return f"<details><summary>{say_count(len(places), 'rank')}</summary>{listed}</details>"


def _changes(record: Mapping[str, Any]) -> str:
    """The changed files of the work trees; the whole diff stands in record.json."""
    text = ""
    for key, name in (("code", "deepex"), ("project", "the project")):
        changed = record.get(key, {}).get("changed")
        if changed:
            listed = escape("\n".join(changed))
            text += (
                f"<details><summary>files of {name} that differ from the commit (the diff is in record.json)</summary>"
                f"<pre>{listed}</pre></details>"
            )
    return text
