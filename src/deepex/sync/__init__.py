"""When and how replicas mix. A strategy knows a replica and a fabric; the step calls it, it never contains the step."""

from deepex.sync.sync import Setting, Sync
from deepex.sync.table import FORMS, STRATEGIES, parse

__all__ = ["FORMS", "STRATEGIES", "Setting", "Sync", "parse"]
