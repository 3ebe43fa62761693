"""Whom a rank gives up: peers that are real processes, and heartbeats through a real store."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from torch._C._distributed_c10d import TCPStore

from deepex.errors import PeerError
from deepex.fabric import Rendezvous
from deepex.fabric import heartbeat as heartbeat_module
from deepex.fabric.shared.failure import FailureDetector
from deepex.fabric.shared.peers import Peers
from deepex.world import World
from tests.fabric.conftest import Start, leave

TIMEOUT_SECONDS = 60.0
HOSTS = {0: "n0", 1: "n0", 2: "n0"}


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of ranks 1 and 2, which live until their input ends."""
    with ExitStack() as stack:
        yield [stack.enter_context(subprocess.Popen(["cat"], stdin=subprocess.PIPE)) for _ in range(2)]


@pytest.fixture(scope="module")
def rendezvous(server: TCPStore) -> Iterator[Rendezvous]:
    world, address = World(rank=0, size=3, host="n0"), f"127.0.0.1:{server.port}"
    rendezvous = Rendezvous(world, address=address, agent_store=True, timeout_seconds=TIMEOUT_SECONDS)
    heartbeat = rendezvous.heartbeat
    yield rendezvous
    heartbeat.leave("the tests are over", is_cause=False)


@pytest.fixture
def detector(
    children: list[subprocess.Popen[bytes]],
    rendezvous: Rendezvous,
    start_heartbeat: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[FailureDetector]:
    """That of rank 0, in a group whose members are, in their order, ranks 2, 0 and 1."""
    monkeypatch.setattr(heartbeat_module, "SECONDS_TO_JUDGE", 0.2)  # no peer here has a beat that could be missed
    rendezvous.heartbeat = start_heartbeat(0, 3)
    peers = Peers(HOSTS, {0: os.getpid(), 1: children[0].pid, 2: children[1].pid}, num_cores=3)
    yield FailureDetector(rendezvous, [2, 0, 1], peers)
    peers.leave()


def end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


def test_a_peer_that_is_late_and_alive_is_waited_for(detector: FailureDetector) -> None:
    detector.check("gather", lambda: [0, 2], list, TIMEOUT_SECONDS / 2)
    detector.check("gather", list, list, 2 * TIMEOUT_SECONDS)
    assert detector.error is None


def test_a_peer_whose_process_has_ended_is_named_at_once(
    detector: FailureDetector, children: list[subprocess.Popen[bytes]]
) -> None:
    end(children[1])
    with pytest.raises(PeerError) as caught:
        detector.check("gather", lambda: [0, 2], list, 0.01)
    assert str(caught.value) == (
        f"rank 0 of 3 on n0: gather failed: rank 2 on n0 is gone: process {children[1].pid} has ended without a word, "
        "killed perhaps by a signal. Look for the first error there. (a collective waits 60 s for a peer; missing: "
        "rank 2 on n0, rank 1 on n0)"
    )
    assert detector.error is caught.value
    assert caught.value.tells  # rank 0 is left, and the first


def test_a_peer_that_has_arrived_before_it_ended_is_not_missing(
    detector: FailureDetector, children: list[subprocess.Popen[bytes]]
) -> None:
    end(children[1])
    looks = iter([[0, 2], [2]])
    detector.check("gather", lambda: next(looks), list, 0.01)
    assert detector.error is None


def test_a_peer_that_has_left_says_why(detector: FailureDetector, start_heartbeat: Start) -> None:
    leave(start_heartbeat(1, 3), "ValueError: seven", is_cause=True)
    leave(start_heartbeat(2, 3), "it is done", is_cause=False)
    with pytest.raises(PeerError, match="all-reduce failed: rank 1 on n1 has left: ValueError: seven"):
        detector.check("all-reduce", lambda: [2], lambda: [2], 0.01)


def test_a_peer_that_has_left_for_no_cause_of_its_own_is_named_too(
    detector: FailureDetector, start_heartbeat: Start
) -> None:
    for rank in (1, 2):
        leave(start_heartbeat(rank, 3), "it is done", is_cause=False)
    with pytest.raises(PeerError, match=r"all-reduce failed: rank 2 on n0 has left\. Look"):
        detector.check("all-reduce", lambda: [0, 2], lambda: [0], 0.01)


def test_when_the_time_is_up_the_silent_are_named(detector: FailureDetector) -> None:
    with pytest.raises(PeerError, match=r"rank 1 is gone: it gives no sign of life; rank 2 is gone: it gives no sign"):
        detector.check("all-reduce", lambda: [0], list, TIMEOUT_SECONDS + 1)


def test_memory_that_can_t_be_opened_ends_the_group(
    detector: FailureDetector, children: list[subprocess.Popen[bytes]], start_heartbeat: Start
) -> None:
    leave(start_heartbeat(1, 3), "it is done", is_cause=False)
    leave(start_heartbeat(2, 3), "ValueError: seven", is_cause=True)
    error = detector.unreachable("broadcast", FileNotFoundError("no such file"))
    assert "broadcast failed: rank 2 on n2 has left: ValueError: seven" in str(error)
    assert "its memory can't be opened: no such file" in str(error)
    assert detector.error is error
