"""What README and docs/ show is what happens: examples run, commands exist, links lead somewhere."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.core import TyperGroup

import deepex
from deepex.cli.app import app
from deepex.data import ArraySource
from deepex.data.packing.pack import pack
from deepex.tasks import TASKS

ROOT = Path(deepex.__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
STARTERS = "deepex|srun|mpirun|torchrun"
FENCED = re.compile(r"^```\w*\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def test_the_example_with_one_s_own_module_runs_as_printed(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    (tmp_path / "own.py").write_text(example)
    done = subprocess.run([sys.executable, "own.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    value, page = done.stdout.splitlines()[-1].split()
    assert float(value) < 0.001
    assert (tmp_path / page).is_file()


def test_the_example_of_the_page_on_data_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "data.md").read_text(), flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    labels = torch.arange(500) % 10
    images = (torch.nn.functional.one_hot(labels, 784) * 255).to(torch.uint8).reshape(500, 28, 28)
    pack(ArraySource({"image": images, "label": labels}), Path("digits.h5"))
    names: dict[str, Any] = {}
    exec(example, names)  # noqa: S102  # our own page
    run = deepex.run(names["task"], out="run", verbosity="quiet", settings={"stop.epochs": 2, "data.batch": 50})
    assert run.metrics[1].value < run.metrics[0].value


def test_the_first_screen_names_the_two_commands() -> None:
    first_screen = README.read_text()[:1000]
    assert "make train" in first_screen
    assert "make test" in first_screen


def test_readme_is_short() -> None:
    assert len(README.read_text().split()) <= 1200


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        if not re.match(r"\w+:", link) and (not target.exists() or (heading and heading not in _headings(target))):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_have_the_options_and_keys_that_are_shown(page: Path) -> None:
    for shown in _shown_commands(page.read_text()):
        _parse(shown)


def test_commands_that_do_not_exist_are_noticed() -> None:
    text = (
        "```python\nimport deepex\n```\n"
        "```\nsrun deepex run protein --rank 2  # a comment\nsrun hostname\n```\nSee `deepex watches RUN`."
    )
    wrong_option, other_program, wrong_command = _shown_commands(text)
    with pytest.raises(Exception, match="--rank"):
        _parse(wrong_option)
    with pytest.raises(KeyError, match="watches"):
        _parse(wrong_command)
    _parse(other_program)


def _headings(page: Path) -> set[str]:
    """The names by which links call a page's headings, as GitHub forms them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _shown_commands(text: str) -> list[str]:
    """Lines of code blocks and words in backticks that start with deepex, or with a launcher that may start it."""
    lines = [line for block in FENCED.findall(text) for line in block.splitlines()]
    shown = [line for line in lines if re.match(rf"(?:{STARTERS}) ", line)]
    return shown + re.findall(rf"`((?:{STARTERS}) [^`]*)`", FENCED.sub("", text))


def _parse(shown: str) -> None:
    """Read what follows each `deepex` of a line, as the program does, and run nothing."""
    words = shlex.split(shown, comments=True)
    for start in (number for number, word in enumerate(words) if word == "deepex"):
        command, rest = typer.main.get_command(app), words[start + 1 :]
        while isinstance(command, TyperGroup) and rest:
            command, rest = command.commands[rest[0]], rest[1:]
        if not rest:  # only named, as in `deepex bench sync`
            continue
        given = command.make_context("deepex", rest).params
        if given.get("what") in TASKS and command.name == "run":
            kept = {key: given[key] for key in ("size", "ranks", "sync", "fabric", "precision", "seed", "until")}
            deepex.build_recipe(given["what"], settings=tuple(given["settings"] or ()), **kept)
