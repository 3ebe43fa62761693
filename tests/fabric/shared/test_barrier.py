from collections.abc import Sequence

import pytest

from deepex.fabric.shared import barrier as module
from deepex.fabric.shared.backoff import Backoff
from deepex.fabric.shared.barrier import COUNTER_WORDS, Barrier
from tests.fabric.conftest import give_up_late, on_threads

ROUNDS = 300


def open_barriers(num_ranks: int) -> list[Barrier]:
    """The barrier of each rank; this process has the counters of all."""
    counters = [memoryview(bytearray(8 * COUNTER_WORDS)).cast("q") for _ in range(num_ranks)]
    return [Barrier(counters, rank) for rank in range(num_ranks)]


def test_it_opens_when_all_have_arrived() -> None:
    first, second, third = open_barriers(3)
    assert first.is_open()  # nobody has arrived, and nobody waits
    first.arrive()
    assert (first.is_open(), first.missing()) == (False, [1, 2])
    third.arrive()
    assert (first.is_open(), first.missing()) == (False, [1])
    assert (third.is_open(), third.missing()) == (False, [1])
    second.arrive()
    assert [each.is_open() for each in (first, second, third)] == [True] * 3
    assert [each.missing() for each in (first, second, third)] == [[], [], []]


def test_a_rank_may_be_one_arrival_ahead_and_no_more() -> None:
    slow, fast = open_barriers(2)
    slow.arrive()
    fast.arrive()
    assert fast.is_open()
    fast.arrive()
    assert (slow.is_open(), slow.missing()) == (True, [])
    assert (fast.is_open(), fast.missing()) == (False, [0])
    slow.arrive()
    assert slow.is_open()
    assert fast.is_open()
    assert (slow.count, fast.count) == (2, 2)


def test_who_has_left_is_known_and_what_it_has_arrived_at_counts() -> None:
    first, second, third = open_barriers(3)
    second.arrive()
    assert first.left() == []
    second.leave()
    assert (first.left(), third.left()) == ([1], [1])
    first.arrive()
    assert first.missing() == [2]
    third.arrive()
    assert first.is_open()
    first.arrive()
    assert first.missing() == [1, 2]


@pytest.mark.parametrize("is_ordered", [True, False])
def test_what_was_written_before_an_arrival_can_be_read_after_it(
    is_ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three ranks write where the round before the last was read, on processors of either kind."""
    monkeypatch.setattr(module, "IS_ORDERED", is_ordered)
    barriers = open_barriers(3)
    boards: Sequence[list[int]] = [[0, 0, 0], [0, 0, 0]]

    def rank(own: int) -> None:
        barrier = barriers[own]
        for number in range(1, ROUNDS + 1):
            board = boards[number % 2]
            board[own] = number
            barrier.arrive()
            backoff = Backoff(is_oversubscribed=True)
            while not barrier.is_open():
                give_up_late(backoff.pause())
            assert board == [number] * 3

    on_threads(3, rank)
    assert [each.count for each in barriers] == [ROUNDS] * 3
