"""Ways to train the protein model, compared in one run: time and epochs to the target, speed, and where the time goes.

Variants take turns, so that a noisy machine is noisy for all; figures are medians with their least and most, and
ratios to one rank alone. `--json FILE` writes a row a run.
"""

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

import deepex as dx

VARIANTS = ((1, "allreduce"), (2, "allreduce"), (2, "local:8"), (2, "local:epoch"))


def main() -> None:
    """Run every variant `--repeats` times, with another seed each time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.repeats):
            for ranks, sync in VARIANTS:
                out = Path(folder) / f"{ranks}-{sync}-{seed}"
                summary = dx.run("protein", ranks=ranks, sync=sync, seed=seed, out=out, verbosity="quiet").summary
                rows.append({**summary, "seed": seed})
                print(
                    f"{ranks} x {sync}, seed {seed}: {summary['seconds']:.1f} s to {summary['value']:.4f}", flush=True
                )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    Console(width=150, highlight=False).print(tabulate(rows))


def tabulate(rows: list[dict[str, Any]]) -> Table:
    """A line a variant."""
    headings = ("ranks", "sync", "reached", "epochs", "seconds to target", "x", "samples/s", "x", "sync share", "R²")
    table = Table(*headings, box=None, padding=(0, 2, 0, 0))
    alone = [row for row in rows if row["ranks"] == 1]
    for ranks, sync in VARIANTS:
        mine = [row for row in rows if (row["ranks"], row["sync"]) == (ranks, sync)]
        seconds, base = values(mine, "seconds"), values(alone, "seconds")
        speed, base_speed = values(mine, "samples_per_second"), values(alone, "samples_per_second")
        table.add_row(
            str(ranks),
            sync,
            f"{sum(row['target_reached'] for row in mine)} of {len(mine)}",
            spread(values(mine, "epochs"), "{:.0f}"),
            spread(seconds, "{:.1f}"),
            f"{median(base) / median(seconds):.2f}",
            spread(speed, "{:,.0f}"),
            f"{median(speed) / median(base_speed):.2f}",
            f"{median(row['phase_seconds']['sync'] / row['step_wall_seconds'] for row in mine):.1%}",
            spread([row["findings"]["native_fraction_r2"] for row in mine], "{:.2f}"),
        )
    return table


def values(rows: list[dict[str, Any]], key: str) -> list[float]:
    return [row[key] for row in rows]


def spread(figures: list[float], form: str) -> str:
    """The median, with the least and the most."""
    shown = (form.format(figure) for figure in (median(figures), min(figures), max(figures)))
    return "{} ({} to {})".format(*shown)


if __name__ == "__main__":
    main()
