"""What a fabric carried: how often, how much, how long, and how much of that nobody waited for.

It knows sums, and nothing of who carried what.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TrafficCount:
    """Sums over collectives on tensors.

    Attributes:
        calls: collectives that were waited for.
        num_bytes: bytes of their buffers on this rank.
        busy_seconds: from the start of each to its end, or to its wait where the end is not known.
        waited_seconds: what a rank spent in `wait`.
    """

    calls: int = 0
    num_bytes: int = 0
    busy_seconds: float = 0.0
    waited_seconds: float = 0.0

    @property
    def hidden_seconds(self) -> float:
        """Of messages, behind computing."""
        return max(0.0, self.busy_seconds - self.waited_seconds)


class Traffic:
    """Adds up what a fabric carries, until `take` hands it out.

    >>> traffic = Traffic()
    >>> traffic.add(8, 2.0, 0.5)
    >>> traffic.take().num_bytes, traffic.take().num_bytes
    (8, 0)
    """

    def __init__(self) -> None:
        self.calls, self.num_bytes, self.busy_seconds, self.waited_seconds = 0, 0, 0.0, 0.0

    def add(self, num_bytes: int, busy_seconds: float, waited_seconds: float) -> None:
        self.calls += 1
        self.num_bytes += num_bytes
        self.busy_seconds += busy_seconds
        self.waited_seconds += waited_seconds

    def take(self) -> TrafficCount:
        """What was counted since the last call."""
        taken = TrafficCount(**vars(self))
        self.calls, self.num_bytes, self.busy_seconds, self.waited_seconds = 0, 0, 0.0, 0.0
        return taken
