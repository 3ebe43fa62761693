"""What tests of fabrics share: ranks as threads of one process, and heartbeats through a real store.

Connections to the store are opened once: where nobody answers for names, torch may take 5 s to open one.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from time import monotonic, sleep
from typing import Any, TypeVar

import pytest
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from deepex.fabric import heartbeat as heartbeat_module
from deepex.fabric.heartbeat import StoreHeartbeat
from deepex.world import World

V = TypeVar("V")

SECONDS = 30.0  # for what takes milliseconds, on a machine that is busy with other things
Start = Callable[..., StoreHeartbeat]

_numbers = count()


def on_threads(num_ranks: int, function: Callable[[int], V]) -> list[V]:
    """What `function` returns for each rank, in rank order; all run at the same time."""
    with ThreadPoolExecutor(num_ranks) as pool:
        return [future.result(SECONDS) for future in [pool.submit(function, rank) for rank in range(num_ranks)]]


def wait_until(holds: Callable[[], object]) -> None:
    """Look until something holds; AssertionError if it never does."""
    end = monotonic() + SECONDS
    while not holds():
        assert monotonic() < end, "what is waited for never happens"
        sleep(1e-3)


def give_up_late(waited_seconds: float) -> None:
    """For those who wait for peers: an error instead of a test that hangs."""
    assert waited_seconds < SECONDS, "a peer never arrives"


class Connection:
    """A connection to a store that can be frozen, as when the process that has it is stopped.

    Attributes:
        is_stuck: whether a call waits for it to thaw.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._moves, self._frozen_calls = threading.Event(), ""
        self.is_stuck = False
        self._moves.set()

    def freeze(self, calls: str = "") -> None:
        """Let no call through, or none of that name."""
        self._frozen_calls = calls
        self._moves.clear()

    def thaw(self) -> None:
        self._moves.set()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: object) -> object:
            if self._frozen_calls in ("", name):
                self.is_stuck = not self._moves.is_set()
                self._moves.wait()
            return getattr(self._store, name)(*arguments)

        return call


@pytest.fixture(scope="module")
def server() -> TCPStore:
    """A server of torch's store on this machine."""
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


@pytest.fixture(scope="module")
def clients(server: TCPStore) -> list[TCPStore]:
    return [TCPStore("127.0.0.1", server.port, is_master=False, wait_for_workers=False) for _ in range(3)]


@pytest.fixture
def connections(clients: list[TCPStore]) -> list[Connection]:
    """One for each of three ranks, to a part of the store that is the test's own."""
    prefix = f"test{next(_numbers)}"
    return [Connection(PrefixStore(prefix, client)) for client in clients]


@pytest.fixture
def start_heartbeat(connections: list[Connection], monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts the heartbeat of a rank; they beat ten times as fast as they usually do."""
    monkeypatch.setattr(heartbeat_module, "SECONDS_BETWEEN_BEATS", 0.05)
    started: list[StoreHeartbeat] = []

    def start(rank: int, size: int, *, timeout_seconds: float = SECONDS, serves: bool = False) -> StoreHeartbeat:
        store: Any = connections[rank]
        world = World(rank=rank, size=size, host=f"n{rank}")
        started.append(StoreHeartbeat(store, world, timeout_seconds, serves=serves))
        return started[-1]

    yield start
    for connection in connections:
        connection.thaw()
    for heartbeat in reversed(started):
        leave(heartbeat, "the test is over", is_cause=False)


def leave(heartbeat: StoreHeartbeat, reason: str, *, is_cause: bool) -> None:
    """Leave, and be gone before anything else happens, though `leave` itself does not wait for ever."""
    heartbeat.leave(reason, is_cause=is_cause)
    heartbeat._thread.join()
