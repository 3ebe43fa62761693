"""The table of strategies, and how a written form becomes one of them."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from deepex.errors import ConfigError, unknown
from deepex.reference import is_reference, load_object
from deepex.sync.allreduce import AllReduce
from deepex.sync.asynchronous import Asynchronous
from deepex.sync.auto import Auto
from deepex.sync.background import Background
from deepex.sync.compressors.compressor import Compressor
from deepex.sync.compressors.parse import COMPRESSIONS, parse_compressor
from deepex.sync.hierarchical import Hierarchical
from deepex.sync.hybrid import Hybrid
from deepex.sync.lagged import Lagged
from deepex.sync.local import Local
from deepex.sync.spec import SyncSpec
from deepex.sync.sync import Sync, SyncTraits

DEFAULT = "allreduce"
PARTS_OF_A_STRATEGY = (
    *("traits", "notes", "noise", "num_training_ranks", "prepare"),
    *("mix_gradients", "mix_weights", "drain", "state"),
)  # `lockstep` is there after `prepare`


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """A line of the table.

    Attributes:
        forms: how people write it, for help and errors.
        example: one that can be parsed as it stands; tests of all strategies take it.
        parse: makes it of its spec and of what compresses its messages.
    """

    forms: tuple[str, ...]
    example: str
    parse: Callable[[SyncSpec, Compressor], Sync]


STRATEGIES: dict[str, Strategy] = {
    "allreduce": Strategy(forms=("allreduce",), example="allreduce", parse=AllReduce.parse),
    "local": Strategy(forms=("local:H", "local:epoch"), example="local:4", parse=Local.parse),
    "background": Strategy(forms=("background:H",), example="background:4", parse=Background.parse),
    "lagged": Strategy(forms=("lagged",), example="lagged", parse=Lagged.parse),
    "hierarchical": Strategy(
        forms=("hierarchical(INNER,OUTER)",),
        example="hierarchical(allreduce,local:4)",
        parse=lambda spec, compressor: Hierarchical.parse(spec, compressor, parse),
    ),
    "hybrid": Strategy(forms=("hybrid:G",), example="hybrid:2", parse=Hybrid.parse),
    "async": Strategy(forms=("async",), example="async", parse=Asynchronous.parse),
    "auto": Strategy(forms=("auto",), example="auto", parse=Auto.parse),
}


def parse(text: str) -> Sync:
    """The strategy that `text` names.

    >>> parse("local:8").traits.interval
    8
    """
    spec = SyncSpec.parse(text, known=STRATEGIES)
    if spec.name in STRATEGIES:
        return STRATEGIES[spec.name].parse(spec, parse_compressor(spec.compression, text))
    mistyped = unknown("sync", text, [*list_forms(), "file.py:name"])
    if not is_reference(spec.name):
        raise ConfigError(mistyped)
    try:
        return parse_own(spec)
    except ConfigError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):  # as with lokal:epoch
            raise ConfigError(f"{mistyped} As code of your own, {error}") from error
        raise


def parse_own(spec: SyncSpec) -> Sync:
    """A strategy of a user's own: a class, made by its `parse` if it has one, or an object, which is copied."""
    found = load_object(spec.name)
    if isinstance(found, type) and hasattr(found, "parse"):
        made = found.parse(spec, parse_compressor(spec.compression, spec.text))
    else:
        if spec != SyncSpec(name=spec.name):
            raise spec.wrong(
                f"{spec.name} takes no arguments, options or compression",
                "Give its class a classmethod parse(spec, compressor), or leave them out.",
            )
        try:
            made = found() if isinstance(found, type) else copy.deepcopy(found)
        except TypeError as error:
            raise spec.wrong(f"it can't be made without arguments ({error})", "Give its class a parse().") from error
    missing = [name for name in PARTS_OF_A_STRATEGY if not hasattr(made, name)]
    if missing:
        raise spec.wrong(
            f"{type(made).__name__} is no strategy: it has no {', '.join(missing)}",
            "See the protocol deepex.sync.Sync, and test yours with deepex.testing.sync.",
        )
    return cast(Sync, made)


def find_traits(text: str) -> SyncTraits:
    """What the strategy that `text` names promises; nothing if there is none, as in a record from elsewhere.

    >>> find_traits("lagged").staleness, find_traits("no such strategy") == SyncTraits()
    (1, True)
    """
    try:
        return parse(text).traits
    except ConfigError:
        return SyncTraits()


def list_forms() -> list[str]:
    """All that people may write, in the order of the table."""
    return [form for strategy in STRATEGIES.values() for form in strategy.forms]


def say_forms() -> str:
    """All that people may write, in words, for help.

    >>> "local:H, local:epoch, " in say_forms(), "; compressed with +bf16, " in say_forms()
    (True, True)
    """
    *others, last = list_forms()
    *compressions, last_compression = [f"+{compression.form}" for compression in COMPRESSIONS.values()]
    return f"{', '.join(others)} or {last}; compressed with {', '.join(compressions)} or {last_compression}"
