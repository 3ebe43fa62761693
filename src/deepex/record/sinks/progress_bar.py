"""How far a pass over samples is: a bar on a terminal, a line now and then elsewhere. stdout stays for results."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from deepex.text import say_clock, say_percent

SECONDS_BETWEEN_LINES, SHARE_BETWEEN_LINES = 5.0, 0.1
SECONDS_BETWEEN_DRAWINGS = 0.1


class ProgressBar:
    """Told how many samples are done, it tells people: samples a second, MiB if it knows a sample's size, time left.

    Rates count from the first that it is told, which may be what an earlier try has done.
    """

    def __init__(self, verb: str, sample_bytes: int = 0, speaks: bool = True) -> None:
        self.verb, self.sample_bytes, self.speaks = verb, sample_bytes, speaks
        self.first: tuple[float, int] | None = None
        self.last_seconds, self.last_done = time.monotonic(), 0
        self.progress: Progress | None = None

    def __enter__(self) -> Self:
        if self.speaks and sys.stderr.isatty():
            columns = (TextColumn(self.verb), BarColumn(bar_width=32), TextColumn("{task.fields[text]}"))
            # Without a thread that draws: where there are threads, ranks can't be forked.
            self.progress = Progress(*columns, console=Console(stderr=True, highlight=False), auto_refresh=False)
            self.progress.add_task(self.verb, total=None, text="")
            self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.progress is not None:
            self.progress.stop()

    def tell(self, done: int, total: int) -> None:
        """So many samples of so many are done."""
        now = time.monotonic()
        if self.first is None:
            self.first = (now, done)
        since = now - self.last_seconds
        if self.progress is not None:
            if since > SECONDS_BETWEEN_DRAWINGS or done == total:
                self.last_seconds = now
                self.progress.update(
                    self.progress.task_ids[0], completed=done, total=total, text=self._text(done, total)
                )
                self.progress.refresh()
        elif self.speaks and since > SECONDS_BETWEEN_LINES and done - self.last_done > SHARE_BETWEEN_LINES * total:
            self.last_seconds, self.last_done = now, done
            print(f"{self.verb} {say_percent(done / total)}: {self._text(done, total)}", file=sys.stderr, flush=True)

    def _text(self, done: int, total: int) -> str:
        assert self.first is not None
        start, before = self.first
        seconds = time.monotonic() - start
        rate = (done - before) / seconds if seconds > 0 else 0.0
        text = f"{done:,}/{total:,} samples"
        if not rate:
            return text
        bytes_rate = f"  {rate * self.sample_bytes / 2**20:,.0f} MiB/s" if self.sample_bytes else ""
        return (
            f"{text}  {rate:,.{0 if rate >= 10 else 1}f} samples/s{bytes_rate}  {say_clock((total - done) / rate)} left"
        )
