"""The documentation site, as `make docs` builds it: no warnings, no broken links, and the code's own names."""

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import deepex
from deepex import models
from deepex.sync import STRATEGIES
from tests.docs.pages import ROOT

LOADED = {"img": "src", "script": "src", "link": "href"}
MOST_SECONDS = 120


class Html(HTMLParser):
    """What a page links to, loads and can be linked to by."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links, self.loaded, self.anchors = set[str](), set[str](), set[str]()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value for key, value in attrs if value}
        self.anchors |= {given["id"]} if "id" in given else set()
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        if tag in LOADED and LOADED[tag] in given:
            self.loaded.add(given[LOADED[tag]])


def test_the_site_builds_without_warnings_and_everything_in_it_is_found(tmp_path: Path) -> None:
    site = tmp_path / "site"
    words = ["-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--jobs", "1", "--conf-dir", "docs"]
    command = [sys.executable, *words, "--doctree-dir", str(tmp_path / "doctrees"), ".", str(site)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=MOST_SECONDS)
    assert (done.returncode, done.stderr) == (0, "")

    pages = {path: Html(path) for path in site.rglob("*.html")}
    assert find_broken(pages) == []
    assert [each for page in pages.values() for each in page.loaded if "//" in each] == []  # it opens without a network

    reference = site / "docs" / "reference"
    assert {f"deepex.{name}" for name in deepex.__all__} <= pages[reference / "names.html"].anchors
    assert {f"deepex.models.{name}" for name in models.__all__} <= pages[reference / "networks.html"].anchors
    assert set(STRATEGIES) <= pages[reference / "strategies.html"].anchors
    assert {"deepex-run", "deepex-data-pack"} <= pages[reference / "commands.html"].anchors


def find_broken(pages: dict[Path, Html]) -> list[str]:
    """Links and loaded files that are not there."""
    broken = []
    for path, page in pages.items():
        for link in page.links | page.loaded:
            file, _, anchor = unquote(link).partition("#")
            target = path.parent / file.partition("?")[0] if file else path
            known = pages.get(target.resolve())
            wrong_anchor = anchor and known is not None and anchor not in known.anchors
            if "//" not in file and (not target.exists() or wrong_anchor):
                broken.append(f"{path.name}: {link}")
    return broken
