"""Optimisers on the flat block. They know a replica, and nothing of ranks."""

from deepex.optim.optimiser import Optimiser, OptimiserConfig

__all__ = ["Optimiser", "OptimiserConfig"]
