"""Docstrings of this project as reStructuredText, which autodoc expects; napoleon then reads their sections.

The docstrings are plain text with a little Markdown: `code` in single backticks, lists that follow a line at once,
formulas in indented lines, a program below `Example:`. None of them should have to be written for Sphinx, and none can
break the site.
"""

import re
from itertools import groupby
from typing import Any

from sphinx.application import Sphinx

BEFORE_NAPOLEON = 400
SECTION = re.compile(r"(Arguments|Attributes|Examples?|Notes?|Raises|References?|Returns|Yields):")
ITEM = re.compile(r"([-*]|\d+\.) ")
CODE = re.compile(r"(?<!`)`((?:[^`\n]|\n(?!\s*\n))+)`(?!`)")
KEPT = ("doctest", "example", "formula")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", process, priority=BEFORE_NAPOLEON)
    app.connect("autodoc-process-signature", process_signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def process(app: Sphinx, what: str, name: str, subject: object, options: object, lines: list[str]) -> None:
    lines[:] = translate(lines)


def process_signature(
    app: Sphinx, what: str, name: str, subject: object, options: object, signature: str | None, returns: str | None
) -> tuple[str, str] | None:
    """None for a protocol, which nobody makes by calling it; defaults that a dataclass makes, as dots."""
    if what == "class" and getattr(subject, "_is_protocol", False):
        return "", ""
    return (signature.replace("<factory>", "..."), returns or "") if signature else None


def translate(lines: list[str]) -> list[str]:
    """The lines of a docstring, each taken by what it is part of: text, list, section, doctest, example, formula."""
    kind, found = "text", list[tuple[bool, str]]()
    for number, line in enumerate(lines):
        indented, text = line.startswith(" "), line.strip()
        empty = not found or not found[-1][1]
        if not text:
            kind = "text" if kind == "doctest" else kind
        elif not indented:
            before, kind = kind, _kind(text, kind)
            if kind != before and not empty:
                found.append((True, ""))
        elif kind == "text":
            found += [(True, "")] * (not empty) + [(True, "::"), (True, "")]
            kind = "formula"
        if text and not indented and kind == "example":
            language = "pycon" if "".join(lines[number + 1 :]).lstrip().startswith(">>>") else "python"
            found += [(True, f"**{text.rstrip(':')}**"), (True, ""), (True, f".. code-block:: {language}"), (True, "")]
        else:
            found.append((kind in KEPT, line.rstrip()))
    translated = []
    for kept, group in groupby(found, key=lambda each: each[0]):
        joined = "\n".join(line for _, line in group)
        translated += (joined if kept else escape(joined)).split("\n")
    return [*translated, ""]


def _kind(text: str, before: str) -> str:
    if SECTION.fullmatch(text):
        return "example" if text.startswith("Example") else "section"
    if text.startswith(">>>") or before == "doctest":
        return "doctest"
    return "list" if ITEM.match(text) else "text"


def escape(text: str) -> str:
    """Text in which backticks mean code and no other character has a meaning.

    >>> print(escape("the mean of `w`s, |d| * v_"))
    the mean of ``w``\\ s, \\|d\\| \\* v\\_
    """
    parts, end = [], 0
    for code in CODE.finditer(text):
        before, after = text[end : code.start()], text[code.end() : code.end() + 1]
        parts += [_plain(before), "\\ " * before[-1:].isalnum(), f"``{code[1]}``", "\\ " * after.isalnum()]
        end = code.end()
    return "".join([*parts, _plain(text[end:])])


def _plain(text: str) -> str:
    text = re.sub(r"([\\*|])", r"\\\1", text)
    return re.sub(r"_(?!\w)|(?<=\b[A-Za-z])\.", r"\\\g<0>", text)  # a link, and a list from A or H on
