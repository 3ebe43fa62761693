"""Operations under way, and the engine that takes their steps whenever ranks wait.

It knows steps and the barriers between them, and nothing of what a step does.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter

from deepex.fabric.shared.backoff import Backoff
from deepex.fabric.shared.barrier import Barrier

Steps = Iterator[None]  # does a part of the work each time that it is resumed


class Operation:
    """A collective as steps; after each of them a rank waits until all have arrived.

    Arguments:
        engine: takes the steps.
        steps: the work.
        check_peers: given the seconds waited, raises if those that are missing will not arrive.

    Attributes:
        is_done: whether the last step was taken, or a step has failed.
        error: what a step has raised, perhaps while this rank waited for another operation.
        busy_seconds: from the beginning of the first step to the end of the latest.
    """

    def __init__(self, engine: "ProgressEngine", steps: Steps, check_peers: Callable[[float], None]) -> None:
        self.check_peers = check_peers
        self._engine, self._steps = engine, steps
        self.is_done = False
        self.error: BaseException | None = None
        self.busy_seconds = self._began = 0.0

    def advance(self) -> None:
        """Take the next step; an error ends the operation."""
        self._began = self._began or perf_counter()
        is_last = True
        try:
            for _ in self._steps:
                is_last = False
                break
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.busy_seconds = perf_counter() - self._began
            self.is_done = is_last

    def finish(self) -> None:
        """Take all of its steps, and any others that come before."""
        self._engine.finish(self)


class ProgressEngine:
    """Takes the steps of operations: in order among the same ranks, and in any order among different ones.

    A rank that waits for one operation also takes steps of the others. So ranks that wait in a circle, each for an
    operation with another peer, all come through.

    Arguments:
        is_oversubscribed: whether there are more ranks than cores.
    """

    def __init__(self, *, is_oversubscribed: bool) -> None:
        self._is_oversubscribed = is_oversubscribed
        self._queues: dict[Barrier, deque[Operation]] = {}
        self._lock = threading.Lock()

    def enqueue(self, barrier: Barrier, steps: Steps, check_peers: Callable[[float], None]) -> Operation:
        """A new operation, the last among those that wait at the same barrier."""
        operation = Operation(self, steps, check_peers)
        with self._lock:
            self._queues.setdefault(barrier, deque()).append(operation)
        return operation

    def finish(self, operation: Operation) -> None:
        """Take steps until this operation is done; an error of any step is raised at once."""
        backoff = Backoff(is_oversubscribed=self._is_oversubscribed)
        while not operation.is_done:
            if self.advance():
                backoff.reset()
            elif waited := backoff.pause():
                operation.check_peers(waited)
        if operation.error is not None:
            raise operation.error

    def advance(self) -> bool:
        """Take every step that can be taken now; whether there was one."""
        has_advanced = False
        with self._lock:
            for barrier, queue in tuple(self._queues.items()):
                if barrier.is_open():
                    has_advanced = True
                    try:
                        queue[0].advance()
                    finally:
                        if queue[0].is_done:
                            queue.popleft()
                        if not queue:
                            del self._queues[barrier]
        return has_advanced


class ThreadEngine(threading.local):
    """An engine for each thread, `own`: one thread must not take the steps that another waits for."""

    def __init__(self, *, is_oversubscribed: bool) -> None:
        self.own = ProgressEngine(is_oversubscribed=is_oversubscribed)
