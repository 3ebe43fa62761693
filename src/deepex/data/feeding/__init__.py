"""From a source to batches: plan, cache, prefetch. It knows no model and no task."""
