"""Stopping early on a signal, at a step that all ranks agree on, so that none waits for one that left."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from types import FrameType

import torch

from deepex.fabric import Fabric, Work, peer_error
from deepex.world import World

SECONDS_BETWEEN_CHECKS = 0.5
MOST_STEPS_BETWEEN_CHECKS = 64  # steps may become slower from one to the next


class StopRequest:
    """Remembers SIGINT and SIGTERM and spreads the word.

    About twice a second each rank sends its flag and reads the mean of the flags sent at the check before, so that
    nobody waits. All read the same mean in the same step, and stop there. With the flag goes how long steps take, all
    that lies between them included, so that all agree on the step of the next check. Ranks that are not in step with
    this one hear of a stop by the heartbeat, and stop in a step of their own.

    Arguments:
        fabric: the ranks that make the same step at the same time.
        world: this rank's place among all ranks.
    """

    def __init__(self, fabric: Fabric, world: World) -> None:
        self.fabric, self.world = fabric, world
        self.asked = False
        self._interval = self._steps_left = 1
        self._checked_at: float | None = None
        self._message = torch.zeros(2)  # the flag, and seconds a step
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

    def agreed(self) -> bool:
        """Whether all ranks stop here; called by all after each step."""
        self._steps_left -= 1
        if self._steps_left > 0:
            return False
        if self.fabric.heartbeat.failure:
            raise peer_error(self.fabric.heartbeat, self.world, "training")
        asked = self.asked or self.fabric.heartbeat.stop_requested
        return asked if self.fabric.world.size == 1 else self._compare(asked)

    def close(self) -> None:
        """Wait for a flag that is still under way."""
        if self._pending is not None:
            self._pending.wait()
            self._pending = None

    def _compare(self, asked: bool) -> bool:
        """What all said at the check before; what this rank says now goes out, for the next one."""
        now = perf_counter()
        seconds = SECONDS_BETWEEN_CHECKS if self._checked_at is None else (now - self._checked_at) / self._interval
        decided, fitting = False, 1
        if self._pending is not None:
            self._pending.wait()
            flags, mean_seconds = self._message.tolist()
            decided, fitting = flags > 0, int(SECONDS_BETWEEN_CHECKS / max(mean_seconds, 1e-6))
        self._interval = self._steps_left = max(1, min(fitting, 2 * self._interval, MOST_STEPS_BETWEEN_CHECKS))
        self._checked_at = now
        self._message = torch.tensor([float(asked), seconds])
        self._pending = self.fabric.mean_(self._message)
        return decided

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self.fabric.heartbeat.request_stop()
