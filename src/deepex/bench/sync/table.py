"""The sync benchmark for people: a table for each part on the terminal, and a Markdown file that names its hardware."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.table import Table

from deepex.bench.sync.acceptance import judge_rows
from deepex.bench.sync.fabrics import SHARED
from deepex.bench.sync.networks import NETWORKS
from deepex.bench.sync.rows import PARTS, NetworkName, Part, Row

NETWORK_WORDS: dict[NetworkName, str] = {
    "local": "this machine",
    "cluster": "4 hosts on this machine, lines of 100 Mbit/s, 1 ms round trip",
}
HEADINGS: dict[Part, tuple[str, ...]] = {
    "fabrics": ("engine", "ranks", "MB", "GB/s", "× Gloo", "of copy", "spread", "rounds"),
    "steps": ("variant", "wall ms", "CPU ms", "× DDP", "CPU × DDP", "samples/s", "sync", "all-reduce ms", "spread"),
    "learning": ("sync", "seed", "reached", "epochs", "seconds", "× allreduce", "value", "R²", "sync share", "auto"),
}
LEGENDS: dict[Part, str] = {
    "fabrics": (
        "GB/s: bytes of the buffer over the time of the slowest rank, after a barrier, median over rounds in which all "
        "engines take turns, one thread a rank. copy: bytes read and written by all ranks, each copying from memory to "
        "memory. of copy: 2 P N bytes that an all-reduce in shared memory moves, over that; what stays in caches may "
        "bring it above 100%. spread: the middle half of the rounds."
    ),
    "steps": (
        "Wall time of the slowest rank and CPU time a rank with all its threads, of one step, medians over turns; "
        "× DDP: above 1 is faster. sync: share of the wall time in that phase; of peers, what is above the step "
        "without communication. Peers are plain torch, deepex has its own process set-up; all have one thread a rank. "
        "local:epoch includes the average at the end of an epoch."
    ),
    "learning": (
        "deepex run protein to its target, wall seconds of training; × allreduce: its seconds over this one's, on the "
        "same network. R²: of the fraction of native contacts, from the latent variables."
    ),
}


def cells(row: Row) -> tuple[str, ...]:
    """A row as text."""
    if row.part == "fabrics":
        return (
            row.name,
            str(row.ranks),
            _number(row.megabytes, "g"),
            _number(row.gigabytes_per_second, ".2f"),
            _number(row.ratio, ".2f"),
            _number(row.share_of_copy, ".0%") if row.name == SHARED else "",
            _number(row.spread, ".0%"),
            _number(row.turns, "d"),
        )
    if row.part == "steps":
        return (
            row.name,
            _number(row.wall_ms, ",.1f"),
            _number(row.cpu_ms, ",.1f"),
            _number(row.ratio, ".2f"),
            _number(row.cpu_ratio, ".2f"),
            _number(row.samples_per_second, ",.1f"),
            _number(row.sync_share, ".1%"),
            _number(row.sync_ms, ",.1f"),
            _number(row.spread, ".0%"),
        )
    return (
        row.name,
        _number(row.seed, "d"),
        "yes" if row.target_reached else "no",
        _number(row.epochs, "d"),
        _number(row.seconds, ".1f"),
        _number(row.ratio, ".2f"),
        _number(row.value, ".4f"),
        _number(row.native_fraction_r2, ".2f"),
        _number(row.sync_share, ".0%"),
        " → ".join(name for name, _ in groupby(each["sync"] for each in row.choices or [])),
    )


def title(part: Part, network: NetworkName, *, quick: bool) -> str:
    """What a table is about."""
    trained = ""
    if part == "steps":
        name = "tiny" if quick else "resnet18" if network == "local" else "perceptron"
        trained = f": {NETWORKS[name].title}, {2 if network == 'local' else 4} ranks"
    return f"{PARTS[part]}, {NETWORK_WORDS[network]}{trained}"


def terminal_table(rows: Sequence[Row], heading: str) -> Table:
    """The rows of one part."""
    table = Table(*HEADINGS[rows[0].part], box=None, padding=(0, 2, 0, 0), title=heading, title_justify="left")
    for row in rows:
        table.add_row(*cells(row))
    return table


def conclusions(rows: Sequence[Row]) -> list[str]:
    """What the rows say, a sentence each."""
    return [str(finding) for finding in judge_rows(rows)]


def markdown(rows: Sequence[Row], facts: Mapping[str, Any], *, quick: bool = False) -> str:
    """The same as a file to keep: hardware, command, tables, conclusions."""
    lines = ["# Sync benchmark", "", *(f"- {name}: {value}" for name, value in facts.items()), ""]
    for part, network in dict.fromkeys((row.part, row.network) for row in rows):
        headings = HEADINGS[part]
        mine = [row for row in rows if (row.part, row.network) == (part, network)]
        heading = title(part, network, quick=quick)
        lines += [f"## {heading[0].upper()}{heading[1:]}", "", LEGENDS[part], ""]
        lines += [f"| {' | '.join(headings)} |", "| --- " * len(headings) + "|"]
        lines += [f"| {' | '.join(cells(row))} |" for row in mine]
        lines.append("")
    return "\n".join([*lines, "## What it shows", "", *(f"- {each}" for each in conclusions(rows)), ""])


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
