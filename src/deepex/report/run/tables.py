"""The page's figures in text: tiles, the table of phases, and the record of the run. It knows no plots."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby

from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.record.provenance import Hardware, Placement, Repository, RunRecord
from deepex.report.html import typeset
from deepex.report.run.run_data import RunData
from deepex.report.style import PHASE_COLOURS
from deepex.text import say_duration, say_plural, say_share, say_value

MEANINGS = {
    "input": "waiting for samples",
    "forward": "model and loss",
    "backward": "gradients",
    "update": "optimiser",
    "sync": "waiting for other ranks",
    "evaluate": "metric on held-out samples",
    "checkpoint": "writing the state to disk",
}


def key_figures(data: RunData) -> str:
    """The figures that matter most, as tiles."""
    if not data.rows:
        return ""
    last, summary = data.rows[-1], data.summary
    words, kind = data.metric, ""
    if data.target is not None and data.target.threshold is not None:
        verdict, kind = "no outcome yet", "open"
        if summary is not None:
            verdict, kind = ("reached", "good") if summary.target_reached else ("not reached", "open")
        words = f"{data.metric}, target {data.target} {verdict}"
    largest = max(STEP_PHASES, key=data.phase_seconds)
    tiles = [
        show_tile(say_value(last.value), words, kind),
        show_tile(say_duration(last.seconds), f"in {say_plural(last.epoch, 'epoch')}"),
        show_tile(f"{data.samples_per_second:,.0f}", "samples a second"),
        show_tile(say_share(data.phase_share(largest)), f"of the step in {largest}, its largest phase"),
    ]
    if summary is not None:
        rate = f"{summary.gflops_per_second:,.1f} GFLOP/s"
        tiles.append(show_tile(say_share(summary.share_of_peak), f"of the GEMM peak, {rate}"))
    else:
        tiles.append(show_tile(f"{last.epoch} of {data.recipe.num_epochs}", "epochs done"))
    waiting = data.phase_share("input") + data.phase_share("sync")
    tiles.append(show_tile(say_share(waiting), "of the step waiting, for samples or other ranks"))
    return "".join(tiles)


def show_tile(figure: str, words: str, kind: str = "") -> str:
    """A figure with a few words."""
    return f'<div class="tile {kind}"><b>{escape(figure)}</b><span>{typeset(words)}</span></div>'


def phase_table(data: RunData) -> str:
    """Mean seconds and share of each phase, their sum against the step's wall time, and what lies beside."""
    total, wall = sum(map(data.phase_seconds, STEP_PHASES)), data.wall_seconds
    spread = len(data.ranks) > 1
    rows = [_phase_row(data, phase, spread) for phase in STEP_PHASES]
    rows.append(_total_row("sum", total, wall, spread))
    rows.append(_total_row("step wall time", wall, wall, spread))
    beside = [_phase_row(data, phase, spread) for phase in BESIDE_PHASES]
    over = "<th>least – most</th>" if spread else ""
    mean = "mean of ranks" if spread else "seconds"
    return (
        f'<div class="scroll"><table class="phases"><thead><tr><th>phase</th><th class="words"></th><th>{mean}</th>'
        f"<th>of wall time</th>{over}</tr></thead><tbody>{''.join(rows)}</tbody>"
        f'<tbody class="beside"><tr><th colspan="{4 + spread}">beside the steps</th></tr>{"".join(beside)}</tbody>'
        "</table></div>"
    )


def _phase_row(data: RunData, phase: str, spread: bool) -> str:
    each = [rank.phase_seconds[phase] for rank in data.ranks]
    hatched = " hatched" if phase in BESIDE_PHASES else ""
    swatch = f'<i class="swatch{hatched}" style="background-color:{PHASE_COLOURS[phase]}"></i>'
    over = f"<td>{min(each):.2f} – {max(each):.2f} s</td>" if spread else ""
    return (
        f'<tr><td>{swatch}{phase}</td><td class="words">{MEANINGS[phase]}</td>'
        f"<td>{data.phase_seconds(phase):.2f} s</td>"
        f"<td>{100 * data.phase_share(phase):.1f} %</td>{over}</tr>"
    )


def _total_row(name: str, seconds: float, wall: float, spread: bool) -> str:
    share = f"{100 * seconds / wall:.1f} %" if wall else ""
    over = "<td></td>" if spread else ""
    return (
        f'<tr class="total"><td>{name}</td><td class="words"></td><td>{seconds:.2f} s</td><td>{share}</td>{over}</tr>'
    )


def record_tables(data: RunData) -> str:
    """Everything that is needed to run it again or to doubt it; long parts are collapsed."""
    record = data.record
    rows = {
        "algorithm": escape(_algorithm(data)),
        "command": _code(record.command),
        "again": _code(_again(data)),
        "deepex's commit": _repository(record.code),
        "project's commit": _repository(record.project),
        "versions": _pairs(record.versions),
        "hardware": _hardware(record.hardware),
        "ranks": _places(record.places),
        "launcher, fabric": escape(f"{record.launcher or 'unknown'}, {record.fabric or 'unknown'}"),
        "scheduler": _pairs(record.scheduler) or "none",
        "precision, layout": escape(f"{data.recipe.precision}, {data.recipe.layout.replace('_', ' ')}"),
        "seed": escape(str(record.seed)),
        "data sha256": _code(record.data_sha256),
        "weights sha256": _code(data.summary.weights_sha256 if data.summary else ""),
    }
    body = "".join(f"<tr><th>{escape(name)}</th><td>{value}</td></tr>" for name, value in rows.items() if value)
    recipe = f"<details><summary>recipe.toml</summary><pre>{escape(data.folder.recipe.read_text())}</pre></details>"
    return f'<table class="record"><tbody>{body}</tbody></table>{recipe}{_changes(record)}'


def _algorithm(data: RunData) -> str:
    """What was trained, how, and to what end, in one line; the recipe has all of it."""
    recipe, target = data.recipe, data.target
    goal = f", to {data.metric} {target}" if target is not None and target.threshold is not None else ""
    return (
        f"task {recipe.task}; {recipe.optimiser} at {recipe.learning_rate:g}, "
        f"{recipe.schedule} rate; {recipe.batch} samples a rank and step, "
        f"{recipe.batch * recipe.num_ranks:,} of all; sync {recipe.sync}; at most "
        f"{say_plural(recipe.num_epochs, 'epoch')}{goal}"
    )


def _again(data: RunData) -> str:
    """How to run it again: by its recipe, or by the script that has its loop."""
    code = data.recipe.code
    return f"python {code}" if code.endswith(".py") else f"deepex run {data.folder.recipe}"


def _code(text: str | None) -> str:
    return f"<code>{escape(text)}</code>" if text else ""


def _pairs(values: Mapping[str, str]) -> str:
    return escape(", ".join(f"{name} {value}" for name, value in values.items()))


def _repository(found: Repository) -> str:
    if not found.commit:
        return "not under version control"
    state = "clean" if found.clean else f"with {say_plural(len(found.changed), 'changed file')}"
    return f"{_code(found.commit)} {escape(state)}"


def _hardware(found: Hardware) -> str:
    return escape(
        f"{found.processor} ({found.instructions}), {say_plural(found.cores, 'core')}, {found.memory_gib:g} GiB, "
        f"{say_plural(found.accelerators, 'accelerator')}; {found.host}, {found.system}"
    )


def _places(places: Sequence[Placement]) -> str:
    """Ranks by host: '0 to 3 on n1 (2 threads each)'."""
    lines = []
    for (host, threads), members in groupby(places, key=lambda place: (place.host, place.threads)):
        ranks = [place.rank for place in members]
        span = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
        lines.append(f"{span} on {host} ({say_plural(threads, 'thread')} each)")
    listed = "<br>".join(map(escape, lines))
    if len(lines) <= 4:
        return listed
    return f"<details><summary>{say_plural(len(places), 'rank')}</summary>{listed}</details>"


def _changes(record: RunRecord) -> str:
    """The changed files of the work trees; the whole diff stands in record.json."""
    text = ""
    for found, name in ((record.code, "deepex"), (record.project, "the project")):
        if found.changed:
            listed = escape("\n".join(found.changed))
            text += (
                f"<details><summary>files of {name} that differ from the commit (the diff is in record.json)</summary>"
                f"<pre>{listed}</pre></details>"
            )
    return text
