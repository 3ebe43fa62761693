"""The step benchmark for people: tables on the terminal, and a Markdown file that names its hardware."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from deepex.bench.step.benchmark import COMPARED, Row, science_mean, speedups
from deepex.bench.step.variants import Kind
from deepex.bench.step.workloads import SCIENCE, WORKLOADS
from deepex.text import say_percent

HEADINGS = ("variant", "wall ms", "CPU ms", "spread", "× best peer", "× expert", "GFLOP/s", "of peak", "turns", "note")
LEGEND = (
    "Wall and CPU time of one step, medians over turns; spread: the middle half of the turns.",
    "× best peer: how many times as fast as the best of what people run in the same precision: a plain PyTorch loop, "
    "Lightning, Fabric and Accelerate. Above 1 is faster. Where a processor has no bf16 instructions, the plain loop "
    "alone is run in bf16.",
    "× expert: how many times as fast as what an expert could write by hand in plain PyTorch, in the same precision: "
    "jemalloc that keeps freed pages, a fused optimiser, and the fastest of contiguous and channels-last memory, eager "
    "and compiled, all threads and, for a small network, one. They are tried first; the note says which was chosen.",
    "of peak: of the rate of a matrix product in the same precision, measured between turns.",
)
WORDS: dict[Kind, str] = {"peer": "the best of what people run", "expert": "what an expert could write by hand"}


def cells(row: Row, rows: Sequence[Row]) -> tuple[str, ...]:
    """A row as text."""
    digits = 1 if row.wall_ms >= 10 else 3
    found = [speedups(rows, row.variant, kind).get(row.workload) for kind in COMPARED]
    return (
        row.variant,
        f"{row.wall_ms:,.{digits}f}",
        f"{row.cpu_ms:,.{digits}f}",
        say_percent(row.spread),
        *("" if speedup is None else f"{speedup:.2f}" for speedup in found),
        f"{row.gflops_per_second:,.1f}",
        say_percent(row.share_of_peak),
        str(row.turns),
        row.note,
    )


def terminal_tables(rows: Sequence[Row]) -> list[Table]:
    """One for each workload."""
    tables = []
    for name in dict.fromkeys(row.workload for row in rows):
        table = Table(
            *HEADINGS, title=f"\n{WORKLOADS[name].title}", title_justify="left", box=None, padding=(0, 2, 0, 0)
        )
        for row in (row for row in rows if row.workload == name):
            table.add_row(*cells(row, rows))
        tables.append(table)
    return tables


def conclusions(rows: Sequence[Row]) -> list[str]:
    """What the rows say, a sentence each."""
    ours = dict.fromkeys((row.variant, row.precision) for row in rows if row.kind == "ours")
    sentences = []
    for variant, precision in ours:
        for kind in COMPARED:
            mean, found = science_mean(rows, variant, kind), speedups(rows, variant, kind)
            if mean is not None:
                least = min(SCIENCE, key=found.__getitem__)
                sentences.append(
                    f"{variant} is {mean:.2f} times as fast as {WORDS[kind]} in {precision}, as the geometric mean "
                    f"over the {len(SCIENCE)} science workloads; least {found[least]:.2f} ({WORKLOADS[least].title})."
                )
    return sentences + [_framework_cost(row, rows) for row in rows if row.workload == "tiny" and row.kind == "ours"]


def _framework_cost(row: Row, rows: Sequence[Row]) -> str:
    """The tiny network's step, where only the framework costs."""
    others = [r for r in rows if (r.workload, r.precision) == ("tiny", row.precision) and r.kind != "ours"]
    compared = ", ".join(f"{row.wall_ms / other.wall_ms:.2f} times {other.variant}'s" for other in others)
    sentence = f"The tiny network's step costs {row.variant} {1e3 * row.wall_ms:.0f} µs: {compared}."
    if row.phases_share is None:
        return sentence
    return (
        f"{sentence} Its five phases add up to {say_percent(row.phases_share, 1)} of the step, and recording them "
        f"costs {say_percent(row.recording_share, 2)} of it."
    )


def markdown(rows: Sequence[Row], facts: Mapping[str, Any]) -> str:
    """The same as a file to keep: hardware, command, legend, tables, conclusions."""
    lines = ["# Step benchmark", "", *(f"- {name}: {value}" for name, value in facts.items()), ""]
    lines += [line for sentence in LEGEND for line in (sentence, "")]
    for name in dict.fromkeys(row.workload for row in rows):
        lines += [f"## {WORKLOADS[name].title}", "", f"| {' | '.join(HEADINGS)} |", "| --- " * len(HEADINGS) + "|"]
        shown = [cells(row, rows) for row in rows if row.workload == name]
        lines += [f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in shown]
        lines.append("")
    return "\n".join([*lines, *(f"- {sentence}" for sentence in conclusions(rows)), ""])
