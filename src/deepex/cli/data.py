"""`deepex data`: make a data set, pack one, check one, look into one."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from deepex.cli.output.data_tables import (
    console_for,
    findings_row,
    packed_row,
    print_findings,
    print_inside,
    print_packed,
)
from deepex.cli.output.files import check_output, write_output
from deepex.cli.output.options import JsonFile, JsonOption
from deepex.config import override
from deepex.data.checking.check import check as check_source
from deepex.data.checking.contact_sheet import draw_sheet
from deepex.data.checking.thumbnails import choose_thumbnails
from deepex.data.origin import describe_origin, find_files, is_packed
from deepex.data.packing.pack import PackConfig, Packed
from deepex.data.packing.pack import pack as pack_source
from deepex.data.packing.packed import PackedSource
from deepex.data.source import Source
from deepex.data.sources import READERS, guess_reader, open_source
from deepex.data.staging import clean_stage
from deepex.errors import DataError, Interrupted, UsageError
from deepex.fabric import Fabric, together
from deepex.launch.detect import find_world, refuse_ranks
from deepex.launch.launchers.launcher import Launched
from deepex.launch.rank import join
from deepex.record.sinks.progress_bar import ProgressBar
from deepex.tasks import TASKS_WITH_MAKERS, data_maker, data_path
from deepex.tasks.data.make import MakeOptions, make_data, write_pictures
from deepex.text import say_plural, say_size

DAY_SECONDS = 24 * 3600.0  # a rank may write its share for so long before it meets the others

ReaderOption = Annotated[
    str | None, typer.Option(metavar="READER", help=f"One of {', '.join(READERS)}. [default: by the files' endings]")
]
Options = Annotated[
    list[str] | None, typer.Argument(metavar="key=value", help="Options of the reader, as in channels=1.")
]

app = typer.Typer(help="Make, pack or check a data set, or look into one.", no_args_is_help=True)


@app.command("make", epilog="Example:  deepex data make protein frames=50 --out bba.h5")
def make(
    what: Annotated[
        str, typer.Argument(metavar="TASK", help=f"Whose data to simulate: {', '.join(TASKS_WITH_MAKERS)}.")
    ],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="key=value", help="Settings of the simulation, as in seed=1.")
    ] = None,
    size: Annotated[str, typer.Option(help="The size to begin from: small, medium or paper.")] = "small",
    out: Annotated[
        Path | None, typer.Option(help="The file to write. [default: where deepex run looks for it, in data/]")
    ] = None,
    ranks: Annotated[int | None, typer.Option(help="Ranks that simulate. [default: one a core]")] = None,
    skip_bad: Annotated[int, typer.Option(metavar="N", help="How many damaged images may be left out.")] = 0,
    png: Annotated[bool, typer.Option("--png", help="Write images as PNG files, train/CLASS and val/CLASS.")] = False,
) -> None:
    """Simulate a task's data set, or pack it from files of your own.

    Stop it when you like: the same command goes on where it stood.

    Started by srun, mpirun or torchrun, all ranks of all nodes simulate together.
    """
    maker = override(data_maker(what, size), options or [])
    out = Path("data") / f"{what}_{size}{'' if png else '.h5'}" if out is None else out
    launched = find_world()
    launched = None if launched is None or launched.world.size == 1 else launched
    if out.exists() and not png:
        raise DataError(f"{out} exists already. Choose another --out, or delete it.")
    num_ranks = _count_ranks(ranks, launched)
    with join(launched, DAY_SECONDS) as fabric, ProgressBar("making", speaks=fabric.world.is_first) as bar:
        by = MakeOptions(ranks=num_ranks, skip_bad=skip_bad, tell=bar.tell, fabric=fabric)
        try:
            if png:
                write_pictures(maker, out, by)
                outcome = f"pictures in {out / 'train'} and {out / 'val'}"
            else:
                made = make_data(maker, out, by)
                outcome = f"{out}: {made.num_samples:,} samples, content sha256 {made.content_sha256}"
        except KeyboardInterrupt:
            raise Interrupted("stopped; what is done is kept. Go on with the same command.") from None
    if fabric.world.is_first:
        print(outcome)


@app.command("pack", epilog="Example:  deepex data pack photos photos.h5 channels=3 height=224 width=224")
def pack(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A file, or a folder of files.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write, or the folder of shards.")],
    options: Options = None,
    reader: ReaderOption = None,
    ranks: Annotated[int | None, typer.Option(help="Ranks that read and write. [default: one a core]")] = None,
    shards: Annotated[int, typer.Option(help="Files to write, in a folder; 0 is one file and no folder.")] = 0,
    skip_bad: Annotated[
        int, typer.Option(metavar="N", help="How many samples may be left out since they can't be used.")
    ] = 0,
    keep_nan: Annotated[bool, typer.Option("--keep-nan", help="Keep samples with NaN or infinite values.")] = False,
    json_file: JsonOption = None,
) -> None:
    """Pack files into one HDF5 data set, with statistics and checksums.

    Stop it when you like: the same command goes on where it stood. Started by srun, mpirun or torchrun, all ranks of
    all nodes pack together.
    """
    launched = find_world()
    launched = None if launched is None or launched.world.size == 1 else launched
    config = PackConfig(ranks=_count_ranks(ranks, launched), shards=shards, skip_bad=skip_bad, keep_nan=keep_nan)
    _check_place(source, out)
    for_programs = JsonFile(json_file)
    with join(launched, DAY_SECONDS) as fabric:
        together(fabric, lambda: for_programs.check() if fabric.world.is_first else None)
        row = _pack(fabric, source, out, reader, options or [], config)
    if fabric.world.is_first:
        print_packed(console_for(for_programs.is_stdout), row)
        for_programs.write(json.dumps(row, indent=2) + "\n")


@app.command("check", epilog="Example:  deepex data check photos.h5 --sheet photos.png")
def check(
    path: Annotated[Path, typer.Argument(metavar="SOURCE|FILE", help="A packed data set, or any source.")],
    options: Options = None,
    reader: ReaderOption = None,
    sheet: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw some samples, with their names and classes.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(metavar="FIELD", help="A field that splits the samples. [default: by their names]")
    ] = None,
    validation_share: Annotated[float, typer.Option(help="What a split by name holds back.")] = 0.2,
    compare: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="What makes samples equal; again for another. [default: all but labels]"),
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Look for damage, NaN, constant channels, duplicates, leaks between train and validation, and rare classes.

    Ends with 1 if there are errors; warnings alone end with 0.
    """
    refuse_ranks("deepex data check")
    for_programs = JsonFile(json_file)
    for_programs.check()
    if sheet is not None:
        check_output(sheet, "--sheet")
    source = _open(path, reader, options or [], verify=False)
    if sheet is not None:
        choose_thumbnails(source.spec)  # refuses what can't be drawn before the long look
    with ProgressBar("checking", source.spec.num_bytes) as bar:
        findings = check_source(
            source, split=split, validation_share=validation_share, compare=compare or (), tell=bar.tell
        )
    console = console_for(for_programs.is_stdout)
    print_findings(console, path, findings)
    if sheet is not None:
        write_output(sheet, "--sheet", draw_sheet(source, path.absolute().resolve().name))
        console.print(f"sheet: {sheet}", soft_wrap=True)
    for_programs.write(json.dumps(findings_row(path, findings), indent=2) + "\n")
    if findings.of("error"):
        raise typer.Exit(1)


@app.command("info", epilog="Example:  deepex data info protein")
def info(
    what: Annotated[str, typer.Argument(metavar="TASK|FILE|SOURCE", help="A packed data set, any source, or a task.")],
    options: Options = None,
    reader: ReaderOption = None,
) -> None:
    """Print what is inside a data set, without reading all of it. Of a large packed one the header is verified."""
    path = data_path(what) or Path(what)
    source = _open(path, reader, options or [])
    print_inside(console_for(False), str(path), source, find_files(path).num_bytes)


@app.command("unstage", epilog="Example:  deepex data unstage /local/scratch/deepex")
def unstage(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder that runs staged data into.")],
) -> None:
    """Remove the copies that runs left in a folder of this node, and nothing else."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder. Give the one that data.stage named.")
    files, num_bytes = clean_stage(folder)
    print(
        f"{folder}: {say_plural(files, 'file')} removed, {say_size(num_bytes)} freed"
        if files
        else f"{folder}: nothing staged"
    )


def _pack(
    fabric: Fabric, path: Path, out: Path, reader: str | None, options: Sequence[str], config: PackConfig
) -> dict[str, Any]:
    """Pack as one rank, or alone; returns the outcome for programs."""

    source = together(fabric, lambda: _open(path, reader, options))
    known = source.attributes if isinstance(source, PackedSource) else {}
    name = "packed" if isinstance(source, PackedSource) else reader or guess_reader(path)
    first = fabric.world.is_first
    files = find_files(path, options) if first else None
    attributes = {**known, **describe_origin(path, name, options, source, files)} if files else {}
    is_resumed = out.with_name(out.name + ".parts").exists()
    begun = time.monotonic()
    try:
        with ProgressBar("packing", source.spec.num_bytes, speaks=first) as bar:
            packed: Packed = pack_source(
                source,
                out,
                config,
                attributes=attributes,
                fingerprint=files.fingerprint if files else "",
                tell=bar.tell,
                fabric=fabric,
            )
    except KeyboardInterrupt:
        raise Interrupted("stopped; what is packed is kept. Go on with the same command.") from None
    seconds = time.monotonic() - begun
    return packed_row(packed, find_files(out).num_bytes, seconds, source.spec.num_bytes, is_resumed)


def _count_ranks(ranks: int | None, launched: Launched | None) -> int:
    if launched is None:
        return len(os.sched_getaffinity(0)) if ranks is None else ranks
    if ranks not in (None, launched.world.size):
        raise UsageError(
            f"--ranks {ranks}, but {launched.world.launcher} started {launched.world.size}. Leave --ranks out there."
        )
    return 1


def _check_place(source: Path, out: Path) -> None:
    """Refuse a place for the packed set that is no place, or one inside its own source."""
    if "=" in out.name and not out.suffix == ".h5":
        raise UsageError(f"OUT is '{out}', which looks like an option. Write: deepex data pack SOURCE OUT key=value …")
    if source.is_dir() and source.resolve() in out.absolute().resolve().parents:
        raise DataError(f"{out} lies inside {source}, and would be read as a part of it. Choose a place beside it.")


def _open(path: Path, reader: str | None, options: Sequence[str], verify: bool = True) -> Source:
    """A packed data set, if that is what stands there and no reader is named; else what a reader finds."""
    if reader is None and is_packed(path):
        if options:
            raise UsageError(
                f"{path} is a packed data set, and has no options ({', '.join(options)}). Leave them out, or name the "
                "reader that has them with --reader."
            )
        return PackedSource(path, verify=verify)
    return open_source(path, reader, options)
