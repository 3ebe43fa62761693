"""The table of strategies, and how a written form becomes one of them."""

from collections.abc import Callable
from dataclasses import dataclass

from deepex.errors import ConfigError, unknown
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
    spec = SyncSpec.parse(text)
    if spec.name not in STRATEGIES:
        raise ConfigError(unknown("sync", text, list_forms()))
    return STRATEGIES[spec.name].parse(spec, parse_compressor(spec.compression, text))


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
