"""The pages of the reference, from the code: a comment `<!-- reference: NAME -->` is replaced by a part of it.

No name is listed here that the package lists itself; only the protocols are, with the values that they speak of.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass
from importlib import import_module
from inspect import isclass, isfunction, ismodule
from pkgutil import walk_packages
from typing import Any, get_type_hints

import typer.main
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from typer.core import TyperGroup

import deepex
from deepex import models, sync, testing
from deepex.cli.app import app as program
from deepex.optim.config import OPTIMISERS

COMMENT = re.compile(r"^<!-- reference: ([\w ]+) -->$", flags=re.MULTILINE)
PROTOCOLS = {
    "Task": ("deepex.train.task:Task", "deepex.data:Splits"),
    "Source": ("deepex.data:Source", "deepex.sample:SampleSpec", "deepex.sample:Field"),
    "Sync": ("deepex.sync:Sync", "deepex.sync:SyncContext", "deepex.sync:SyncTraits"),
    "Rule": ("deepex.optim.rule:Rule",),
    "Fabric": ("deepex.fabric:Fabric", "deepex.fabric:Work"),
}


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", fill_in)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def fill_in(app: Sphinx, docname: str, source: list[str]) -> None:
    def make(comment: re.Match[str]) -> str:
        if comment[1] not in PARTS:
            raise ExtensionError(f"{docname}: no reference of '{comment[1]}'. There is: {', '.join(PARTS)}")
        return "\n".join(PARTS[comment[1]]())

    source[0] = COMMENT.sub(make, source[0])


def show_public_names() -> Iterator[str]:
    """Everything that `import deepex as dx` offers: first what is called, then what is made or given, then errors."""
    found = {name: getattr(deepex, name) for name in deepex.__all__}
    errors = {name for name, subject in found.items() if isclass(subject) and issubclass(subject, Exception)}
    called = {name for name, subject in found.items() if isfunction(subject)}
    others = found.keys() - errors - called
    for title, names in (("Functions", called), ("Classes", others), ("Errors", errors)):
        if names:
            yield f"## {title}\n"
            yield from (show("deepex", name) for name in sorted(names))


def show_protocols() -> Iterator[str]:
    public = [getattr(deepex, name) for name in deepex.__all__]
    for title, paths in PROTOCOLS.items():
        yield f"## {title}\n"
        for module, _, name in (path.partition(":") for path in paths):
            known = getattr(import_module(module), name) in public
            yield f"`deepex.{name}` is on the page of [names](names.md).\n" if known else show(module, name)


def show_contracts() -> Iterator[str]:
    """Public functions of each module of `deepex.testing` that has a function called check_…"""
    for found in walk_packages(testing.__path__, f"{testing.__name__}."):
        module = import_module(found.name)
        functions = [name for name, subject in vars(module).items() if _is_own_function(subject, found.name)]
        if any(name.startswith("check_") for name in functions):
            yield f"## `{found.name}`\n"
            yield f"{(module.__doc__ or '').strip()}\n"
            yield from (show(found.name, name) for name in functions)


def show_recipe() -> Iterator[str]:
    """The classes of a recipe's tables, by their names in recipe.toml; the task's are its own."""
    for key, part in get_type_hints(deepex.Recipe).items():
        if is_dataclass(part) and isclass(part):
            yield f"## `[{key}]`\n"
            yield show(part.__module__, part.__name__)


def show_strategies() -> Iterator[str]:
    for name, strategy in sync.STRATEGIES.items():
        chosen = type(sync.parse(strategy.example))
        yield f"## `{name}`\n"
        yield f"Written {' or '.join(f'`{form}`' for form in strategy.forms)}.\n"
        yield show(chosen.__module__, chosen.__name__, members=False)


def show_optimisers() -> Iterator[str]:
    for name, rule in OPTIMISERS.items():
        yield f"## `{name}`\n"
        yield show(rule.__module__, rule.__name__, members=False)


def show_networks() -> Iterator[str]:
    return (show("deepex.models", name, members=False) for name in models.__all__)


def show_commands() -> Iterator[str]:
    for words, command in find_commands(typer.main.get_command(program), ("deepex",)):
        context = command.make_context(" ".join(words), [], resilient_parsing=True)
        usage = " ".join((*words, *command.collect_usage_pieces(context)))
        yield f"## `{' '.join(words)}`\n\n{command.help}\n\n```\n{usage}\n```\n"
        rows = [row for row in (parameter.get_help_record(context) for parameter in command.params) if row]
        yield "| argument or option | meaning |\n| --- | --- |"
        yield from (f"| `{_cell(name)}` | {_cell(text)} |" for name, text in rows)
        yield f"\n{_as_code(command.epilog or '')}\n"


def find_commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands, each with the words that call it."""
    if not isinstance(command, TyperGroup):
        yield words, command
        return
    for name, inner in command.commands.items():
        yield from find_commands(inner, (*words, name))


def show(module: str, name: str, *, members: bool = True) -> str:
    """The directive that has autodoc show one name of a module."""
    subject = getattr(import_module(module), name)
    options = []
    if ismodule(subject):
        kind = "module"
    elif isclass(subject) and issubclass(subject, Exception):
        kind = "exception"
    elif isclass(subject):
        kind = "class"
        options = [":members:"] if members else []
        options += [":undoc-members:"] if getattr(subject, "_is_protocol", False) else []
    else:
        kind = "function" if callable(subject) else "data"
    lines = [f".. auto{kind}:: {module}.{name}", *(f"   {option}" for option in options)]
    return "```{eval-rst}\n" + "\n".join(lines) + "\n```\n"


def _is_own_function(subject: object, module: str) -> bool:
    return isfunction(subject) and subject.__module__ == module and not subject.__name__.startswith("_")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _as_code(epilog: str) -> str:
    title, _, example = epilog.partition(":")
    return f"{title}: `{example.strip()}`" if example else epilog


PARTS: dict[str, Callable[[], Iterable[str]]] = {
    "names": show_public_names,
    "protocols": show_protocols,
    "contracts": show_contracts,
    "recipe": show_recipe,
    "strategies": show_strategies,
    "optimisers": show_optimisers,
    "networks": show_networks,
    "commands": show_commands,
}
