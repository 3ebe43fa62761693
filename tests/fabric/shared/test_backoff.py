from itertools import count
from time import monotonic

import pytest

from deepex.fabric.shared import backoff as module
from deepex.fabric.shared.backoff import SECONDS_BETWEEN_CHECKS, SPINS, Backoff


def pause_until_check(backoff: Backoff) -> tuple[int, float]:
    """How many pauses there were until it was time to look at the peers, and the seconds that it says were waited."""
    for number in count(1):
        if waited := backoff.pause():
            return number, waited
    raise AssertionError("it is never time")


def test_it_says_now_and_then_how_long_one_has_waited() -> None:
    backoff, begun = Backoff(is_oversubscribed=True), monotonic()
    _, first = pause_until_check(backoff)
    assert SECONDS_BETWEEN_CHECKS <= first <= monotonic() - begun
    _, second = pause_until_check(backoff)
    assert first + SECONDS_BETWEEN_CHECKS <= second <= monotonic() - begun


def test_after_something_has_happened_the_wait_begins_anew() -> None:
    backoff = Backoff(is_oversubscribed=True)
    pause_until_check(backoff)
    begun = monotonic()
    backoff.reset()
    _, waited = pause_until_check(backoff)
    assert SECONDS_BETWEEN_CHECKS <= waited <= monotonic() - begun


@pytest.mark.parametrize(("is_oversubscribed", "spins"), [(False, SPINS - 1), (True, 0)])
def test_it_spins_first_unless_a_peer_needs_the_core(
    is_oversubscribed: bool, spins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = count(1)
    monkeypatch.setattr(module, "monotonic", lambda: float(next(looks)))  # each look at the clock is a second later
    monkeypatch.setattr(module, "sleep", lambda seconds: None)
    backoff = Backoff(is_oversubscribed=is_oversubscribed)
    for _ in range(2):
        number, _ = pause_until_check(backoff)
        assert number == spins + 2  # the clock is read twice: where the wait begins, and a second later
        backoff.reset()


def test_sleeps_grow_with_the_wait_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    now, sleeps = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    monkeypatch.setattr(module, "sleep", sleep)
    backoff = Backoff(is_oversubscribed=True)
    backoff.pause()
    assert not sleeps
    now[0] += 0.01
    backoff.pause()
    assert sleeps == pytest.approx([0.0003])
    now[0] = 200.0
    backoff.pause()
    assert sleeps[1] == 0.01
