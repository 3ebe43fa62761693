"""From samples on disk or in memory to batches. It knows no model and no task."""

from deepex.data.feed import Feed
from deepex.data.plan import Plan, PlanConfig
from deepex.data.source import ArraySource, Source, Splits, Subset

__all__ = ["ArraySource", "Feed", "Plan", "PlanConfig", "Source", "Splits", "Subset"]
