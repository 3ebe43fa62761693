"""Heartbeats of several ranks in one process, through a real store."""

import threading

import pytest
from torch._C._distributed_c10d import TCPStore

from deepex.fabric import heartbeat as module
from deepex.fabric.heartbeat import SoloHeartbeat, StoreHeartbeat, peer_error
from deepex.world import World
from tests.fabric.conftest import SECONDS, Connection, Start, leave, wait_until


def know_hosts(heartbeat: StoreHeartbeat, size: int) -> bool:
    return len(heartbeat._hosts) == size


def test_ranks_that_beat_are_not_accused(start_heartbeat: Start) -> None:
    ranks = [start_heartbeat(rank, 3) for rank in range(3)]
    assert ranks[0].find_failure() == "no rank is silent; look at the network between them"
    assert (ranks[0].failure, ranks[0].failed_ranks) == ("", set())


def test_a_rank_that_falls_silent_is_named_to_who_asks(start_heartbeat: Start, connections: list[Connection]) -> None:
    ranks = [start_heartbeat(rank, 3) for rank in range(3)]
    wait_until(lambda: know_hosts(ranks[0], 3))
    connections[2].freeze()
    assert ranks[0].find_failure() == "rank 2 on n2 is gone: it gives no sign of life"
    assert ranks[0].failed_ranks == {2}
    assert not ranks[1].failure  # nobody has asked it, and its timeout is long


def test_a_rank_that_falls_silent_is_noticed_by_the_one_before_it_who_tells_all(
    start_heartbeat: Start, connections: list[Connection]
) -> None:
    ranks = [start_heartbeat(rank, 3, timeout_seconds=1.0 if rank == 1 else SECONDS) for rank in range(3)]
    wait_until(lambda: know_hosts(ranks[1], 3))
    connections[2].freeze()
    wait_until(lambda: ranks[0].failure and ranks[1].failure)
    assert ranks[0].failure == ranks[1].failure == "rank 2 on n2 is gone: it gives no sign of life"
    assert ranks[0].failed_ranks == ranks[1].failed_ranks == {2}
    assert ranks[0].find_failure() == ranks[0].failure


def test_of_ranks_that_have_left_the_one_with_a_cause_of_its_own_is_named(
    start_heartbeat: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS_TO_JUDGE", 0.2)  # nobody is left whose beat could be missed
    ranks = [start_heartbeat(rank, 3) for rank in range(3)]
    leave(ranks[1], "DataError: no file", is_cause=True)
    leave(ranks[2], "PeerError: rank 1 left", is_cause=False)
    assert ranks[0].find_failure() == "rank 1 on n1 has left: DataError: no file"
    assert ranks[0].failed_ranks == {1}


def test_a_rank_that_has_left_in_peace_is_not_missed(start_heartbeat: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_TO_JUDGE", 0.2)
    leave(start_heartbeat(1, 2), "it is done", is_cause=False)
    first = start_heartbeat(0, 2, timeout_seconds=0.1)
    for _ in range(2):  # each takes longer than the timeout, and begins with a beat
        assert "no rank is silent" in first.find_failure()
    assert not first.failure


def test_who_leaves_in_the_midst_of_a_beat_still_says_why(
    start_heartbeat: Start, connections: list[Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS_TO_JUDGE", 0.2)
    connections[1].freeze("add")  # what a beat does after it has written what there was to write
    first, second = start_heartbeat(0, 2), start_heartbeat(1, 2)
    wait_until(lambda: connections[1].is_stuck)
    leaving = threading.Thread(target=leave, args=[second, "ValueError: seven"], kwargs={"is_cause": True})
    leaving.start()
    wait_until(second._has_left.is_set)
    connections[1].thaw()
    leaving.join()
    assert first.find_failure() == "rank 1 on n1 has left: ValueError: seven"


def test_a_request_to_stop_reaches_all(start_heartbeat: Start) -> None:
    ranks = [start_heartbeat(rank, 3) for rank in range(3)]
    assert not any(each.stop_requested for each in ranks)
    ranks[1].request_stop()
    assert ranks[1].stop_requested
    wait_until(lambda: all(each.stop_requested for each in ranks))


def test_where_the_store_is_gone_so_is_the_rank_that_serves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_BETWEEN_BEATS", 0.05)
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    stores = [TCPStore("127.0.0.1", server.port, is_master=False, wait_for_workers=False) for _ in range(2)]
    ranks = [
        StoreHeartbeat(store, World(rank=rank, size=2, host=f"n{rank}"), SECONDS, serves=False)
        for rank, store in enumerate(stores)
    ]
    wait_until(lambda: know_hosts(ranks[1], 2))
    del server
    wait_until(lambda: ranks[1].failure)
    assert ranks[1].failure.startswith("rank 0 on n0 is gone: the rendezvous that it serves does not answer (")
    assert ranks[1].find_failure() == ranks[1].failure
    assert ranks[1].failed_ranks == {0}
    for each in ranks:
        each.leave("the test is over", is_cause=False)  # and does not wait for a thread that has ended


def test_where_the_store_hangs_the_rank_that_serves_it_is_named(
    start_heartbeat: Start, connections: list[Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS_TO_JUDGE", 0.2)
    ranks = [start_heartbeat(rank, 2) for rank in range(2)]
    wait_until(lambda: know_hosts(ranks[1], 2))
    connections[1].freeze()
    found = ranks[1].find_failure()
    assert found.startswith("rank 0 on n0 is gone or can't be reached: the rendezvous that it serves has been silent")
    assert ranks[1].failed_ranks == {0}


def test_the_rank_that_serves_the_store_stays_until_the_others_have_left(
    start_heartbeat: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS_TO_SERVE", SECONDS)
    monkeypatch.setattr(module, "SECONDS_TO_JUDGE", 0.2)
    ranks = [start_heartbeat(rank, 2, serves=rank == 0) for rank in range(2)]
    leaving = threading.Thread(target=ranks[0].leave, args=["ValueError: seven"], kwargs={"is_cause": True})
    leaving.start()
    wait_until(lambda: ranks[1].find_failure() == "rank 0 on n0 has left: ValueError: seven")
    assert leaving.is_alive()
    ranks[1].leave("PeerError: rank 0 left", is_cause=False)
    leaving.join(SECONDS / 2)  # less than it would stay for others
    assert not leaving.is_alive()


def test_the_first_rank_that_is_left_tells_people() -> None:
    heartbeat = SoloHeartbeat()
    heartbeat.failed_ranks = {0, 2}
    errors = [
        peer_error(heartbeat, World(rank=rank, size=4, host="n"), "all-reduce", who="rank 0 is gone", detail="why")
        for rank in (1, 3)
    ]
    assert [error.tells for error in errors] == [True, False]
    text = "rank 1 of 4 on n: all-reduce failed: rank 0 is gone. Look for the first error there. (why)"
    assert str(errors[0]) == text


def test_a_rank_that_is_alone_hears_itself() -> None:
    heartbeat = SoloHeartbeat()
    assert not heartbeat.stop_requested
    heartbeat.request_stop()
    assert heartbeat.stop_requested
    assert heartbeat.find_failure() == "no peer"
