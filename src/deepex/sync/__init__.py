"""When and how replicas mix. A strategy knows a replica and a fabric; the step calls it, it never contains the step."""

from deepex.sync.parse import FORMS, STRATEGIES, parse
from deepex.sync.sync import Setting, Sync

__all__ = ["FORMS", "STRATEGIES", "Setting", "Sync", "parse"]
