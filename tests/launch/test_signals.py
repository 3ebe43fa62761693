import os
import signal
import threading

import pytest

from deepex.launch.signals import hand_over_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_handed_over_and_the_next_does_what_it_did_before(number: signal.Signals) -> None:
    received: list[signal.Signals] = []
    own: list[int] = []
    before = signal.signal(number, lambda got, frame: own.append(got))
    try:
        with hand_over_signals(received.append):
            os.kill(os.getpid(), number)
            assert (received, own) == ([number], [])
            os.kill(os.getpid(), number)
            assert (received, own) == ([number], [number])
        with hand_over_signals(received.append):
            pass
        os.kill(os.getpid(), number)  # given back, though none came
        assert (received, own) == ([number], [number, number])
    finally:
        signal.signal(number, before)


def test_a_thread_that_receives_no_signals_changes_nothing() -> None:
    before, inside = signal.getsignal(signal.SIGTERM), []

    def wait_for_others() -> None:
        with hand_over_signals(lambda number: None):
            inside.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=wait_for_others)
    thread.start()
    thread.join()
    assert inside == [before]
