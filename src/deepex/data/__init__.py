"""From samples on disk or in memory to batches. It knows no model and no task."""

from deepex.data.feed import Feed
from deepex.data.plan import DataConfig, Plan
from deepex.data.prepare import Preparation, Preparer, Splits
from deepex.data.source import ArraySource, Source, Subset

__all__ = ["ArraySource", "DataConfig", "Feed", "Plan", "Preparation", "Preparer", "Source", "Splits", "Subset"]
