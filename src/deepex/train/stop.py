"""Stopping early on a signal, at a step that all ranks agree on, so that none waits for one that left."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from deepex.fabric import Fabric, Work, peer_error
from deepex.world import World

SECONDS_BETWEEN_CHECKS = 0.5


class StopRequest:
    """Remembers SIGINT and SIGTERM and spreads the word.

    Every few steps each rank sends its flag and reads the mean of the flags sent a few steps earlier, so that
    nobody waits. All read the same mean in the same step, and stop there. Ranks that are not in step with this one
    hear of it by the heartbeat, and stop in a step of their own.

    Arguments:
        fabric: the ranks that make the same step at the same time.
        world: this rank's place among all ranks.
    """

    def __init__(self, fabric: Fabric, world: World) -> None:
        self.fabric, self.world = fabric, world
        self.asked = False
        self._interval = 8 if fabric.world.size > 1 else 1
        self._flag = torch.zeros(1)
        self._pending: Work | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals while training; give them back afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only a main thread receives signals
            return
        before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def pace(self, step_seconds: float) -> None:
        """Check about twice a second; every rank passes the same number."""
        if self.fabric.world.size > 1:
            self._interval = max(1, round(SECONDS_BETWEEN_CHECKS / max(step_seconds, 1e-6)))

    def due(self, step: int) -> bool:
        """Whether this is a step in which ranks compare their flags."""
        return step % self._interval == 0

    def agreed(self) -> bool:
        """Whether all ranks stop here; called by all in the same step."""
        if self.fabric.heartbeat.failure:
            raise peer_error(self.fabric.heartbeat, self.world, "training")
        asked = self.asked or self.fabric.heartbeat.stop_requested
        if self.fabric.world.size == 1:
            return asked
        decided = False
        if self._pending is not None:
            self._pending.wait()
            decided = self._flag.item() > 0
        self._flag.fill_(float(asked))
        self._pending = self.fabric.mean_(self._flag)
        return decided

    def close(self) -> None:
        """Wait for a flag that is still under way."""
        if self._pending is not None:
            self._pending.wait()
            self._pending = None

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self.fabric.heartbeat.request_stop()
