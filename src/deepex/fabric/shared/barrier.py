"""Where ranks of one host wait for each other: a counter for each rank, in memory that all of them see.

It knows counters and their order in memory, and nothing of what ranks do between two barriers.
"""

import platform
import threading
from collections.abc import Sequence

COUNTER_WORDS = 16  # of 8 bytes, for each rank: two cache lines, because processors fetch them in pairs
COUNT, HAS_LEFT = 0, 1  # which of these words is which

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


class Barrier:
    """A counter for each rank; the barrier is open to a rank when all others have arrived as often as it has.

    Arguments:
        counters: a rank's words of shared memory, for each rank; it writes those of its own.
        rank: this rank's number among them.

    Attributes:
        count: how often this rank has arrived.
    """

    def __init__(self, counters: Sequence[memoryview], rank: int) -> None:
        self._own = counters[rank]
        self._others = [(other, words) for other, words in enumerate(counters) if other != rank]
        self.count = 0

    def arrive(self) -> None:
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
        """Which ranks have not arrived."""
        return [other for other, words in self._others if words[COUNT] < self.count]

    def leave(self) -> None:
        """Say that this rank will not arrive again."""
        self._own[HAS_LEFT] = 1

    def left(self) -> list[int]:
        """Which ranks have said that they will not arrive again."""
        return [other for other, words in self._others if words[HAS_LEFT]]
