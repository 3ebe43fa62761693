"""How ranks of one host wait for each other: a counter each in shared memory, and a watch over their processes.

Whoever waits looks a few times at once, then lets others run between looks, then sleeps longer and longer, so that a
peer that is seconds late costs nothing. It knows ranks and processes, and nothing of what they do.
"""

import os
import platform
import select
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from time import monotonic, perf_counter, sleep

LINE = 16  # words of 8 bytes between counters: two cache lines, because processors fetch them in pairs
COUNT, HAS_LEFT = 0, 1

SPINS = 100  # looks without a pause, some 70 µs; beyond that a peer is late for a reason
YIELDING_SECONDS = 1e-3  # looks with others between them, 3 µs each; `sleep` of any length takes 100 µs
SLEEP_SHARE = 0.03  # of the time waited so far, for the next sleep: nobody waits 3 % longer than he must
LONGEST_SLEEP_SECONDS = 0.01  # 0.4 % of a core
SECONDS_BETWEEN_WATCHES = 0.01

IS_ORDERED = platform.machine() in ("x86_64", "AMD64", "i686")  # its stores, and its loads, are seen in their order
_lock = threading.Lock()


def fence() -> None:
    """Keep what was read and written before in front of what is read and written after, as others see it.

    x86 does that by itself. Elsewhere a release and then an acquire do; taking a lock twice has them in this order.
    """
    if not IS_ORDERED:
        for _ in range(2):
            with _lock:
                pass


class Turnstile:
    """A counter for each rank; a rank is let through when all others have come as often as it has.

    Arguments:
        counters: a rank's words of shared memory, for each rank; it writes those of its own.
        rank: this rank's number among them.

    Attributes:
        count: how often this rank has come.
    """

    def __init__(self, counters: Sequence[memoryview], rank: int) -> None:
        self._own = counters[rank]
        self._others = [(other, words) for other, words in enumerate(counters) if other != rank]
        self.count = 0

    def come(self) -> None:
        """Say that this rank is here, and all that it has written is there to be read."""
        self.count += 1
        fence()
        self._own[COUNT] = self.count

    def is_open(self) -> bool:
        """Whether all others are here too."""
        count = self.count
        for _, words in self._others:
            if words[COUNT] < count:
                return False
        fence()
        return True

    def missing(self) -> list[int]:
        """Who is not here."""
        return [other for other, words in self._others if words[COUNT] < self.count]

    def leave(self) -> None:
        self._own[HAS_LEFT] = 1

    def left(self) -> list[int]:
        """Who has said that it will not come again."""
        return [other for other, words in self._others if words[HAS_LEFT]]


class Watch:
    """Whether processes of this host are alive; one that has ended and was not waited for by its parent is not."""

    def __init__(self) -> None:
        self._descriptors: dict[int, int] = {}

    def add(self, process: int) -> None:
        """From now on this number means the process that has it now."""
        with suppress(OSError, AttributeError):  # an old kernel, or one that forbids it: /proc tells too
            self._descriptors[process] = os.pidfd_open(process)

    def is_dead(self, process: int) -> bool:
        if process not in self._descriptors:
            return _is_gone(process)
        poll = select.poll()
        poll.register(self._descriptors[process], select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])


def _is_gone(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Patience:
    """The pauses of one wait.

    Arguments:
        is_crowded: whether there are more ranks than cores, so that a peer can come only if this rank lets it.
    """

    def __init__(self, *, is_crowded: bool) -> None:
        self._spins = 0 if is_crowded else SPINS
        self.restart()

    def restart(self) -> None:
        """Something has happened: begin again with looking."""
        self._looks = 0
        self._since = 0.0
        self._next_watch = 0.0

    def pause(self) -> float:
        """Let time pass; seconds waited so far, where it is time to see whether those waited for live, else 0."""
        self._looks += 1
        if self._looks < self._spins:
            return 0.0
        now = monotonic()
        if not self._since:
            self._since, self._next_watch = now, now + SECONDS_BETWEEN_WATCHES
        waited = now - self._since
        if waited < YIELDING_SECONDS:
            os.sched_yield()
            return 0.0
        sleep(min(SLEEP_SHARE * waited, LONGEST_SLEEP_SECONDS))
        if now < self._next_watch:
            return 0.0
        self._next_watch = now + SECONDS_BETWEEN_WATCHES
        return waited


class Errand:
    """A collective as steps; after each of them a rank waits until all have come as far."""

    def __init__(self, agenda: "Agenda", steps: Iterator[None], complain: Callable[[float], None]) -> None:
        self.complain = complain
        self._agenda, self._steps = agenda, steps
        self.is_done = False
        self.busy_seconds = self._began = 0.0

    def advance(self) -> None:
        """Take the next step; an error ends the errand."""
        self._began = self._began or perf_counter()
        is_last = True
        try:
            for _ in self._steps:
                is_last = False
                break
        finally:
            self.busy_seconds = perf_counter() - self._began
            self.is_done = is_last

    def finish(self) -> None:
        """Take all of its steps, and any others that come before."""
        self._agenda.finish(self)


class Agenda:
    """Errands that wait to be done: in order among the same ranks, and in any order among different ones.

    Whoever waits for one of them also takes steps of the others, so that ranks which wait in a circle, each for an
    errand with another neighbour, all come through.

    Arguments:
        is_crowded: whether there are more ranks than cores.
    """

    def __init__(self, *, is_crowded: bool) -> None:
        self._is_crowded = is_crowded
        self._queues: dict[Turnstile, deque[Errand]] = {}
        self._lock = threading.Lock()

    def add(self, turnstile: Turnstile, steps: Iterator[None], complain: Callable[[float], None]) -> Errand:
        """A new errand, the last among those of the same ranks.

        Arguments:
            turnstile: where these ranks wait for each other.
            steps: does a part of the work each time that it is resumed.
            complain: given the seconds waited, raises if those that are missing will not come.
        """
        errand = Errand(self, steps, complain)
        with self._lock:
            self._queues.setdefault(turnstile, deque()).append(errand)
        return errand

    def finish(self, errand: Errand) -> None:
        """Go on until this one is done."""
        patience = Patience(is_crowded=self._is_crowded)
        while not errand.is_done:
            if self.advance():
                patience.restart()
            elif waited := patience.pause():
                errand.complain(waited)

    def advance(self) -> bool:
        """Take every step that can be taken now; whether there was one."""
        has_moved = False
        with self._lock:
            for turnstile, queue in tuple(self._queues.items()):
                if turnstile.is_open():
                    has_moved = True
                    try:
                        queue[0].advance()
                    finally:
                        if queue[0].is_done:
                            queue.popleft()
                        if not queue:
                            del self._queues[turnstile]
        return has_moved


class Agendas(threading.local):
    """An agenda for each thread: one that serves a group must not do what another waits for."""

    def __init__(self, *, is_crowded: bool) -> None:
        self.own = Agenda(is_crowded=is_crowded)
