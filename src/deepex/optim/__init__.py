"""Optimisers on the flat block, one a file, and the learning rate's schedule. They know a replica, and no ranks."""

from deepex.optim.config import OPTIMISERS, OptimiserConfig
from deepex.optim.optimiser import Optimiser
from deepex.optim.rule import Rule
from deepex.optim.schedule import ScheduleConfig

__all__ = ["OPTIMISERS", "Optimiser", "OptimiserConfig", "Rule", "ScheduleConfig"]
