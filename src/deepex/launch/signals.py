"""Signals for a process that waits for others: they go to those others, once. It knows nothing of what they do."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def hand_over_signals(receive: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Give the first SIGINT or SIGTERM to `receive`, which passes it on to processes that then have time to save.

    From then on signals do what they did before: a second one ends this process. Outside of the main thread, which
    alone receives signals, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def hand_over(number: int, frame: FrameType | None) -> None:
        restore()
        receive(signal.Signals(number))

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, hand_over) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        restore()
