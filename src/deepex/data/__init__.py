"""From samples on disk or in memory to batches. It knows no model and no task."""

from deepex.data.feeding.feed import Feed
from deepex.data.feeding.plan import DataConfig, Plan, SequentialPlan
from deepex.data.feeding.prepare import Preparation, Preparer, Splits
from deepex.data.source import ArraySource, Source, Subset

__all__ = [
    "ArraySource",
    "DataConfig",
    "Feed",
    "Plan",
    "Preparation",
    "Preparer",
    "SequentialPlan",
    "Source",
    "Splits",
    "Subset",
]
