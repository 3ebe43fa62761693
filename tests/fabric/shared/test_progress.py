"""The engine alone: operations that write down what they do, between barriers in this process."""

import threading

import pytest

from deepex.fabric.shared.barrier import COUNTER_WORDS, Barrier
from deepex.fabric.shared.progress import ProgressEngine, Steps, ThreadEngine
from tests.fabric.conftest import give_up_late, on_threads


def open_barriers(num_ranks: int) -> list[Barrier]:
    counters = [memoryview(bytearray(8 * COUNTER_WORDS)).cast("q") for _ in range(num_ranks)]
    return [Barrier(counters, rank) for rank in range(num_ranks)]


def work(barrier: Barrier, name: str, log: list[str], num_steps: int = 2) -> Steps:
    """Steps that all ranks must arrive for, and that are written down."""
    for number in range(num_steps):
        log.append(f"{name}{number}")
        barrier.arrive()
        yield
    log.append(f"{name} done")


def fail(barrier: Barrier) -> Steps:
    barrier.arrive()
    yield
    raise ValueError("no such number")


def test_operations_of_the_same_ranks_happen_in_their_order() -> None:
    engine, [alone], log = ProgressEngine(is_oversubscribed=True), open_barriers(1), list[str]()
    first = engine.enqueue(alone, work(alone, "a", log), give_up_late)
    second = engine.enqueue(alone, work(alone, "b", log), give_up_late)
    assert log == []  # nothing happens before someone waits
    second.finish()
    assert log == ["a0", "a1", "a done", "b0", "b1", "b done"]
    assert first.is_done
    first.finish()
    assert len(log) == 6


def test_no_step_is_taken_before_all_have_arrived() -> None:
    engine, log = ProgressEngine(is_oversubscribed=True), list[str]()
    own, peer = open_barriers(2)
    operation = engine.enqueue(own, work(own, "a", log), give_up_late)
    assert engine.advance()
    assert not engine.advance()
    assert (log, own.missing(), operation.is_done) == (["a0"], [1], False)
    peer.arrive()
    assert engine.advance()
    assert not engine.advance()
    assert log == ["a0", "a1"]
    peer.arrive()
    assert engine.advance()
    assert (log[-1], operation.is_done) == ("a done", True)
    assert not engine.advance()  # and there is nothing left


def test_operations_of_different_ranks_do_not_wait_for_each_other() -> None:
    engine, log = ProgressEngine(is_oversubscribed=True), list[str]()
    own, _ = open_barriers(2)
    [alone] = open_barriers(1)
    stuck = engine.enqueue(own, work(own, "stuck", log), give_up_late)
    engine.enqueue(alone, work(alone, "free", log), give_up_late).finish()
    assert log[-1] == "free done"
    assert "stuck1" not in log
    assert not stuck.is_done


def test_ranks_that_wait_in_a_circle_come_through() -> None:
    """Each waits for the operation with the rank before it, which does not wait for that one yet."""
    pairs = [open_barriers(2) for _ in range(3)]  # rank r is the first of pair r and the second of the pair before

    def rank(own: int) -> list[str]:
        engine, log = ProgressEngine(is_oversubscribed=True), list[str]()
        before, after = pairs[own - 1][1], pairs[own][0]
        works = [
            engine.enqueue(before, work(before, "before", log), give_up_late),
            engine.enqueue(after, work(after, "after", log), give_up_late),
        ]
        for each in works:
            each.finish()
        return sorted(log)

    expected = ["after done", "after0", "after1", "before done", "before0", "before1"]
    assert on_threads(3, rank) == [expected] * 3


def test_an_error_ends_an_operation_and_not_those_behind_it() -> None:
    engine, [alone], log = ProgressEngine(is_oversubscribed=True), open_barriers(1), list[str]()
    broken = engine.enqueue(alone, fail(alone), give_up_late)
    behind = engine.enqueue(alone, work(alone, "behind", log), give_up_late)
    with pytest.raises(ValueError, match="no such number"):
        broken.finish()
    assert broken.is_done
    assert log == []
    behind.finish()
    assert log[-1] == "behind done"


def test_an_error_comes_up_at_once_and_again_where_its_operation_is_waited_for() -> None:
    engine, [alone], log = ProgressEngine(is_oversubscribed=True), open_barriers(1), list[str]()
    broken = engine.enqueue(alone, fail(alone), give_up_late)
    behind = engine.enqueue(alone, work(alone, "behind", log), give_up_late)
    with pytest.raises(ValueError, match="no such number"):
        behind.finish()
    with pytest.raises(ValueError, match="no such number"):
        broken.finish()
    behind.finish()
    assert log[-1] == "behind done"


def test_who_waits_asks_about_the_peers_of_its_own_operation() -> None:
    engine, log, asked = ProgressEngine(is_oversubscribed=True), list[str](), list[float]()
    own, other = open_barriers(2)[0], open_barriers(2)[0]

    def lose(waited_seconds: float) -> None:
        asked.append(waited_seconds)
        if len(asked) == 2:
            raise TimeoutError("nobody arrives")

    def lose_another(waited_seconds: float) -> None:
        raise AssertionError("nobody waits for this one")

    engine.enqueue(other, work(other, "other", log), lose_another)
    with pytest.raises(TimeoutError, match="nobody arrives"):
        engine.enqueue(own, work(own, "own", log), lose).finish()
    assert 0 < asked[0] < asked[1]


def test_the_time_between_the_first_step_and_the_last_is_known() -> None:
    engine, [alone], log = ProgressEngine(is_oversubscribed=True), open_barriers(1), list[str]()
    operation = engine.enqueue(alone, work(alone, "a", log), give_up_late)
    assert operation.busy_seconds == 0
    engine.advance()
    begun = operation.busy_seconds
    operation.finish()
    assert 0 < begun < operation.busy_seconds


def test_each_thread_has_an_engine_of_its_own() -> None:
    engines, found = ThreadEngine(is_oversubscribed=True), list[ProgressEngine]()
    thread = threading.Thread(target=lambda: found.append(engines.own))
    thread.start()
    thread.join()
    assert found[0] is not engines.own
    assert engines.own is engines.own
