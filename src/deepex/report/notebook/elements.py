"""What cards in a notebook are made of: inline styles, no scripts, and the theme's own text colour. It knows no run."""

import math
import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from deepex.report.html import typeset
from deepex.report.style import PHASE_COLOURS
from deepex.text import say_share, say_value

# Colours between black and white, for the eye on light pages and on dark ones.
LINE, GOAL, FAINT = "#4a8fd0", "#d0576f", "rgba(128,128,128,0.35)"
GOOD, OPEN, BAD, BUSY = "#2f8f6b", "#b07a1e", "#d0576f", "#4a8fd0"
DIM = "opacity:0.75"
WIDTH, HEIGHT, MARGIN = 600, 84, 6
MOST_POINTS = 160
LEAST_SPAN = 50  # between the largest and the smallest value, from which the curve's axis is logarithmic


def show_card(*parts: str) -> str:
    """Parts below each other, in a frame."""
    style = (
        f"border:1px solid {FAINT};border-radius:8px;padding:12px 16px;margin:4px 0;max-width:760px;"
        "font-family:system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;font-size:13px;line-height:1.45"
    )
    return f'<div style="{style}">{"".join(parts)}</div>'


def show_title(name: str, words: str, mark: str, colour: str) -> str:
    """A name, a few words about it, and a coloured mark that says how it stands."""
    return (
        '<div style="display:flex;flex-wrap:wrap;gap:2px 10px;align-items:baseline">'
        f'<b style="font-size:15px">{escape(name)}</b><span style="{DIM}">{typeset(words)}</span>'
        f'<span style="margin-left:auto;color:{colour};font-weight:600;white-space:nowrap">● {escape(mark)}</span>'
        "</div>"
    )


def show_tiles(tiles: Sequence[tuple[str, str]]) -> str:
    """Figures side by side, each with its words below."""
    shown = "".join(
        f'<div><div style="font-size:17px;font-weight:600;white-space:nowrap">{escape(figure)}</div>'
        f'<div style="{DIM};font-size:12px;max-width:190px">{typeset(words)}</div></div>'
        for figure, words in tiles
    )
    return f'<div style="display:flex;flex-wrap:wrap;gap:8px 26px;margin-top:8px">{shown}</div>'


def show_bar(share: float) -> str:
    """How much of a whole is done."""
    done = f"width:{100 * min(max(share, 0.0), 1.0):.1f}%;height:100%;background:{LINE};border-radius:3px"
    return (
        f'<div style="height:6px;background:{FAINT};border-radius:3px;margin-top:10px"><div style="{done}"></div></div>'
    )


def show_phases(seconds: Mapping[str, float]) -> str:
    """Where the time went, as a bar of phases with its legend; nothing where no time was measured."""
    total = sum(seconds.values())
    if not total:
        return ""
    known = {name: spent / total for name, spent in seconds.items() if spent > 0}
    bar = "".join(
        f'<div title="{escape(name)} {say_share(share)}" style="width:{100 * share:.2f}%;'
        f'background:{PHASE_COLOURS[name]}"></div>'
        for name, share in known.items()
    )
    legend = "".join(
        '<span style="white-space:nowrap"><span style="display:inline-block;width:10px;height:10px;border-radius:2px;'
        f'background:{PHASE_COLOURS[name]};margin-right:5px"></span>{escape(name)} {typeset(say_share(share))}</span>'
        for name, share in known.items()
    )
    return (
        f'<div style="display:flex;height:12px;border-radius:3px;overflow:hidden;margin-top:12px">{bar}</div>'
        f'<div style="display:flex;flex-wrap:wrap;gap:2px 14px;margin-top:4px;font-size:12px">{legend}</div>'
    )


def show_curve(values: Sequence[float], threshold: float | None, caption: str) -> str:
    """Values one after the other as a line, with a dashed one at the target; nothing for fewer than two."""
    points = _thin_out([(place, value) for place, value in enumerate(values) if math.isfinite(value)])
    if len(points) < 2:
        return ""
    heights = [value for _, value in points] + ([] if threshold is None else [threshold])
    is_logarithmic = min(heights) > 0 and max(heights) / min(heights) > LEAST_SPAN
    scale = math.log if is_logarithmic else float
    low, high = scale(min(heights)), scale(max(heights))

    def across(place: int) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * place / (len(values) - 1)

    def down(value: float) -> float:
        share = (scale(value) - low) / (high - low) if high > low else 0.5
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * share

    line = " ".join(f"{across(place):.1f},{down(value):.1f}" for place, value in points)
    last_place, last = points[-1]
    goal = ""
    if threshold is not None:
        goal = (
            f'<line x1="0" x2="{WIDTH}" y1="{down(threshold):.1f}" y2="{down(threshold):.1f}" stroke="{GOAL}" '
            'stroke-dasharray="5 4"/>'
        )
    drawing = (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(caption)}" style="display:block;max-width:100%">{goal}'
        f'<polyline points="{line}" fill="none" stroke="{LINE}" stroke-width="2" stroke-linejoin="round"/>'
        f'<circle cx="{across(last_place):.1f}" cy="{down(last):.1f}" r="3.5" fill="{LINE}"/></svg>'
    )
    style = f"{DIM};font-size:11px;display:flex;flex-direction:column;justify-content:space-between;padding:1px 0"
    axis = f'<div style="{style}"><span>{say_value(max(heights))}</span><span>{say_value(min(heights))}</span></div>'
    words = f'<div style="{DIM};font-size:11px">{typeset(caption + (", logarithmic" if is_logarithmic else ""))}</div>'
    return f'<div style="margin-top:12px"><div style="display:flex;gap:6px">{axis}{drawing}</div>{words}</div>'


def show_text(text: str, style: str = "") -> str:
    """A paragraph of plain words."""
    return show_line(typeset(text), style)


def show_line(content: str, style: str = "") -> str:
    """A paragraph of HTML."""
    return f'<div style="margin-top:8px;{style}">{content}</div>'


def show_code(text: str) -> str:
    """Something to type."""
    style = "background:rgba(128,128,128,0.16);color:inherit;padding:1px 4px;border-radius:3px;font-size:12px"
    return f'<code style="{style}">{escape(text)}</code>'


def show_link(page: Path, words: str) -> str:
    """A link to a file, by its way from the notebook's folder."""
    way = os.path.relpath(page.resolve(), Path.cwd())
    return f'<a href="{escape(quote(way))}" target="_blank" style="color:{LINE}">{escape(words)}</a>'


def show_hidden(heading: str, lines: Sequence[str]) -> str:
    """Lines behind a heading that opens them; nothing without lines."""
    if not lines:
        return ""
    shown = "".join(f"<div>{typeset(line)}</div>" for line in lines)
    return (
        f'<details style="margin-top:8px;font-size:12px;{DIM}"><summary style="cursor:pointer">{escape(heading)}'
        f"</summary>{shown}</details>"
    )


def _thin_out(points: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """So many points as a small drawing can show, the last among them."""
    stride = -(-len(points) // MOST_POINTS)
    return [*points[:-1][::stride], *points[-1:]] if stride > 1 else points
