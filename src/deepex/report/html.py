"""The frame of every page: sections, figures with their choices, and one self-contained file. It knows no run."""

import json
import re
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from deepex.report.style import Figure

Choice = dict[str, Any]
"""What a button changes: its `name`, new values for `traces` and for `layout`, as Plotly.update takes them."""


def fill_page(*, title: str, caption: str, found: str, tiles: str, sections: Sequence[str], record: str) -> str:
    """The whole page as text; `title` and `caption` are plain, the rest is HTML."""
    from plotly.offline import get_plotlyjs  # only a page needs it: a third of what importing deepex takes

    return Template(_asset("page.html")).substitute(
        title=escape(title),
        caption=escape(caption),
        found=found,
        tiles=tiles,
        sections="\n".join(sections),
        record=record,
        style=_asset("page.css"),
        plotly=get_plotlyjs(),
        script=_asset("page.js"),
    )


def show_sentences(sentences: Sequence[str]) -> str:
    """What was found, a paragraph each."""
    return "".join(f"<p>{typeset(sentence)}</p>" for sentence in sentences)


def show_section(title: str, caption: str, content: str) -> str:
    return f'<section><h2>{escape(title)}</h2><p class="caption">{typeset(caption)}</p>{content}</section>'


class Gallery:
    """Shows figures on a page, and keeps them to be saved beside it for a paper."""

    def __init__(self) -> None:
        self.figures: dict[str, Figure] = {}

    def show(self, name: str, figure: Figure, choices: Sequence[Choice] = (), question: str = "") -> str:
        """A place for a figure, and its data; `<` is escaped so that no text of a task can end the script."""
        from plotly.io import to_json  # as above

        self.figures[name] = figure
        data = f'{{"figure": {to_json(figure)}, "choices": {json.dumps(list(choices))}}}'.replace("<", "\\u003c")
        height = figure["layout"]["height"]
        return (
            _show_choices(name, choices, question)
            + f'<div class="figure" id="{name}" style="min-height:{height}px"></div>'
            + f'<script type="application/json" data-for="{name}">{data}</script>'
        )

    def save(self, folder: Path) -> None:
        """Write each figure as PNG, PDF and CSV."""
        from deepex.report.paper.paper import save_figures  # takes half a second to import, which few commands need

        if self.figures:
            save_figures(self.figures, folder)


def _show_choices(name: str, choices: Sequence[Choice], question: str) -> str:
    if not choices:
        return ""
    buttons = "".join(
        f'<button type="button" data-index="{index}" aria-pressed="{str(index == 0).lower()}">'
        f"{escape(choice['name'])}</button>"
        for index, choice in enumerate(choices)
    )
    return (
        f'<div class="choices" data-for="{name}" role="group" aria-label="{escape(question)}">'
        f"<span>{escape(question)}</span>{buttons}</div>"
    )


def typeset(text: str) -> str:
    """Plain text as HTML, with the indices of S_p, S_L, T_s, N_p and their like below the line.

    >>> typeset("S_p = T_s/T_p < 2 %")
    'S<sub>p</sub> = T<sub>s</sub>/T<sub>p</sub> &lt;\\xa02\\xa0%'
    """
    return re.sub(r"\b([NST])_([Lps])\b", r"\1<sub>\2</sub>", unbroken(escape(text)))


def unbroken(text: str) -> str:
    """Escaped text in which no line ends between a number and its unit or its sign."""
    return re.sub(r"(?<=\d) (?=%|×|[µm]?s\b|min\b|h\b|[kMG]?B\b)|(?<=&[lg]t;) (?=\d)", "\u00a0", text)


def _asset(name: str) -> str:
    return (resources.files("deepex.report") / name).read_text(encoding="utf-8")
