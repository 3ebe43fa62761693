"""Who is alive: every rank leaves heartbeats in the rendezvous's store, so that an error can name who is gone.

A collective that fails tells that someone is missing, not who. A thread writes a beat into the store twice a second;
a rank whose beat stands still is gone, stopped or cut off. Each rank watches the next one, so that a loss is noticed
even where nobody talks for an hour. A request to stop travels the same way, without a collective.
"""

import json
import threading
from time import monotonic, sleep
from typing import NamedTuple, Protocol

from torch._C._distributed_c10d import Store  # torch.distributed leaves it out of its types

from deepex.errors import PeerError
from deepex.world import World

SECONDS_BETWEEN_BEATS = 0.5
SECONDS_TO_SERVE = 4.0  # how long the rank that serves the store stays for the others, once it leaves
SECONDS_TO_JUDGE = 1.6  # three beats: whoever has not moved in them is silent


class Heartbeat(Protocol):
    """Who is alive, and whether a rank wants all to stop.

    Attributes:
        failure: which ranks have failed and why, in words, once that is known; empty while all is well.
        failed_ranks: the same as numbers.
        stop_requested: whether any rank has asked all to stop.
    """

    failure: str
    failed_ranks: set[int]
    stop_requested: bool

    def request_stop(self) -> None:
        """Ask all ranks to stop; they know within a second or so. Safe in a signal handler."""

    def find_failure(self) -> str:
        """Who is silent now, in words; takes a second or two."""

    def leave(self, reason: str, *, is_cause: bool) -> None:
        """The last beat: why this rank goes, and whether that is a cause of its own or a peer's failure."""


class SoloHeartbeat:
    """The heartbeat of a rank that is alone."""

    def __init__(self) -> None:
        self.failure, self.failed_ranks = "", set[int]()
        self.stop_requested = False

    def request_stop(self) -> None:
        self.stop_requested = True

    def find_failure(self) -> str:
        return "no peer"

    def leave(self, reason: str, *, is_cause: bool) -> None:
        return None


class Departure(NamedTuple):
    """What a rank writes into the store when it leaves."""

    reason: str
    is_cause: bool


class StoreHeartbeat:
    """Heartbeats of all ranks, by a thread and a connection to the store that are the heartbeat's own.

    Arguments:
        store: a connection that nobody else uses.
        world: this rank's place among all ranks.
        timeout_seconds: how long the next rank may be silent before it counts as failed.
        serves: whether the store ends with this rank.
    """

    def __init__(self, store: Store, world: World, timeout_seconds: float, *, serves: bool) -> None:
        self.world, self.timeout_seconds, self._serves = world, timeout_seconds, serves
        self.failure, self.failed_ranks = "", set[int]()
        self.stop_requested = False
        self._store = store
        self._to_write: list[tuple[str, str]] = [(f"host/{world.rank}", world.host)]
        self._hosts: dict[int, str] = {}
        self._beats: dict[int, tuple[int, float]] = {}  # a rank's last beat, and since when it stands there
        self._is_search_wanted, self._is_searched = threading.Event(), threading.Event()
        self._has_left = threading.Event()
        self._wake = threading.Event()
        self._last_contact = monotonic()
        self._thread = threading.Thread(target=self._run, name="deepex-heartbeat", daemon=True)
        self._thread.start()

    def request_stop(self) -> None:
        self.stop_requested = True
        self._to_write.append(("stop", "1"))

    def leave(self, reason: str, *, is_cause: bool) -> None:
        self._to_write.append((f"departure/{self.world.rank}", json.dumps(Departure(reason, is_cause))))
        self._has_left.set()
        self._wake.set()
        self._thread.join(2 * SECONDS_BETWEEN_BEATS + (SECONDS_TO_SERVE if self._serves else 0.0))

    def find_failure(self) -> str:
        if self.failure:
            return self.failure
        self._is_searched.clear()
        self._is_search_wanted.set()
        self._wake.set()
        if not self._is_searched.wait(2 * SECONDS_TO_JUDGE):
            self.failed_ranks.add(0)
            return (
                f"{self._describe(0)} is gone or can't be reached: the rendezvous that it serves has been silent for "
                f"{monotonic() - self._last_contact:.0f} s"
            )
        return self.failure or "no rank is silent; look at the network between them"

    def _run(self) -> None:
        """What the thread does: beat, read, watch the next rank, until this one leaves."""
        try:
            while True:
                self._beat()
                if self._is_search_wanted.is_set():
                    self._search()
                if self._has_left.is_set():
                    self._write()  # the departure, if it came after this beat had begun
                    self._keep_serving()
                    return
                self._wake.wait(SECONDS_BETWEEN_BEATS)
                self._wake.clear()
        except (RuntimeError, OSError) as error:  # the store went away with the rank that serves it
            if not self._has_left.is_set():
                reason = str(error).splitlines()[0]
                self.failed_ranks.add(0)
                self.failure = f"{self._describe(0)} is gone: the rendezvous that it serves does not answer ({reason})"
                self._is_searched.set()

    def _keep_serving(self) -> None:
        """Let the others read why this rank goes before the store goes with it."""
        end = monotonic() + SECONDS_TO_SERVE
        departures = [f"departure/{rank}" for rank in range(self.world.size)]
        while self._serves and monotonic() < end and not self._store.check(departures):
            sleep(SECONDS_BETWEEN_BEATS / 10)

    def _beat(self) -> None:
        """Write what there is to write and a beat; read what others have written; look at the next rank."""
        self._write()
        self._store.add(f"beat/{self.world.rank}", 1)
        self._last_contact = monotonic()
        if not self.stop_requested and self._store.check(["stop"]):
            self.stop_requested = True
        if not self.failure and self._store.check(["failure"]):
            found = json.loads(self._store.get("failure"))
            self.failure, self.failed_ranks = found["text"], set(found["ranks"])
        self._learn_hosts()
        self._watch_next()

    def _write(self) -> None:
        while self._to_write:
            key, text = self._to_write.pop(0)
            self._store.set(key, text)

    def _watch_next(self) -> None:
        """Tell all ranks if the next one has been silent for too long, and has not left."""
        rank = (self.world.rank + 1) % self.world.size
        if not self.failure and self._silent_seconds(rank) > self.timeout_seconds and self._departure(rank) is None:
            self._set_failure([rank])
            self._store.set("failure", json.dumps({"text": self.failure, "ranks": [rank]}))

    def _learn_hosts(self) -> None:
        """Where the ranks run, while the store is there to ask."""
        if len(self._hosts) < self.world.size:
            for rank in range(self.world.size):
                if rank not in self._hosts and self._store.check([f"host/{rank}"]):
                    self._hosts[rank] = self._store.get(f"host/{rank}").decode()

    def _silent_seconds(self, rank: int) -> float:
        """Seconds since a rank's beat last moved, as far as this rank has looked."""
        count, now = self._store.add(f"beat/{rank}", 0), monotonic()
        before = self._beats.get(rank)
        if before is None or before[0] != count:
            self._beats[rank] = (count, now)
            return 0.0
        return now - before[1]

    def _search(self) -> None:
        """Look at all beats, look again for a while, and say whose has not moved."""
        ranks = [rank for rank in range(self.world.size) if rank != self.world.rank]
        first = {rank: self._store.add(f"beat/{rank}", 0) for rank in ranks}
        silent, end = set(ranks), monotonic() + SECONDS_TO_JUDGE
        while silent and monotonic() < end and not self._has_left.wait(SECONDS_TO_JUDGE / 8):
            self._store.add(f"beat/{self.world.rank}", 1)
            silent = {rank for rank in silent if self._store.add(f"beat/{rank}", 0) == first[rank]}
        departures = {rank: found for rank in ranks if (found := self._departure(rank)) is not None}
        causes = [rank for rank in ranks if rank in departures and departures[rank].is_cause]
        causes += [rank for rank in sorted(silent) if rank not in departures]
        if causes and not self.failure:
            self._set_failure(causes)
        self._is_search_wanted.clear()
        self._is_searched.set()

    def _departure(self, rank: int) -> Departure | None:
        key = f"departure/{rank}"
        return Departure(*json.loads(self._store.get(key))) if self._store.check([key]) else None

    def _set_failure(self, ranks: list[int]) -> None:
        """Remember ranks that are gone, with their hosts, and why as far as they said."""
        parts = []
        for rank in ranks:
            departure = self._departure(rank)
            why = f"has left: {departure.reason}" if departure else "is gone: it gives no sign of life"
            parts.append(f"{self._describe(rank)} {why}")
        self.failure, self.failed_ranks = "; ".join(parts), set(ranks)

    def _describe(self, rank: int) -> str:
        return f"rank {rank} on {self._hosts[rank]}" if rank in self._hosts else f"rank {rank}"


def peer_error(heartbeat: Heartbeat, world: World, what: str, *, detail: str = "", who: str = "") -> PeerError:
    """The error of a rank that waits in vain: what it was doing, who is gone (found out if not given), what to do.

    The first of the ranks that are left tells people.
    """
    who = who or heartbeat.find_failure()
    left = [rank for rank in range(world.size) if rank not in heartbeat.failed_ranks]
    more = f" ({detail})" if detail else ""
    text = f"{world}: {what} failed: {who}. Look for the first error there.{more}"
    return PeerError(text, tells=world.rank == min(left, default=world.rank))
