"""What `deepex data` prints: the outcome of a packing, findings of a check, what is inside a data set."""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from deepex.data.checking.findings import Finding, Findings
from deepex.data.packing.pack import Packed
from deepex.data.packing.packed import VERIFIED_BYTES, PackedSource
from deepex.data.source import Source
from deepex.data.statistics import Moments
from deepex.sample import Field
from deepex.text import say_list, say_plural, say_size

STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
SHOWN_NAMES, SHOWN_CLASSES, SHOWN_CHANNELS = 5, 20, 64
WIDTH = 100  # of text that is not on a terminal


def console_for(to_stderr: bool) -> Console:
    """A console that prints names as they are, and lines as long as the terminal."""
    plain = Console(stderr=to_stderr)
    width = plain.width if plain.is_terminal else WIDTH
    return Console(stderr=to_stderr, highlight=False, markup=False, emoji=False, width=width)


def packed_row(packed: Packed, num_bytes: int, seconds: float, sample_bytes: int, resumed: bool) -> dict[str, Any]:
    """The outcome of a packing, for programs. What went on with an earlier try has no rate."""
    rate = None if resumed else packed.num_samples / seconds
    return {
        "path": str(packed.path),
        "samples": packed.num_samples,
        "bytes": num_bytes,
        "content_sha256": packed.content_sha256,
        "seconds": round(seconds, 3),
        "samples_per_second": rate,
        "mib_per_second": rate and rate * sample_bytes / 2**20,
        "left_out": dict(packed.left_out),
    }


def print_packed(console: Console, row: Mapping[str, Any]) -> None:
    """The outcome of a packing."""
    rate = "going on with an earlier try"
    if row["samples_per_second"] is not None:
        rate = f"{row['samples_per_second']:,.0f} samples/s, {row['mib_per_second']:,.1f} MiB/s"
    console.print(
        f"{row['path']}: {say_plural(row['samples'], 'sample')}, {say_size(row['bytes'])}, packed in "
        f"{row['seconds']:.1f} s ({rate})",
        soft_wrap=True,
    )
    console.print(f"content sha256 {row['content_sha256']}", soft_wrap=True)
    _print_left_out(console, row["left_out"])


def findings_row(path: Path, findings: Findings) -> dict[str, Any]:
    """All findings, for programs."""
    return {
        "path": str(path),
        "verdict": verdict(path, findings),
        "errors": len(findings.of("error")),
        "warnings": len(findings.of("warning")),
        "samples": findings.num_samples,
        "bytes": findings.num_bytes,
        "compared": list(findings.compared),
        "findings": [asdict(item) for item in findings.items],
    }


def verdict(path: Path, findings: Findings) -> str:
    """What came of a check, in a sentence."""
    errors, warnings = len(findings.of("error")), len(findings.of("warning"))
    looked = f"{say_plural(findings.num_samples, 'sample')}, {say_size(findings.num_bytes)} looked at"
    if errors:
        more = f" and {say_plural(warnings, 'warning')}" if warnings else ""
        return f"{path} should not be trained on as it is: {say_plural(errors, 'error')}{more} ({looked})."
    if warnings:
        return f"{path} can be trained on, with {say_plural(warnings, 'warning')} ({looked})."
    return f"{path} is sound: no errors, no warnings ({looked})."


def print_findings(console: Console, path: Path, findings: Findings) -> None:
    """The verdict first, then each finding with its samples and its cure."""
    console.print(verdict(path, findings), soft_wrap=True)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for item in findings.items:
        table.add_row(Text(item.severity, style=STYLES[item.severity]), Text(item.kind), Text(_told(item)))
    console.print(table)


def print_inside(console: Console, what: str, source: Source, num_bytes: int) -> None:
    """What is inside a data set: fields and what is known of their values, without reading them all."""
    packed = source if isinstance(source, PackedSource) else None
    console.print(f"{what}: {say_plural(len(source), 'sample')}, {say_size(num_bytes)} on disk", soft_wrap=True)
    if packed is not None:
        verified = (
            "verified" if num_bytes <= VERIFIED_BYTES else f"header verified; all of it: deepex data check {what}"
        )
        console.print(f"content sha256 {packed.content_sha256} ({verified})", soft_wrap=True)
        if len(packed.files) > 1:
            console.print(f"{len(packed.files)} shards")
    first = [source.name(index) for index in range(min(len(source), SHOWN_NAMES + 1))]
    ending = ", …" if len(source) > SHOWN_NAMES else ""
    console.print(f"samples: {', '.join(first[:SHOWN_NAMES])}{ending}", soft_wrap=True)
    moments = packed.moments if packed is not None else {}
    table = _field_table(source.spec.fields, moments)
    measured = Console(width=1000).measure(table).maximum
    console.width = max(console.width, measured)  # columns that break are unreadable
    console.print(table)
    for name, field in source.spec.fields.items():
        if field.classes:
            counts = packed.class_counts[name] if packed is not None else None
            told = [each if counts is None else f"{each} {counts[i]:,}" for i, each in enumerate(field.classes)]
            console.print(f"{name}: {len(told)} classes: {say_list(told, SHOWN_CLASSES)}", soft_wrap=True)
    if packed is not None:
        _print_attributes(console, packed.attributes)


def _told(item: Finding) -> str:
    samples = f"\nsamples: {', '.join(item.samples)}" if item.samples else ""
    cure = f"\ncure: {item.cure}." if item.cure else ""
    return f"{item.sentence}{samples}{cure}"


def _field_table(fields: Mapping[str, Field], moments: Mapping[str, Moments]) -> Table:
    figures = ("least", "mean", "deviation", "most") if moments else ()
    table = Table("field", "shape", "dtype", "unit", box=None, padding=(0, 2, 0, 0))
    for figure in figures:
        table.add_column(figure, justify="right")
    table.add_column("description")
    for name, field in fields.items():
        rows = list(_figures(field, moments[name])) if moments else []
        shape = " × ".join(map(str, field.shape)) or "one number"
        first = rows[0][1] if len(rows) == 1 else [""] * len(figures)
        table.add_row(*_plain(name, shape, field.dtype, field.unit, *first, field.description))
        for channel, row in rows[:SHOWN_CHANNELS] if len(rows) > 1 else []:
            table.add_row(*_plain(f"  {channel}", "", "", "", *row, ""))
        if len(rows) > SHOWN_CHANNELS:
            table.add_row(*_plain(f"  and {len(rows) - SHOWN_CHANNELS} more"))
    return table


def _figures(field: Field, moments: Moments) -> Iterator[tuple[str, list[str]]]:
    """Least, mean, deviation and most of each channel; class numbers have none that mean anything."""
    for number, channel in enumerate(field.channels or ("",)):
        values = (moments.minimum, moments.mean, moments.deviation, moments.maximum)
        yield channel, [""] * 4 if field.classes else [f"{value[number]:.4g}" for value in values]


def _plain(*cells: str) -> list[Text]:
    return [Text(cell) for cell in cells]


def _print_attributes(console: Console, attributes: Mapping[str, Any]) -> None:
    for key, value in attributes.items():
        if key == "left_out":
            _print_left_out(console, value)
        elif isinstance(value, list):
            console.print(f"{key}: {len(value)} entries", soft_wrap=True)
        else:
            console.print(f"{key}: {_flat(value)}", soft_wrap=True)


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_flat(each)}" for key, each in value.items() if each not in ({}, None)) or "none"
    return str(value)


def _print_left_out(console: Console, left_out: Mapping[str, str]) -> None:
    if not left_out:
        return
    console.print(f"{say_plural(len(left_out), 'sample')} left out:")
    for name, reason in list(left_out.items())[:SHOWN_NAMES]:
        console.print(textwrap.indent(f"{name}: {reason}", "  "), soft_wrap=True)
    if len(left_out) > SHOWN_NAMES:
        console.print(f"  and {len(left_out) - SHOWN_NAMES:,} more")
