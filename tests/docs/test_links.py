"""Links between pages lead to files and headings, on a code host as on the site."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.pages import PAGES, ROOT, Page, name

LINKING = [*PAGES, ROOT / "CHANGELOG.md", *sorted((ROOT / "benchmarks").glob("*.md"))]


@pytest.mark.parametrize("path", LINKING, ids=name)
def test_links_lead_to_files_and_headings(path: Path) -> None:
    assert find_broken(path) == []


def test_links_that_lead_nowhere_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(
        "# A\n[1](b.md#here) [2](b.md#there) [3](c.md) [4](#a) [5](#b) [6](https://x.org/c.md)"
    )
    (tmp_path / "b.md").write_text("## Here\n")
    assert find_broken(tmp_path / "a.md") == ["b.md#there", "c.md", "#b"]


def find_broken(path: Path) -> list[str]:
    """Links of a page that lead to no file of the repository, or to no heading of it."""
    broken = []
    for link in Page(path.read_text()).links:
        if re.match(r"\w+:", link):  # another site's
            continue
        file, _, anchor = unquote(link).partition("#")
        target = path.parent / file if file else path
        if not target.exists() or (anchor and anchor not in Page(target.read_text()).anchors):
            broken.append(link)
    return broken
