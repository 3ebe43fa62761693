"""When and how replicas mix. A strategy knows a replica and a fabric; the step calls it, it never contains the step."""

from deepex.sync.parse import DEFAULT, STRATEGIES, find_traits, parse, say_forms
from deepex.sync.sync import Sync, SyncContext, SyncTraits

__all__ = ["DEFAULT", "STRATEGIES", "Sync", "SyncContext", "SyncTraits", "find_traits", "parse", "say_forms"]
