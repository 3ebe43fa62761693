"""Frozen dataclasses to JSON's plain values and back, checked by type. It knows no file and no run."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeVar, Union

V = TypeVar("V")


def to_json(value: object) -> Any:
    """A dataclass as plain values, ready for JSON.

    >>> @dataclasses.dataclass(frozen=True, kw_only=True)
    ... class Point:
    ...     x: float
    ...     tags: tuple[str, ...] = ()
    >>> to_json(Point(x=1.0, tags=("a",)))
    {'x': 1.0, 'tags': ['a']}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    return value


def from_json(kind: type[V], tree: Mapping[str, Any]) -> V:
    """The dataclass that plain values stand for; keys that it has not are passed over.

    Raises ValueError, with the key's name, for one that is missing or of another type.
    """
    hints: dict[str, Any] = _hints(kind)  # type: ignore[arg-type]  # a class is hashable
    given = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # any dataclass
        if field.name in tree:
            given[field.name] = _read(tree[field.name], hints[field.name], field.name)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"'{field.name}' is missing")
    return kind(**given)


def read_rows(tree: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The mappings in a list, to be changed before they are read; ValueError for anything else, as in `from_json`."""
    if key not in tree:
        raise ValueError(f"'{key}' is missing")
    return [_checked(each, Mapping, key) for each in _checked(tree[key], list, key)]


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _read(value: Any, hint: Any, key: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and types.NoneType in arguments:
            return None
        (hint,) = (each for each in arguments if each is not types.NoneType)
        return _read(value, hint, key)
    if dataclasses.is_dataclass(hint):
        return from_json(typing.cast(type, hint), _checked(value, Mapping, key))
    if origin is tuple:
        return tuple(_read(each, arguments[0], key) for each in _checked(value, list, key))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {
            name: _read(each, arguments[1], f"{key}.{name}") for name, each in _checked(value, Mapping, key).items()
        }
    if origin is Literal and value not in arguments:
        raise ValueError(f"'{key}' is {value!r}")
    if hint is float:
        return float(_checked(value, int | float, key))
    return value if hint in (Any, object) or origin is not None else _checked(value, hint, key)


def _checked(value: Any, kind: Any, key: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"'{key}' is {value!r}")
    return value
