"""`deepex bench`: compare deepex with what people use today, on this machine."""

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
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
from deepex.bench.step import benchmark as bench
from deepex.bench.step.layers import layer_table, watch_layers
from deepex.bench.step.table import LEGEND, conclusions, markdown, terminal_table
from deepex.bench.step.workloads import WORKLOADS
from deepex.bench.sync import benchmark as sync_bench
from deepex.bench.sync import table as sync_table
from deepex.bench.sync.rank_pool import Network, local_network
from deepex.bench.sync.rows import PARTS, Book, Part, Row
from deepex.cli.output.files import check_output, write_output
from deepex.cluster.cluster import Cluster
from deepex.errors import UsageError, unknown
from deepex.record.provenance import describe_hardware, describe_versions
from deepex.train.compute.precision import DTYPES

PACKAGES = ("lightning", "accelerate")
NETWORKS = ("local", "cluster", "both")
INPUT_PACKAGES = {"webdataset": "webdataset", "cv2": "opencv-python-headless"}  # as imported, as installed

JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the rows here; - is stdout.")]
MarkdownFile = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Write tables that name the hardware here.")
]

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
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Time a step of the plain PyTorch loop, Lightning, Accelerate and deepex, taking turns on all cores."""
    names = _chosen("workload", workload, WORKLOADS)
    to_stdout = _check(repeats, json_file, markdown_file)
    variants, missing = bench.available_variants()
    console = _console(to_stdout, missing)
    with console.status("starting") as status:
        rows = bench.measure(names, variants, repeats, status.update)
    console.print(terminal_table(rows))
    for line in (LEGEND, *conclusions(rows)):
        console.print(line)
    command = f"deepex bench step{_options('workload', names, WORKLOADS)} --repeats {repeats}"
    _write(console, json_file, bench.to_json(rows), markdown_file, markdown(rows, _facts(PACKAGES, command)))


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
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Count samples a second of the feed, torch's DataLoader, webdataset and a mere copy, and what runs wait for."""
    names = _chosen("source", source, SOURCES)
    to_stdout = _check(repeats, json_file, markdown_file)
    if samples < LEAST_SAMPLES:
        raise UsageError(f"--samples {samples}. Allowed: whole numbers from {LEAST_SAMPLES}.")
    place = _place_for(samples, folder or Path(tempfile.gettempdir()))
    missing = [package for module, package in INPUT_PACKAGES.items() if find_spec(module) is None]
    console = _console(to_stdout, missing)
    # No thread that draws while others are timed: text is drawn when it changes.
    with (
        Live(console=console, auto_refresh=False, transient=True) as live,
        tempfile.TemporaryDirectory(prefix="deepex-bench-", dir=place) as made,
    ):
        rows = input_bench.measure(names, repeats, samples, Path(made), lambda text: live.update(text, refresh=True))
    console.print(input_table.terminal_table(rows))
    for line in (input_table.LEGEND, *input_table.conclusions(rows)):
        console.print(line)
    command = f"deepex bench input{_options('source', names, SOURCES)} --repeats {repeats} --samples {samples}"
    facts = _facts(tuple(INPUT_PACKAGES.values()), command)
    _write(console, json_file, input_bench.to_json(rows), markdown_file, input_table.markdown(rows, facts))


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
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Compare strategies with DDP and Accelerate: all-reduce, steps and learning, here and on a slow network."""
    parts: Any = _chosen("part", part, PARTS)
    if network not in NETWORKS:
        raise UsageError(unknown("network", network, NETWORKS))
    if resume and (json_file is None or str(json_file) == "-"):
        raise UsageError("--resume without a file to go on with. Name it with --json FILE.")
    to_stdout = _check(seeds, json_file, markdown_file, option="seeds")
    console = _console(to_stdout, sync_bench.missing_peers())
    before = sync_bench.read_rows(json_file) if resume and json_file is not None and json_file.exists() else []

    def keep(rows: Sequence[Row]) -> None:
        if json_file is not None and not to_stdout:
            write_output(json_file, "--json", sync_bench.to_json(rows))

    book = Book(keep, before)
    if network != "cluster":
        _measure_sync(parts, local_network(2), book, console, quick=quick, seeds=seeds)
    if network != "local" and os.geteuid() != 0:
        console.print("without the cluster: making hosts needs root. Start it again with sudo to measure there too.")
    elif network != "local" and set(parts) != {"fabrics"}:
        with Cluster() as cluster:
            made = Network(
                name="cluster",
                num_ranks=cluster.num_hosts,
                start=lambda words, folder: cluster.launch(words, output=folder).processes,
            )
            _measure_sync(parts, made, book, console, quick=quick, seeds=seeds)
    console.print(f"\nWhat it shows{': nothing, with --quick' * quick}")
    for line in sync_table.conclusions(book.rows):
        console.print(f"- {line}")
    command = f"deepex bench sync{_options('part', parts, PARTS)} --network {network}{' --quick' * quick}"
    tables = sync_table.markdown(book.rows, _facts(("accelerate", "mpi4py", "mpich"), command), quick=quick)
    _write(console, json_file, sync_bench.to_json(book.rows), markdown_file, tables)


def _measure_sync(
    parts: Sequence[Part], network: Network, book: Book, console: Console, *, quick: bool, seeds: int
) -> None:
    """Measure on one network; progress is lines, since nothing may draw while others are timed."""

    def say(text: str) -> None:
        console.print(f"{datetime.now(UTC):%H:%M:%S} {text}", style="dim")

    def show(part: Part) -> None:
        rows = book.of(part, network.name)
        if rows:
            heading = sync_table.title(part, network.name, quick=quick)
            console.print(sync_table.terminal_table(rows, heading), sync_table.LEGENDS[part], sep="\n")

    sync_bench.measure(parts, network, book, say, show, quick=quick, seeds=seeds)


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


def _chosen(kind: str, given: list[str] | None, allowed: Iterable[str]) -> list[str]:
    """What was asked for, each once; all if nothing was."""
    known = list(allowed)
    names = list(dict.fromkeys(given or known))
    for name in names:
        if name not in known:
            raise UsageError(unknown(kind, name, known))
    return names


def _check(times: int, json_file: Path | None, markdown_file: Path | None, option: str = "repeats") -> bool:
    """Refuse what could not be done after the measuring; whether rows go to standard output."""
    if times < 1:
        raise UsageError(f"--{option} {times}. Allowed: whole numbers from 1.")
    to_stdout = json_file is not None and str(json_file) == "-"
    if json_file is not None and not to_stdout:
        check_output(json_file, "--json")
    if markdown_file is not None:
        check_output(markdown_file, "--markdown")
    return to_stdout


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


def _console(to_stdout: bool, missing: Sequence[str]) -> Console:
    """Where tables go; it says which packages are missing."""
    console = Console(stderr=to_stdout, highlight=False, width=max(120, Console().width))
    for package in missing:
        console.print(f"without {package}, which is not installed: pip install 'deepex[bench]' brings it in")
    return console


def _write(console: Console, json_file: Path | None, rows: str, markdown_file: Path | None, tables: str) -> None:
    """Rows and tables into the files that were asked for."""
    if json_file is not None and str(json_file) == "-":
        print(rows, end="")
    elif json_file is not None:
        write_output(json_file, "--json", rows)
    if markdown_file is not None:
        write_output(markdown_file, "--markdown", tables)
        console.print(f"tables: {markdown_file}")


def _options(name: str, chosen: list[str], allowed: Iterable[str]) -> str:
    """The choice as words of a command; nothing if it is all."""
    return "" if chosen == list(allowed) else "".join(f" --{name} {each}" for each in chosen)


def _facts(packages: tuple[str, ...], command: str) -> Mapping[str, Any]:
    hardware, versions = describe_hardware(), describe_versions(packages)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": f"{hardware['processor']}, {hardware['instructions']}, {hardware['cores']} cores",
        "memory": f"{hardware['memory_gib']} GiB",
        "system": hardware["system"],
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "command": command,
    }
