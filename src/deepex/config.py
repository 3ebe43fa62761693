"""Frozen dataclass trees to TOML and back, and `key=value` overrides checked by type.

It works on any keyword-only dataclass and knows no component. `None` is written as "none", so nothing is lost.
"""

import dataclasses
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, cast

import tomli_w

from deepex.errors import ConfigError, unknown

NONE = "none"
C = TypeVar("C")


def to_tree(config: object) -> dict[str, Any]:
    """The settings of a dataclass as nested plain values, ready for TOML."""
    return {field.name: _plain(getattr(config, field.name)) for field in settings(type(config))}


def to_toml(config: object) -> str:
    """The settings of a dataclass as TOML text.

    >>> @dataclasses.dataclass(frozen=True, kw_only=True)
    ... class Optimiser:
    ...     name: str = "adam"
    >>> to_toml(Optimiser())
    'name = "adam"\\n'
    """
    return tomli_w.dumps(to_tree(config))


def read_toml(text: str, where: str) -> dict[str, Any]:
    """Parse TOML text; `where` names it in errors."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is not valid TOML: {error}. Correct that line and try again.") from error


def merge(config: C, tree: Mapping[str, Any], prefix: str = "") -> C:
    """A copy of `config` with the values of a nested mapping in it, each checked against its field's type."""
    fields = {field.name: field for field in settings(type(config))}
    hints = typing.get_type_hints(type(config))
    changes: dict[str, Any] = {}
    for key, value in tree.items():
        if key not in fields:
            raise ConfigError(unknown("key", prefix + key, [prefix + name for name in fields]))
        current = getattr(config, key)
        if dataclasses.is_dataclass(current):
            if not isinstance(value, Mapping):
                raise ConfigError(
                    f"'{prefix + key}' is a table, not a value. Set one of its keys: {', '.join(_keys(current))}."
                )
            changes[key] = merge(current, value, f"{prefix}{key}.")
        else:
            changes[key] = _checked(value, hints[key], prefix + key)
    return cast(C, dataclasses.replace(cast(Any, config), **changes))


def override(config: C, assignments: Sequence[str]) -> C:
    """A copy of `config` with dotted `key=value` texts applied, all at once.

    >>> from deepex.optim import OptimiserConfig
    >>> override(OptimiserConfig(), ["learning_rate=0.5", "name=sgd"]).learning_rate
    0.5
    """
    changes: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key:
            raise ConfigError(f"'{assignment}' is not of the form key=value, as in data.batch=32.")
        *parents, leaf = key.split(".")
        owner: Any = config
        for depth, name in enumerate(parents):
            path = ".".join(parents[: depth + 1])
            if name not in {field.name for field in settings(type(owner))}:
                raise ConfigError(unknown("key", path, _keys(owner)))
            owner = getattr(owner, name)
            if not dataclasses.is_dataclass(owner):
                raise ConfigError(f"'{path}' is a single value and has no '{leaf}'. Write {path}=VALUE.")
        is_value = leaf in _keys(owner) and not dataclasses.is_dataclass(getattr(owner, leaf))
        hint = typing.get_type_hints(type(owner)).get(leaf)
        # What is not a value's key goes on as text: `merge` says what is wrong with it.
        branch = changes
        for name in parents:
            branch = branch.setdefault(name, {})
        branch[leaf] = _from_text(text, hint, key) if is_value else text
    return merge(config, changes)


def settings(config_type: type) -> list[dataclasses.Field[Any]]:
    """The fields that are settings: those a constructor takes and that are not marked `setting=False`."""
    fields = dataclasses.fields(config_type)
    return [field for field in fields if field.init and field.metadata.get("setting", True)]


def _keys(config: object) -> list[str]:
    return [field.name for field in settings(type(config))]


def _plain(value: Any) -> Any:
    if value is None:
        return NONE
    if dataclasses.is_dataclass(value):
        return to_tree(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _options(hint: Any) -> tuple[list[Any], bool]:
    """The alternatives of a type without None, and whether None is one of them."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        arguments = typing.get_args(hint)
        return [a for a in arguments if a is not types.NoneType], types.NoneType in arguments
    return [hint], False


def _checked(value: Any, hint: Any, key: str) -> Any:
    """`value` as the type `hint`, or an error that says what is allowed."""
    options, optional = _options(hint)
    if optional and (value is None or value == NONE):
        return None
    for option in options:
        if typing.get_origin(option) is Literal:
            if value in typing.get_args(option):
                return value
            if isinstance(value, str):
                raise ConfigError(f"{key}: " + unknown("value", value, map(str, typing.get_args(option))))
        elif typing.get_origin(option) is tuple and isinstance(value, list | tuple):
            if _length(option) not in (None, len(value)):
                raise ConfigError(f"{key} = {list(value)!r} is a list of {len(value)}. Allowed: {_describe(hint)}.")
            return tuple(_checked(item, typing.get_args(option)[0], key) for item in value)
        elif option is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        elif isinstance(option, type) and type(value) is option:
            return value
    raise ConfigError(f"{key} = {value!r} is {_article(type(value).__name__)}. Allowed: {_describe(hint)}.")


def _from_text(text: str, hint: Any, key: str) -> Any:
    """A command line's text as the plain value that `_checked` expects."""
    options, optional = _options(hint)
    if optional and text == NONE:
        return None
    for option in options:
        if option is bool and text in ("true", "false"):
            return text == "true"
        if option in (int, float):
            try:
                return option(text)
            except ValueError:
                continue
        if typing.get_origin(option) is tuple:
            inner = typing.get_args(option)[0]
            return [_from_text(item.strip(), inner, key) for item in text.split(",") if item.strip()]
        if option is str or typing.get_origin(option) is Literal:
            return text
    raise ConfigError(f"{key} = '{text}' does not fit. Allowed: {_describe(hint)}.")


def _describe(hint: Any) -> str:
    options, optional = _options(hint)
    words = []
    for option in options:
        if typing.get_origin(option) is Literal:
            words.append(" or ".join(map(str, typing.get_args(option))))
        elif typing.get_origin(option) is tuple:
            count = "" if _length(option) is None else f" of {_length(option)}"
            words.append(f"a list{count}, each {_describe(typing.get_args(option)[0])}")
        else:
            names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
            words.append(names.get(option, str(option)))
    return " or ".join(words + (["none"] if optional else []))


def _length(hint: Any) -> int | None:
    """How many values a tuple has; None for as many as one likes."""
    arguments = typing.get_args(hint)
    return None if arguments[-1] is Ellipsis else len(arguments)


def _article(type_name: str) -> str:
    names = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text", "list": "a list"}
    return names.get(type_name, type_name)
