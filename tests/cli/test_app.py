"""Every command's help: its example is one that the command line understands."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.core import TyperGroup, TyperOption

from deepex.cli.app import app

PROGRAM: Any = typer.main.get_command(app)
WrongUsage: Any = typer.BadParameter.__base__  # which is click's, or what typer has in its place


def find_commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """All commands with the words that call them."""
    if not isinstance(command, TyperGroup):
        yield " ".join(words), command
        return
    for name, inner in command.commands.items():
        yield from find_commands(inner, (*words, name))


COMMANDS = dict(find_commands(PROGRAM))


def check_words(words: list[str]) -> list[str]:
    """Have the command line take words apart, and run nothing; the words of the command that was found."""
    command, called = PROGRAM, list[str]()
    while isinstance(command, TyperGroup):
        called.append(words[0])
        command = command.commands[words[0]]
        words = words[1:]
    command.make_context(" ".join(called), list(words))
    if "--" in words:  # a command inside: it is called as this one is
        program, *inner = words[words.index("--") + 1 :]
        assert program == "deepex"
        check_words(inner)
    return called


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_a_command_s_help_is_understood(name: str) -> None:
    title, _, example = (COMMANDS[name].epilog or "").partition("deepex ")
    assert title == "Example:  ", f"deepex {name} --help shows no example"
    assert check_words(shlex.split(example)) == name.split()


def test_an_example_with_an_option_that_is_none_would_be_noticed() -> None:
    with pytest.raises(WrongUsage, match="--rank"):
        check_words(["run", "protein", "--rank", "2"])
    with pytest.raises(WrongUsage, match="--sink"):
        check_words(["cluster", "--", "deepex", "run", "protein", "--sink", "lagged"])


def test_every_command_has_a_help_that_names_each_of_its_options() -> None:
    for name, command in COMMANDS.items():
        assert command.help, name
        for parameter in command.params:
            if isinstance(parameter, TyperOption):
                assert parameter.help, f"deepex {name} {parameter.opts[0]}"
