"""Showing anything that can be looked at again and again: in place on a terminal, its news elsewhere.

It knows no runs and no studies.
"""

import os
import select
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from threading import current_thread, main_thread

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

SECONDS_BETWEEN_LOOKS = 1.0


@dataclass(frozen=True, kw_only=True)
class View:
    """What one look found: a drawing for a terminal, its news in plain lines, and the last words once it is over."""

    drawing: RenderableType
    news: Sequence[str] = ()
    ending: Sequence[str] | None = None


def follow(console: Console, look: Callable[[], View], once: bool) -> None:
    """Show what `look` finds once a second, until it is over or Ctrl-C: in place on a terminal, its news elsewhere."""
    view = look()
    if once:
        console.print(view.drawing)
        return
    with _until_interrupted() as interrupted:
        if console.is_interactive:
            with Live(view.drawing, console=console, auto_refresh=False) as live:
                while view.ending is None and not interrupted.wait(SECONDS_BETWEEN_LOOKS):
                    view = look()
                    live.update(view.drawing, refresh=True)
        else:
            _print(console, view.news)
            while view.ending is None and not interrupted.wait(SECONDS_BETWEEN_LOOKS):
                view = look()
                _print(console, view.news)
        _print(console, view.ending or ())


class Interruption:
    """Whether Ctrl-C came. A pipe and not an Event, whose lock the waiting thread may hold when the signal comes."""

    def __init__(self) -> None:
        self._receiver, self._sender = os.pipe()

    def set(self) -> None:
        os.write(self._sender, b"!")

    def wait(self, seconds: float) -> bool:
        """Until it came, at most so long; whether it came."""
        return bool(select.select([self._receiver], [], [], seconds)[0])

    def close(self) -> None:
        os.close(self._receiver)
        os.close(self._sender)


@contextmanager
def _until_interrupted() -> Iterator[Interruption]:
    """What Ctrl-C sets, in place of an exception that may come at any line."""
    with closing(Interruption()) as interrupted:
        if current_thread() is not main_thread():
            yield interrupted  # only a main thread receives signals
            return
        before = signal.signal(signal.SIGINT, lambda number, frame: interrupted.set())
        try:
            yield interrupted
        finally:
            signal.signal(signal.SIGINT, before)


def _print(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(Text(line), soft_wrap=True)
