"""What others cite is what is installed."""

import re
import tomllib

from tests.docs.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = (ROOT / "CITATION.cff").read_text()


def test_the_citation_has_the_project_s_version_licence_and_authors() -> None:
    assert _read("version") == PROJECT["version"]
    assert _read("license") == PROJECT["license"]
    authors = re.findall(r"^  - name: (.*)$", CITATION, flags=re.MULTILINE)
    assert authors == [each["name"] for each in PROJECT["authors"]]


def test_the_changelog_begins_with_the_project_s_version() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert newest
    assert newest[1] == PROJECT["version"]


def _read(key: str) -> str:
    (value,) = re.findall(rf"^{key}: (.*)$", CITATION, flags=re.MULTILINE)
    return str(value)
