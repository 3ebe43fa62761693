"""Which program a rank of the sync benchmark is: an engine that averages buffers, or a trainer. Imported when known."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Commands = dict[str, Callable[..., dict[str, Any]]]


@contextmanager
def open_part(*, part: str, **spec: Any) -> Iterator[tuple[int, Commands]]:
    """This rank's number and the commands it understands."""
    if part == "fabrics":
        from deepex.bench.sync.engines import open_engine

        with open_engine(**spec) as opened:
            yield opened
    else:
        from deepex.bench.sync.trainers import open_trainer

        with open_trainer(**spec) as opened:
            yield opened
