"""Commands that pages show exist, with the options and keys that are shown. Nothing is run."""

import re
import shlex
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

import deepex
from deepex.cli.app import app
from deepex.tasks import TASKS
from tests.docs.pages import PAGES, ROOT, Page, name

SHOWN = re.compile(r"(?:\$ )?((?:\w+=\S+ )*(?:deepex|srun|mpirun|torchrun|make) .*)", flags=re.DOTALL)
TAKEN = signature(deepex.build_recipe).parameters.keys()


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_commands_have_the_options_and_keys_that_are_shown(path: Path) -> None:
    for shown in find_commands(Page(path.read_text())):
        check(shown)


def test_commands_that_do_not_exist_are_noticed() -> None:
    text = """
```python
deepex = "deepex run"
```
```console
$ THREADS=1 srun deepex run protein \\
    --rank 2  # a comment
srun hostname
make nothing
```
See `deepex watches RUN`."""
    wrong_option, other_program, wrong_target, wrong_command = find_commands(Page(text))
    with pytest.raises(Exception, match="--rank"):
        check(wrong_option)
    with pytest.raises(KeyError, match="watches"):
        check(wrong_command)
    with pytest.raises(AssertionError, match="nothing"):
        check(wrong_target)
    check(other_program)


def find_commands(page: Page) -> list[str]:
    """Lines of blocks and words in backticks that start with deepex, make, or a launcher that may start deepex."""
    blocks = [block.text.replace("\\\n", " ") for block in page.blocks if block.language != "python"]
    candidates = [line for block in blocks for line in block.splitlines()] + page.code_in_text
    return [found[1] for found in map(SHOWN.fullmatch, candidates) if found]


def check(shown: str) -> None:
    """Read what follows each `deepex` of a line, as the program does."""
    words = shlex.split(shown, comments=True)
    if words[0] == "make":
        missing = [target for target in words[1:] if not _is_target(target)]
        assert not missing, f"Makefile has no target {missing}"
    for start in (number for number, word in enumerate(words) if word == "deepex"):
        command, rest = typer.main.get_command(app), words[start + 1 :]
        while isinstance(command, TyperGroup) and rest:
            command, rest = command.commands[rest[0]], rest[1:]
        if not rest or rest == ["--help"]:  # only named, as in `deepex bench sync`
            continue
        given = command.make_context("deepex", rest).params
        if given.get("what") in TASKS and command.name == "run":
            settings = tuple(given.pop("settings") or ())
            kept: dict[str, Any] = {
                key: str(value) if isinstance(value, Path) else value for key, value in given.items()
            }
            deepex.build_recipe(**{key: kept[key] for key in TAKEN & kept.keys()}, settings=settings)


def _is_target(name: str) -> bool:
    return re.search(rf"^{re.escape(name)}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE) is not None
