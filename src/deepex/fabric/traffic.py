"""What a fabric carried: how often, how much, how long, and how much of that nobody waited for."""

from dataclasses import asdict, dataclass


@dataclass(kw_only=True)
class Meter:
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

    def add(self, num_bytes: int, busy_seconds: float, waited_seconds: float) -> None:
        self.calls += 1
        self.num_bytes += num_bytes
        self.busy_seconds += busy_seconds
        self.waited_seconds += waited_seconds

    def take(self) -> dict[str, float]:
        """What was counted since the last call.

        >>> meter = Meter()
        >>> meter.add(8, 2.0, 0.5)
        >>> meter.take()["num_bytes"], meter.take()["num_bytes"]
        (8, 0)
        """
        taken = asdict(self)
        self.calls, self.num_bytes, self.busy_seconds, self.waited_seconds = 0, 0, 0.0, 0.0
        return taken
