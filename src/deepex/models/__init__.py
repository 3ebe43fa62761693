"""Plain networks, one a file. They know tensors, and nothing of ranks, data or training."""
