"""The step benchmark for people: a table on the terminal, and a Markdown file that names its hardware."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from deepex.bench.step.benchmark import Row, science_mean, speedups
from deepex.bench.step.workloads import SCIENCE, WORKLOADS
from deepex.text import say_percent

HEADINGS = ("variant", "wall ms", "CPU ms", "spread", "× plain", "× best peer", "GFLOP/s", "of peak", "turns")
LEGEND = (
    "Wall and CPU time of one step, medians over turns; spread: the middle half of the turns; × plain: the plain "
    "loop's wall time over this one's, above 1 is faster; × best peer: the same against the fastest of plain loop, "
    "Lightning and Accelerate; of peak: of the rate of a matrix product in the same precision, measured between turns."
)


def cells(row: Row, rows: Sequence[Row]) -> tuple[str, ...]:
    """A row as text."""
    best = f"{speedups(rows, row.variant)[row.workload]:.2f}" if row.variant.startswith("deepex") else ""
    digits = 1 if row.wall_ms >= 10 else 3
    return (
        row.variant,
        f"{row.wall_ms:,.{digits}f}",
        f"{row.cpu_ms:,.{digits}f}",
        say_percent(row.spread),
        f"{row.ratio:.2f}",
        best,
        f"{row.gflops_per_second:,.1f}",
        say_percent(row.share_of_peak),
        str(row.turns),
    )


def terminal_table(rows: Sequence[Row]) -> Table:
    """All workloads below each other."""
    table = Table(*("workload", *HEADINGS), box=None, padding=(0, 2, 0, 0))
    for name in dict.fromkeys(row.workload for row in rows):
        for number, row in enumerate(row for row in rows if row.workload == name):
            table.add_row(WORKLOADS[name].title if number == 0 else "", *cells(row, rows))
        table.add_section()
    return table


def conclusions(rows: Sequence[Row]) -> list[str]:
    """What the rows say, a sentence each."""
    sentences = []
    for variant in ("deepex-fp32", "deepex-bf16"):
        mean, found = science_mean(rows, variant), speedups(rows, variant)
        if mean is not None:
            least = min(SCIENCE, key=found.__getitem__)
            sentences.append(
                f"{variant}: {mean:.2f} times as fast as the best of the others, as the geometric mean over the "
                f"{len(SCIENCE)} science workloads; least {found[least]:.2f} ({WORKLOADS[least].title})."
            )
    tiny = [row for row in rows if row.workload == "tiny" and row.variant == "deepex-fp32"]
    return sentences + [_framework_cost(row, rows) for row in tiny]


def _framework_cost(row: Row, rows: Sequence[Row]) -> str:
    """The tiny network's step, where only the framework costs."""
    others = {r.variant: row.wall_ms / r.wall_ms for r in rows if r.workload == "tiny" and "deepex" not in r.variant}
    compared = ", ".join(f"{share:.2f} times {name}'s" for name, share in others.items())
    return (
        f"The tiny network's step costs deepex {1e3 * row.wall_ms:.0f} µs: {compared}. Its five phases add up to "
        f"{say_percent(row.phases_share, 1)} of the step, and recording them costs "
        f"{say_percent(row.recording_share, 2)} of it."
    )


def markdown(rows: Sequence[Row], facts: Mapping[str, Any]) -> str:
    """The same as a file to keep: hardware, command, tables, conclusions."""
    lines = ["# Step benchmark", "", *(f"- {name}: {value}" for name, value in facts.items()), "", LEGEND, ""]
    for name in dict.fromkeys(row.workload for row in rows):
        lines += [f"## {WORKLOADS[name].title}", "", f"| {' | '.join(HEADINGS)} |", "| --- " * len(HEADINGS) + "|"]
        lines += [f"| {' | '.join(cells(row, rows))} |" for row in rows if row.workload == name]
        lines.append("")
    return "\n".join([*lines, *(f"- {sentence}" for sentence in conclusions(rows)), ""])
