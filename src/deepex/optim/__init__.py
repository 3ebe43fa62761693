"""Optimisers on the flat block. They know a replica, and nothing of ranks."""

from deepex.optim.optimiser import OptimiserConfig, build_optimiser

__all__ = ["OptimiserConfig", "build_optimiser"]
