"""The strategies and compressions by name, and how a written form becomes one of them."""

from collections.abc import Callable

from deepex.errors import ConfigError, unknown
from deepex.sync.allreduce import AllReduce
from deepex.sync.asynchronous import Asynchronous
from deepex.sync.auto import Auto
from deepex.sync.background import Background
from deepex.sync.compressors.compressor import Wire
from deepex.sync.compressors.parse import parse_wire
from deepex.sync.hierarchical import Hierarchical
from deepex.sync.hybrid import Hybrid
from deepex.sync.lagged import Lagged
from deepex.sync.local import Local
from deepex.sync.spec import Written
from deepex.sync.sync import Sync

STRATEGIES: dict[str, Callable[[Written, Wire], Sync]] = {
    "allreduce": AllReduce.parse,
    "local": Local.parse,
    "background": Background.parse,
    "lagged": Lagged.parse,
    "hybrid": Hybrid.parse,
    "async": Asynchronous.parse,
    "auto": Auto.parse,
}
FORMS = (
    "allreduce",
    "async",
    "auto",
    "background:H",
    "hierarchical(INNER,OUTER)",
    "hybrid:G",
    "lagged",
    "local:H",
    "local:epoch",
)
"""What people may write, for errors and help."""


def parse(text: str) -> Sync:
    """The strategy that `text` names.

    >>> parse("local:8").interval
    8
    """
    written = Written.parse(text)
    if written.name == "hierarchical":
        return _hierarchical(written)
    if written.name not in STRATEGIES or written.inside:
        raise ConfigError(unknown("sync", text, FORMS))
    return STRATEGIES[written.name](written, parse_wire(written.compression, text))


def _hierarchical(written: Written) -> Sync:
    """Two strategies in brackets; a compression behind the bracket is that of the network between nodes."""
    written.takes()
    inner, outer = written.inside if len(written.inside) == 2 else ("allreduce", "allreduce")
    if written.inside and len(written.inside) != 2:
        raise written.wrong(
            f"brackets hold two strategies, not {len(written.inside)}",
            "Write --sync 'hierarchical(allreduce,local:8)'.",
        )
    if written.compression:
        outer = f"{outer}+{written.compression}"
    return Hierarchical.of(written.text, parse(inner), parse(outer))
