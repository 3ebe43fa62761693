"""Where a run tells what it does: people, progress.json, TensorBoard."""
