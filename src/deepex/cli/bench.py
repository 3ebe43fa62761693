"""`deepex bench`: compare deepex with what people use today, on this machine."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from deepex.bench import step as bench
from deepex.bench.layers import layer_table, watch_layers
from deepex.bench.table import LEGEND, conclusions, markdown, terminal_table
from deepex.bench.workloads import WORKLOADS
from deepex.cli.output import check_output, write_output
from deepex.errors import UsageError, unknown
from deepex.record.provenance import describe_hardware, describe_versions
from deepex.train.precision import DTYPES

PACKAGES = ("lightning", "accelerate")

app = typer.Typer(help="Compare deepex with what people use today.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Compare deepex with what people use today, in one run, as ratios."""


@app.command("step", epilog="Example:  deepex bench step --workload tiny --repeats 5")
def step(
    workload: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(WORKLOADS)}; again for another. [default: all]")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Turns of each variant.")] = 7,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the rows here; - is stdout.")
    ] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write tables that name the hardware here.")
    ] = None,
) -> None:
    """Time a step of the plain PyTorch loop, Lightning, Accelerate and deepex, taking turns on all cores."""
    names = list(dict.fromkeys(workload or WORKLOADS))
    for name in names:
        if name not in WORKLOADS:
            raise UsageError(unknown("workload", name, WORKLOADS))
    if repeats < 1:
        raise UsageError(f"--repeats {repeats}. Allowed: whole numbers from 1.")
    to_stdout = json_file is not None and str(json_file) == "-"
    if json_file is not None and not to_stdout:
        check_output(json_file, "--json")
    if markdown_file is not None:
        check_output(markdown_file, "--markdown")
    variants, missing = bench.available_variants()
    console = Console(stderr=to_stdout, highlight=False, width=max(120, Console().width))
    for package in missing:
        console.print(f"without {package}, which is not installed: pip install 'deepex[bench]' brings it in")
    with console.status("starting") as status:
        rows = bench.measure(names, variants, repeats, status.update)
    console.print(terminal_table(rows))
    for line in (LEGEND, *conclusions(rows)):
        console.print(line)
    if to_stdout:
        print(bench.to_json(rows), end="")
    elif json_file is not None:
        write_output(json_file, "--json", bench.to_json(rows))
    if markdown_file is not None:
        write_output(markdown_file, "--markdown", markdown(rows, _facts(names, repeats)))
        console.print(f"tables: {markdown_file}")


@app.command("layers", epilog="Example:  deepex bench layers --workload cvae --top 5")
def layers(
    workload: Annotated[str, typer.Option(help=f"One of {', '.join(WORKLOADS)}.")] = "cosmoflow64",
    precision: Annotated[str, typer.Option(help="fp32, bf16 or fp16.")] = "fp32",
    top: Annotated[int, typer.Option(help="How many operators to show.")] = 10,
    steps: Annotated[int, typer.Option(help="Steps to look at.")] = 3,
) -> None:
    """Show where deepex's step loses time against the GEMM peak, by operator and shape, the most lost first."""
    if workload not in WORKLOADS:
        raise UsageError(unknown("workload", workload, WORKLOADS))
    if precision not in DTYPES:
        raise UsageError(unknown("precision", precision, DTYPES))
    if steps < 1 or top < 1:
        raise UsageError(f"--steps {steps} --top {top}. Allowed: whole numbers from 1.")
    found, peak = watch_layers(WORKLOADS[workload], precision, steps)
    console = Console(highlight=False, width=max(120, Console().width))
    console.print(layer_table(found, top))
    step_ms = sum(layer.ms for layer in found)
    console.print(
        f"{WORKLOADS[workload].title} in {precision}: {step_ms:,.0f} ms a step in operators; at the GEMM peak of "
        f"{peak / 1e9:,.0f} GFLOP/s its matrix products and convolutions would take "
        f"{step_ms - sum(layer.lost_ms for layer in found):,.0f} ms. To look at operators makes a step a little slower."
    )


def _facts(names: list[str], repeats: int) -> Mapping[str, Any]:
    hardware, versions = describe_hardware(), describe_versions(PACKAGES)
    chosen = "" if names == list(WORKLOADS) else "".join(f" --workload {name}" for name in names)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": f"{hardware['processor']}, {hardware['instructions']}, {hardware['cores']} cores",
        "memory": f"{hardware['memory_gib']} GiB",
        "system": hardware["system"],
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "command": f"deepex bench step{chosen} --repeats {repeats}",
    }
