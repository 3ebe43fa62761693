"""The input benchmark for people: a table on the terminal, and a Markdown file that names its hardware."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from deepex.bench.input.benchmark import SOURCES, Row
from deepex.text import say_percent

RESTLESS = 0.3  # a spread above this makes a ratio doubtful
HEADINGS = ("variant", "samples/s", "ratio", "of memcpy", "input share", "spread", "turns")
LEGEND = (
    "Samples a second, medians over turns, page cache warm; ratio: to the best DataLoader on the same source (of "
    "packing and decoding: to OpenCV's decoding); of memcpy: float32 bytes delivered, over those that torch copies in "
    "memory on all cores, or on one if that is faster; input share: of a run's step time after its first epoch; "
    "spread: the middle half of the turns. deepex keeps samples in memory after the first epoch, as runs do; "
    "deepex-uncached reads the files each time."
)


def cells(row: Row) -> tuple[str, ...]:
    """A row as text."""
    return (
        row.variant,
        f"{row.samples_per_second:,.0f}",
        "" if row.ratio is None else f"{row.ratio:.2f}",
        "" if row.share_of_memcpy is None else say_percent(row.share_of_memcpy, 1),
        "" if row.input_share is None else say_percent(row.input_share, 2),
        say_percent(row.spread),
        str(row.turns),
    )


def terminal_table(rows: Sequence[Row]) -> Table:
    """All sources below each other."""
    table = Table(*("source", *HEADINGS), box=None, padding=(0, 2, 0, 0))
    for source in dict.fromkeys(row.source for row in rows):
        for number, row in enumerate(row for row in rows if row.source == source):
            table.add_row(source if number == 0 else "", *cells(row))
        table.add_section()
    return table


def conclusions(rows: Sequence[Row]) -> list[str]:
    """What the rows say, a sentence each."""
    found = {(row.source, row.variant): row for row in rows}
    names = {"packed": "packed 10 kB samples", "map": "10 kB samples in a NumPy map", "png": "PNG files"}
    sentences = [_compare(found, source, words) for source, words in names.items() if (source, "deepex") in found]
    if ("climate", "deepex") in found:
        row, uncached = found["climate", "deepex"], found["climate", "deepex-uncached"]
        sentences.append(
            f"On 16×192×288 float32 samples the feed has {say_percent(row.share_of_memcpy)} of the machine's copy "
            f"bandwidth ({say_percent(uncached.share_of_memcpy)} from the file), {row.ratio:.2f} times the best "
            "DataLoader."
        )
    if ("png", "deepex-pack") in found:
        sentences.append(_packing(found["png", "deepex-pack"]))
    sentences += [
        f"A {SOURCES[row.source]} waits {say_percent(row.input_share, 2)} of its step time for input, "
        f"{say_percent(row.first_input_share, 2)} in its first epoch."
        for row in rows
        if row.input_share is not None
    ]
    sentences += [
        f"A {SOURCES[row.source]} has at most {say_percent(row.share_of_memory)} of it."
        for row in rows
        if row.share_of_memory is not None
    ]
    return sentences + _doubts(rows)


def markdown(rows: Sequence[Row], facts: Mapping[str, Any]) -> str:
    """The same as a file to keep: hardware, command, tables, conclusions."""
    lines = ["# Input benchmark", "", *(f"- {name}: {value}" for name, value in facts.items()), "", LEGEND, ""]
    for source in dict.fromkeys(row.source for row in rows):
        lines += [f"## {SOURCES[source]}", "", f"| {' | '.join(HEADINGS)} |", "| --- " * len(HEADINGS) + "|"]
        lines += [f"| {' | '.join(cells(row))} |" for row in rows if row.source == source]
        lines.append("")
    return "\n".join([*lines, *(f"- {sentence}" for sentence in conclusions(rows)), ""])


def _compare(found: Mapping[tuple[str, str], Row], source: str, words: str) -> str:
    """The feed beside the others, on small samples."""
    rates = {variant: row.samples_per_second for (of, variant), row in found.items() if of == source}
    loaders = {variant: rate for variant, rate in rates.items() if variant.startswith("dataloader")}
    best = max(loaders, key=loaders.__getitem__)
    deepex = rates["deepex"]
    web = f" and {deepex / rates['webdataset']:.2f} times webdataset" if "webdataset" in rates else ""
    return (
        f"On {words} the feed gives {deepex / rates[best]:.2f} times the best DataLoader ({best}), "
        f"{deepex / rates['dataloader-2']:.2f} times DataLoader with 2 workers{web}; without samples kept in memory, "
        f"{rates['deepex-uncached'] / rates[best]:.2f} times the best DataLoader."
    )


def _doubts(rows: Sequence[Row]) -> list[str]:
    """A warning if turns differed so much that their medians say little."""
    restless = [f"{row.variant} on {row.source} {say_percent(row.spread)}" for row in rows if row.spread > RESTLESS]
    if not restless:
        return []
    return [f"The machine was not quiet, so take these ratios with care. Spread: {', '.join(restless)}."]


def _packing(row: Row) -> str:
    if row.ratio is None:
        return f"Packing PNG files: {row.samples_per_second:,.0f} a second."
    return (
        f"Packing PNG files takes {1 / row.ratio:.2f} times as long as OpenCV takes to decode them on all cores: "
        f"{row.samples_per_second:,.0f} a second."
    )
