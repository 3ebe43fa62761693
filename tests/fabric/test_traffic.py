"""What a fabric carried is handed out once."""

from deepex.fabric import Traffic, TrafficCount


def test_sums_are_taken_once() -> None:
    traffic = Traffic()
    traffic.add(num_bytes=8, busy_seconds=2.0, waited_seconds=0.5)
    traffic.add(num_bytes=4, busy_seconds=1.0, waited_seconds=0.25)
    assert traffic.take() == TrafficCount(calls=2, num_bytes=12, busy_seconds=3.0, waited_seconds=0.75)
    assert traffic.take() == TrafficCount()
    traffic.add(num_bytes=1, busy_seconds=0.0, waited_seconds=0.0)
    assert (traffic.calls, traffic.num_bytes) == (1, 1)
