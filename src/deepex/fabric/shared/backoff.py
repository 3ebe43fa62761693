"""How long to pause between two looks at what a rank waits for. It knows time, and nothing of what is waited for.

A rank looks a few times at once, then lets others run between looks, then sleeps longer and longer, so that a peer that
is seconds late costs nothing.
"""

import os
from time import monotonic, sleep

SPINS = 100  # looks without a pause, some 70 µs; beyond that a peer is late for a reason
YIELDING_SECONDS = 1e-3  # looks with others between them, 3 µs each; `sleep` of any length takes 100 µs
SLEEP_SHARE = 0.03  # of the time waited so far, for the next sleep: nobody waits 3 % longer than needed
LONGEST_SLEEP_SECONDS = 0.01  # 0.4 % of a core
SECONDS_BETWEEN_CHECKS = 0.01


class Backoff:
    """The pauses of one wait.

    Arguments:
        is_oversubscribed: whether there are more ranks than cores, so that a peer can arrive only if this rank lets it.
    """

    def __init__(self, *, is_oversubscribed: bool) -> None:
        self._spins = 0 if is_oversubscribed else SPINS
        self._looks = 0
        self._since = self._next_check = 0.0

    def reset(self) -> None:
        """Something has happened: begin again without pauses."""
        self._looks = 0
        self._since = 0.0

    def pause(self) -> float:
        """Let time pass; seconds waited so far, where it is time to check that the peers are alive, else 0."""
        self._looks += 1
        if self._looks < self._spins:
            return 0.0
        now = monotonic()
        if not self._since:
            self._since, self._next_check = now, now + SECONDS_BETWEEN_CHECKS
        waited = now - self._since
        if waited < YIELDING_SECONDS:
            os.sched_yield()
            return 0.0
        sleep(min(SLEEP_SHARE * waited, LONGEST_SLEEP_SECONDS))
        if now < self._next_check:
            return 0.0
        self._next_check = now + SECONDS_BETWEEN_CHECKS
        return waited
