"""Plotly's words as plain values: a trace's axes and numbers, colours, titles. It knows no drawing."""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import unescape
from typing import Any

import numpy as np
from matplotlib.colors import to_rgba
from numpy.typing import NDArray

from deepex.report.style import Figure

TAGS = r"</?(?:a|b|em|i|span|strong|sub|sup)\b[^>]*>"


def choose(table: Mapping[str, Any], given: Any, what: str) -> Any:
    if not isinstance(given, str) or given not in table:
        raise ValueError(f"{what} {given} can't be drawn for a paper; these can: {', '.join(filter(None, table))}.")
    return table[given]


def find_pair(trace: Figure) -> tuple[str, str]:
    """The names of a trace's axes."""
    if trace.get("type") == "scatter3d":
        return "scene", "scene"
    return trace.get("xaxis", "x"), trace.get("yaxis", "y")


def find_axis(layout: Figure, name: str) -> dict[str, Any]:
    return dict(layout.get(f"{name[0]}axis{name[1:]}") or {})


def find_domain(layout: Figure, name: str) -> Sequence[float]:
    return tuple(find_axis(layout, name).get("domain") or (0.0, 1.0))


def find_values(trace: Figure, letter: str) -> Any:
    """A trace's values along an axis; without any, plotly counts from 0."""
    if trace.get(letter) is not None:
        return trace[letter]
    if trace.get("type") == "heatmap":
        return range(np.shape(trace["z"])["yx".index(letter)])
    return range(len(trace.get("y" if letter == "x" else "x", ())))


def make_plain(values: Iterable[Any]) -> list[Any]:
    """Values as Python's own, a gap as None."""
    plain = np.asarray(values).tolist() if isinstance(values, np.ndarray) else list(values)
    return [None if value is None or value != value else value for value in plain]


def find_interval(trace: Figure, letter: str) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """How far error bars reach below and above."""
    error = trace.get(f"error_{letter}")
    if not error or error.get("visible") is False:
        return None
    if error.get("array") is None:
        raise ValueError("error bars without an array can't be drawn for a paper.")
    above, below = np.asarray(error["array"], np.float64), error.get("arrayminus")
    return (above if below is None or error.get("symmetric") else np.asarray(below, np.float64)), above


def read_colour(given: Any, opacity: float = 1.0) -> tuple[float, float, float, float]:
    """A colour of CSS as matplotlib knows it."""
    if isinstance(given, str) and given.startswith("rgb"):
        parts = [float(part) for part in re.findall(r"[\d.]+", given)]
        given = (*(part / 255 for part in parts[:3]), *parts[3:])
    red, green, blue, own = to_rgba(given)
    return red, green, blue, own * opacity


def read_title(settings: Mapping[str, Any]) -> str:
    title = settings.get("title") or ""
    return title if isinstance(title, str) else title.get("text") or ""


def typeset(text: Any) -> str:
    """Text with its raised and lowered parts as mathematics, and without other tags."""
    plain = re.sub(r"<br\s*/?>", "\n", str(text)).replace("$", r"\$")
    for tag, sign in (("sub", "_"), ("sup", "^")):
        plain = re.sub(rf"<{tag}>(.*?)</{tag}>", rf"${sign}{{\\mathrm{{\1}}}}$", plain)
    return unescape(re.sub(TAGS, "", plain))


def untag(text: Any) -> str:
    return unescape(re.sub(TAGS, "", re.sub(r"<br\s*/?>", " ", str(text))))
