"""The numbers of a figure as CSV, a row a point. They know no drawing."""

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepex.report.paper.plotly_values import (
    find_axis,
    find_interval,
    find_pair,
    find_values,
    make_plain,
    read_title,
    untag,
)
from deepex.report.style import Figure


def write_numbers(figure: Figure) -> str:
    """A row a point: series, x, y and what else its trace has; a gap is an empty cell."""
    traces, layout = figure["data"], figure.get("layout", {})
    tables = [_tabulate(trace, f"trace {number}") for number, trace in enumerate(traces)]
    panels = _name_panels(traces, layout)
    if len(set(panels)) > 1:
        tables = [t | {"panel": [name] * len(t["x"])} for t, name in zip(tables, panels, strict=True)]
    order = ("series", "x", "y", "low", "high", "z", "colour", "panel")
    columns = [name for name in order if any(name in table for table in tables)]
    if len(traces) == 1 and "z" in columns:
        columns.remove("series")
    titles = [_find_column_titles(trace, layout) for trace in traces]
    header = []
    for name in columns:
        known = {title.get(name, "") for title in titles}
        header.append((known.pop() if len(known) == 1 else "") or name)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    for table in tables:
        count = len(table["x"])
        writer.writerows(zip(*(table.get(name, [None] * count) for name in columns), strict=True))
    return file.getvalue()


def _tabulate(trace: Figure, default_name: str) -> dict[str, list[Any]]:
    """A trace's columns; of a flat bar the name is x and the number y."""
    x, y = make_plain(find_values(trace, "x")), make_plain(find_values(trace, "y"))
    table: dict[str, list[Any]] = {"x": x, "y": y}
    is_flat = trace.get("orientation") == "h"
    if is_flat:
        table = {"x": y, "y": x}
    if trace.get("type") == "heatmap":
        table = {"x": x * len(y), "y": [name for name in y for _ in x], "z": make_plain(np.ravel(trace["z"]))}
    if trace.get("type") == "scatter3d":
        table["z"] = make_plain(trace["z"])
    if interval := find_interval(trace, "x" if is_flat else "y"):
        middle = np.asarray(table["y"], np.float64)
        table |= {"low": make_plain(middle - interval[0]), "high": make_plain(middle + interval[1])}
    colours = trace.get("marker", {}).get("color")
    if colours is not None and not isinstance(colours, str) and trace.get("type") != "bar":
        table["colour"] = make_plain(colours)
    return table | {"series": [untag(trace.get("name") or default_name)] * len(table["x"])}


def _find_column_titles(trace: Figure, layout: Figure) -> dict[str, str]:
    if trace.get("type") == "scatter3d":
        return {letter: untag(read_title(layout.get("scene", {}).get(f"{letter}axis", {}))) for letter in "xyz"}
    x, y = (untag(read_title(find_axis(layout, name))) for name in find_pair(trace))
    return {"x": y, "y": x} if trace.get("orientation") == "h" else {"x": x, "y": y}


def _name_panels(traces: Sequence[Figure], layout: Figure) -> list[str]:
    """Each trace's panel, by its axes' titles if those tell panels apart, or else by the axes' names."""
    pairs = [find_pair(trace) for trace in traces]
    titles = [", ".join(filter(None, (untag(read_title(find_axis(layout, name))) for name in pair))) for pair in pairs]
    return titles if len(set(titles)) == len(set(pairs)) else [" ".join(pair) for pair in pairs]
