"""Optimisers on the flat block. They know a replica, and nothing of ranks."""

from deepex.optim.optimiser import Optimiser, OptimiserConfig
from deepex.optim.schedule import ScheduleConfig

__all__ = ["Optimiser", "OptimiserConfig", "ScheduleConfig"]
