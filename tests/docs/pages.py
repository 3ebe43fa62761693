"""Reads the Markdown pages of the repository: their links, headings, blocks and examples. It judges nothing."""

import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARKER = re.compile(r"<!-- not run: (\S.*) -->")
GUARD = 'import runpy\n\nif __name__ == "__main__":\n    runpy.run_path("page.py", run_name="__main__")\n'


def name(page: Path) -> str:
    """What a page is called in the list of tests."""
    return str(page.relative_to(ROOT))


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block.

    Attributes:
        language: the first word behind the fence; empty if there is none.
        line: the number of its first line in the page, from 1.
        not_run: why it is not run, from the comment before it; empty if it is.
    """

    language: str
    line: int
    text: str
    not_run: str


class Page:
    """A page, taken apart as a code host does."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = MarkdownIt("commonmark").enable("table").parse(text)
        self._parts = [part for token in self._tokens for part in token.children or ()]

    @cached_property
    def links(self) -> list[str]:
        """Where its links lead and its images are, as written."""
        parts = [part for part in self._parts if part.type in ("link_open", "image")]
        return [str(part.attrGet("href") or part.attrGet("src")) for part in parts]

    @cached_property
    def anchors(self) -> set[str]:
        """The names by which links call its headings; the second of a name has a number."""
        found, anchors = Counter[str](), set()
        for opening, heading in zip(self._tokens, self._tokens[1:], strict=False):
            if opening.type == "heading_open":
                words = "".join(part.content for part in heading.children or () if part.type in ("text", "code_inline"))
                anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
                anchors.add(f"{anchor}-{found[anchor]}" if found[anchor] else anchor)
                found[anchor] += 1
        return anchors

    @cached_property
    def blocks(self) -> list[Block]:
        return [
            Block(
                language=(token.info.split() or [""])[0],
                line=(token.map or [0])[0] + 2,
                text=token.content,
                not_run=_find_reason(before),
            )
            for before, token in zip([None, *self._tokens], self._tokens, strict=False)
            if token.type == "fence"
        ]

    @cached_property
    def code_in_text(self) -> list[str]:
        """What stands between backticks within sentences and tables."""
        return [part.content for part in self._parts if part.type == "code_inline"]

    @property
    def examples(self) -> list[Block]:
        """Blocks of Python that are run."""
        return [block for block in self.blocks if block.language == "python" and not block.not_run]

    @property
    def program(self) -> str:
        """Its examples one after the other, each line where it has its place in the page, for tracebacks."""
        lines: list[str] = []
        for example in self.examples:
            lines += [""] * (example.line - 1 - len(lines)) + example.text.splitlines()
        return "\n".join(lines) + "\n"


def run_page(page: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run the examples of a page in a folder, as a user's script; a process that imports the script runs nothing."""
    (folder / "page.py").write_text(Page(page.read_text()).program)
    (folder / "main.py").write_text(GUARD)
    return subprocess.run([sys.executable, "main.py"], cwd=folder, capture_output=True, text=True, timeout=240)


def _find_reason(before: Token | None) -> str:
    found = MARKER.fullmatch(before.content.strip()) if before is not None and before.type == "html_block" else None
    return found[1] if found else ""
