"""Who is alive: every rank leaves a sign of life where ranks met, so that an error can name who is gone.

A collective that fails tells that someone is missing, not who. A thread writes a beat into the store twice a second;
a rank whose beat stands still is gone, stopped or cut off. Ranks watch their neighbour, so that a loss is noticed even
where nobody talks for an hour, and words such as "stop" reach all ranks without a collective.
"""

import json
import threading
from time import monotonic, sleep
from typing import Any, Protocol

from torch._C._distributed_c10d import Store  # torch.distributed leaves it out of its types

from deepex.errors import PeerError
from deepex.world import World

SECONDS_BETWEEN_BEATS = 0.5
SECONDS_TO_SERVE = 4.0  # how long the rank that serves the store stays for the others, once it leaves
SECONDS_TO_JUDGE = 1.6  # three beats: whoever has not moved in them is silent


class Pulse(Protocol):
    """Who is alive, and words that reach all ranks.

    Attributes:
        lost: who was lost, in words, once that is known; empty while all is well.
        lost_ranks: the same as numbers.
    """

    lost: str
    lost_ranks: set[int]

    def tell(self, word: str) -> None:
        """Let all ranks hear a word within a second or so. Safe in a signal handler."""

    def heard(self, word: str) -> bool:
        """Whether any rank has told this word."""

    def blame(self) -> str:
        """Who is silent now, in words; takes a second or two."""

    def leave(self, reason: str, *, is_cause: bool) -> None:
        """The last beat: why this rank goes, and whether that is a cause of its own or a peer's failure."""


class Stillness:
    """The pulse of a rank that is alone."""

    def __init__(self) -> None:
        self.lost, self.lost_ranks = "", set[int]()
        self._words: set[str] = set()

    def tell(self, word: str) -> None:
        self._words.add(word)

    def heard(self, word: str) -> bool:
        return word in self._words

    def blame(self) -> str:
        return "no peer"

    def leave(self, reason: str, *, is_cause: bool) -> None:
        return None


class StorePulse:
    """Signs of life of all ranks, by a thread and a connection to the store that are the pulse's own.

    Arguments:
        store: a connection that nobody else uses.
        world: this rank's place among all ranks.
        timeout_seconds: how long a neighbour may be silent before it counts as lost.
        serves: whether the store ends with this rank.
    """

    def __init__(self, store: Store, world: World, timeout_seconds: float, *, serves: bool) -> None:
        self.world, self.timeout_seconds, self._serves = world, timeout_seconds, serves
        self.lost, self.lost_ranks = "", set[int]()
        self._store = store
        self._to_tell: list[tuple[str, str]] = [(f"host/{world.rank}", world.host)]
        self._words: set[str] = set()
        self._hosts: dict[int, str] = {}
        self._beats: dict[int, tuple[int, float]] = {}  # a rank's last beat, and since when it stands there
        self._asked, self._answered = threading.Event(), threading.Event()
        self._left = threading.Event()
        self._wake = threading.Event()
        self._spoke_at = monotonic()
        self._thread = threading.Thread(target=self._beat, name="deepex-pulse", daemon=True)
        self._thread.start()

    def tell(self, word: str) -> None:
        self._words.add(word)
        self._to_tell.append((f"word/{word}", "1"))

    def heard(self, word: str) -> bool:
        return word in self._words

    def leave(self, reason: str, *, is_cause: bool) -> None:
        self._to_tell.append((f"farewell/{self.world.rank}", json.dumps({"reason": reason, "is_cause": is_cause})))
        self._left.set()
        self._wake.set()
        self._thread.join(2 * SECONDS_BETWEEN_BEATS + (SECONDS_TO_SERVE if self._serves else 0.0))

    def blame(self) -> str:
        if self.lost:
            return self.lost
        self._answered.clear()
        self._asked.set()
        self._wake.set()
        if not self._answered.wait(2 * SECONDS_TO_JUDGE):
            self.lost_ranks.add(0)
            return (
                f"rank 0{self._on(0)} is gone or can't be reached: the meeting point that it serves has been silent "
                f"for {monotonic() - self._spoke_at:.0f} s"
            )
        return self.lost or "no rank is silent; look at the network between them"

    def _beat(self) -> None:
        """What the thread does: beat, listen, watch the neighbour, until the rank leaves."""
        try:
            while True:
                self._exchange()
                if self._asked.is_set():
                    self._judge()
                if self._left.is_set():
                    self._serve_on()
                    return
                self._wake.wait(SECONDS_BETWEEN_BEATS)
                self._wake.clear()
        except (RuntimeError, OSError) as error:  # the store went away with the rank that serves it
            if not self._left.is_set():
                where = str(error).splitlines()[0]
                self.lost_ranks.add(0)
                self.lost = f"rank 0{self._on(0)} is gone: the meeting point that it serves does not answer ({where})"
                self._answered.set()

    def _serve_on(self) -> None:
        """Let the others read why this rank goes before the store goes with it."""
        end = monotonic() + SECONDS_TO_SERVE
        farewells = [f"farewell/{rank}" for rank in range(self.world.size)]
        while self._serves and monotonic() < end and not self._store.check(farewells):
            sleep(SECONDS_BETWEEN_BEATS / 10)

    def _exchange(self) -> None:
        while self._to_tell:
            key, text = self._to_tell.pop(0)
            self._store.set(key, text)
        self._store.add(f"beat/{self.world.rank}", 1)
        self._spoke_at = monotonic()
        for word in ("stop", "lost"):
            if word not in self._words and self._store.check([f"word/{word}"]):
                self._words.add(word)
        if "lost" in self._words and not self.lost:
            told = json.loads(self._store.get("word/lost"))
            self.lost, self.lost_ranks = told["text"], set(told["ranks"])
        self._learn_hosts()
        neighbour = (self.world.rank + 1) % self.world.size
        if not self.lost and self._silence(neighbour) > self.timeout_seconds and self._farewell(neighbour) is None:
            self._lose([neighbour])
            self._store.set("word/lost", json.dumps({"text": self.lost, "ranks": [neighbour]}))

    def _learn_hosts(self) -> None:
        """Where the ranks stand, while the store is there to ask."""
        if len(self._hosts) < self.world.size:
            for rank in range(self.world.size):
                if rank not in self._hosts and self._store.check([f"host/{rank}"]):
                    self._hosts[rank] = self._store.get(f"host/{rank}").decode()

    def _silence(self, rank: int) -> float:
        """Seconds since a rank's beat last moved, as far as this rank has looked."""
        count, now = self._store.add(f"beat/{rank}", 0), monotonic()
        before = self._beats.get(rank)
        if before is None or before[0] != count:
            self._beats[rank] = (count, now)
            return 0.0
        return now - before[1]

    def _judge(self) -> None:
        """Look at all beats, look again for a while, and say whose has not moved."""
        ranks = [rank for rank in range(self.world.size) if rank != self.world.rank]
        first = {rank: self._store.add(f"beat/{rank}", 0) for rank in ranks}
        silent, end = set(ranks), monotonic() + SECONDS_TO_JUDGE
        while silent and monotonic() < end and not self._left.wait(SECONDS_TO_JUDGE / 8):
            self._store.add(f"beat/{self.world.rank}", 1)
            silent = {rank for rank in silent if self._store.add(f"beat/{rank}", 0) == first[rank]}
        farewells = {rank: told for rank in ranks if (told := self._farewell(rank)) is not None}
        causes = [rank for rank in ranks if rank in farewells and farewells[rank]["is_cause"]]
        causes += [rank for rank in sorted(silent) if rank not in farewells]
        if causes and not self.lost:
            self._lose(causes)
        self._asked.clear()
        self._answered.set()

    def _farewell(self, rank: int) -> dict[str, Any] | None:
        key = f"farewell/{rank}"
        return dict(json.loads(self._store.get(key))) if self._store.check([key]) else None

    def _lose(self, ranks: list[int]) -> None:
        """Write down ranks that are gone, with their hosts, and why as far as they said."""
        parts = []
        for rank in ranks:
            told = self._farewell(rank)
            why = f"has left: {told['reason']}" if told else "is gone: it gives no sign of life"
            parts.append(f"rank {rank}{self._on(rank)} {why}")
        self.lost, self.lost_ranks = "; ".join(parts), set(ranks)

    def _on(self, rank: int) -> str:
        return f" on {self._hosts[rank]}" if rank in self._hosts else ""


def peer_error(pulse: Pulse, world: World, what: str, *, detail: str = "", who: str = "") -> PeerError:
    """The error of a rank that waits in vain: what it was doing, who is gone (found out if not given), what to do.

    The first of the ranks that are left tells people.
    """
    who = who or pulse.blame()
    left = [rank for rank in range(world.size) if rank not in pulse.lost_ranks]
    more = f" ({detail})" if detail else ""
    text = f"{world}: {what} failed: {who}. Look for the first error there.{more}"
    return PeerError(text, tells=world.rank == min(left, default=world.rank))
