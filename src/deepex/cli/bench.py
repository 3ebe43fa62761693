"""`deepex bench`: compare deepex with what people use today, on this machine."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from deepex.bench.input import benchmark as input_bench
from deepex.bench.input import table as input_table
from deepex.bench.input.benchmark import SOURCES
from deepex.bench.input.data import BYTES_A_SAMPLE, LEAST_SAMPLES
from deepex.bench.step import benchmark as step_bench
from deepex.bench.step import table as step_table
from deepex.bench.step.layers import layer_table, watch_layers
from deepex.bench.step.variants import VARIANTS
from deepex.bench.step.workloads import WORKLOADS
from deepex.bench.sync import benchmark as sync_bench
from deepex.bench.sync import table as sync_table
from deepex.bench.sync.rank_pool import Network, local_network
from deepex.bench.sync.rows import PARTS, Part, Results, Row
from deepex.cli.output.benchmark import (
    BenchmarkOutput,
    MarkdownOption,
    check_count,
    choose_names,
    describe_benchmark,
    repeat_options,
)
from deepex.cli.output.options import JsonOption
from deepex.cluster.cluster import Cluster
from deepex.errors import UsageError, unknown
from deepex.train.compute.precision import DTYPES

STEP_PACKAGES, SYNC_PACKAGES = ("lightning", "accelerate"), ("accelerate", "mpi4py", "mpich")
NETWORKS = ("local", "cluster", "both")
INPUT_PACKAGES = {"webdataset": "webdataset", "cv2": "opencv-python-headless"}  # as imported, as installed

app = typer.Typer(help="Compare deepex with what people use today.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Compare deepex with what people use today, in one run, as ratios."""


@app.command("step", epilog="Example:  deepex bench step --workload tiny --repeats 5")
def step(
    workload: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(WORKLOADS)}; again for another. [default: all]")
    ] = None,
    variant: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(VARIANTS)}; again for another. [default: all]")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Turns of each variant.")] = 7,
    json_file: JsonOption = None,
    markdown_file: MarkdownOption = None,
) -> None:
    """Time a step of deepex beside what people run and what an expert could write by hand, all taking turns."""
    names = choose_names("workload", workload, WORKLOADS)
    check_count("repeats", repeats)
    output = BenchmarkOutput(json_file, markdown_file)
    named = choose_names("variant", variant, VARIANTS) if variant else []
    variants, missing = step_bench.available_variants(named)
    if not variants:
        raise UsageError(f"--variant {named[0]} needs {missing[0]}. pip install 'deepex[bench]' brings it in.")
    console = output.open_console(missing)
    # No thread that draws while others are timed: text is drawn when it changes.
    with Live(console=console, auto_refresh=False, transient=True) as live:
        rows = step_bench.measure(names, variants, repeats, lambda text: live.update(text, refresh=True))
    for printed in (*step_table.terminal_tables(rows), *step_table.LEGEND, *step_table.conclusions(rows)):
        console.print(printed)
    options = repeat_options("workload", names, WORKLOADS) + repeat_options("variant", named, VARIANTS)
    command = f"deepex bench step{options} --repeats {repeats}"
    tables = step_table.markdown(rows, describe_benchmark(STEP_PACKAGES, command))
    output.write(console, step_bench.to_json(rows), tables)


@app.command("input", epilog="Example:  deepex bench input --source packed --samples 2000 --repeats 3")
def input_(
    source: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(SOURCES)}; again for another. [default: all]")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Turns of each variant; of a run, epochs, at most 3.")] = 7,
    samples: Annotated[
        int, typer.Option(help="Images to make; fewer may fit into caches. Of 3.5 MB samples, one for each 160.")
    ] = 20_000,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to make the data, which is removed. [default: /tmp]")
    ] = None,
    json_file: JsonOption = None,
    markdown_file: MarkdownOption = None,
) -> None:
    """Count samples a second of the feed, torch's DataLoader, webdataset and a mere copy, and what runs wait for."""
    names = choose_names("source", source, SOURCES)
    check_count("repeats", repeats)
    output = BenchmarkOutput(json_file, markdown_file)
    if samples < LEAST_SAMPLES:
        raise UsageError(f"--samples {samples}. Allowed: whole numbers from {LEAST_SAMPLES}.")
    place = _place_for(samples, folder or Path(tempfile.gettempdir()))
    missing = [package for module, package in INPUT_PACKAGES.items() if find_spec(module) is None]
    console = output.open_console(missing)
    # No thread that draws while others are timed: text is drawn when it changes.
    with (
        Live(console=console, auto_refresh=False, transient=True) as live,
        tempfile.TemporaryDirectory(prefix="deepex-bench-", dir=place) as made,
    ):
        rows = input_bench.measure(names, repeats, samples, Path(made), lambda text: live.update(text, refresh=True))
    console.print(input_table.terminal_table(rows))
    for line in (input_table.LEGEND, *input_table.conclusions(rows)):
        console.print(line)
    command = f"deepex bench input{repeat_options('source', names, SOURCES)} --repeats {repeats} --samples {samples}"
    tables = input_table.markdown(rows, describe_benchmark(tuple(INPUT_PACKAGES.values()), command))
    output.write(console, input_bench.to_json(rows), tables)


@app.command("sync", epilog="Example:  deepex bench sync --part steps --network local --json rows.json")
def sync(
    part: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(PARTS)}; again for another. [default: all]")
    ] = None,
    network: Annotated[
        str, typer.Option(help="local: ranks of this machine; cluster: 4 hosts made on it, which needs root; or both.")
    ] = "both",
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes, to try the benchmark itself.")] = False,
    seeds: Annotated[int, typer.Option(help="Runs of each strategy that learns.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Leave out what the --json file has already.")] = False,
    json_file: JsonOption = None,
    markdown_file: MarkdownOption = None,
) -> None:
    """Compare strategies with DDP and Accelerate: all-reduce, steps and learning, here and on a slow network."""
    parts: Any = choose_names("part", part, PARTS)
    if network not in NETWORKS:
        raise UsageError(unknown("network", network, NETWORKS))
    if resume and (json_file is None or str(json_file) == "-"):
        raise UsageError("--resume without a file to go on with. Name it with --json FILE.")
    check_count("seeds", seeds)
    output = BenchmarkOutput(json_file, markdown_file)
    console = output.open_console(sync_bench.missing_peers())
    before = sync_bench.read_rows(json_file) if resume and json_file is not None and json_file.exists() else []

    def save(rows: Sequence[Row]) -> None:
        if not output.rows.is_stdout:
            output.rows.write(sync_bench.to_json(rows))

    results = Results(save, before)
    if network != "cluster":
        _measure_sync(parts, local_network(2), results, console, quick=quick, seeds=seeds)
    if network != "local" and os.geteuid() != 0:
        console.print("without the cluster: making hosts needs root. Start it again with sudo to measure there too.")
    elif network != "local" and set(parts) != {"fabrics"}:
        with Cluster() as cluster:
            made = Network(
                name="cluster",
                num_ranks=cluster.num_hosts,
                start=lambda words, folder: cluster.launch(words, output=folder).processes,
            )
            _measure_sync(parts, made, results, console, quick=quick, seeds=seeds)
    console.print(f"\nWhat it shows{': nothing, with --quick' * quick}")
    for line in sync_table.conclusions(results.rows):
        console.print(f"- {line}")
    command = f"deepex bench sync{repeat_options('part', parts, PARTS)} --network {network}{' --quick' * quick}"
    tables = sync_table.markdown(results.rows, describe_benchmark(SYNC_PACKAGES, command), quick=quick)
    output.write(console, sync_bench.to_json(results.rows), tables)


def _measure_sync(
    parts: Sequence[Part], network: Network, results: Results, console: Console, *, quick: bool, seeds: int
) -> None:
    """Measure on one network; progress is lines, since nothing may draw while others are timed."""

    def log(text: str) -> None:
        console.print(f"{datetime.now(UTC):%H:%M:%S} {text}", style="dim")

    def show(part: Part) -> None:
        rows = results.of(part, network.name)
        if rows:
            heading = sync_table.title(part, network.name, quick=quick)
            console.print(sync_table.terminal_table(rows, heading), sync_table.LEGENDS[part], sep="\n")

    sync_bench.measure(parts, network, results, log, show, quick=quick, seeds=seeds)


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


def _place_for(samples: int, folder: Path) -> Path:
    """The folder, if the data can be made in it."""
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(f"--folder {folder} is no folder that can be written to. Choose another.")
    free, needed = shutil.disk_usage(folder).free, samples * BYTES_A_SAMPLE
    if free < needed:
        raise UsageError(
            f"{folder} has {free / 2**30:.3g} GiB left, and --samples {samples} needs {needed / 2**30:.3g} GiB. Choose "
            "another with --folder, or fewer samples."
        )
    return folder
