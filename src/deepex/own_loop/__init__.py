"""A loop that the user keeps, with the user's own torch optimiser: replicas, feed, phases and record around it."""

from deepex.own_loop.loop_feed import LoopFeed, feed
from deepex.own_loop.replicated import Replicated
from deepex.own_loop.session import Session
from deepex.own_loop.start import LoopConfig, run_loop

__all__ = ["LoopConfig", "LoopFeed", "Replicated", "Session", "feed", "run_loop"]
