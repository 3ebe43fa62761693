"""When and how replicas mix. A strategy knows a replica and a fabric; the step calls it, it never contains the step."""

from deepex.sync.sync import STRATEGIES, Sync, parse

__all__ = ["STRATEGIES", "Sync", "parse"]
