"""How long a rank was ready to run and had no core to run on, as others used it."""

from pathlib import Path

SCHEDULE = Path("/proc/thread-self/schedstat")


class CoreWait:
    """Seconds that the calling thread stood in the queue for a core, until `take` hands them out.

    Linux counts them; elsewhere there are none. What a hypervisor takes from a virtual machine is not among them.

    >>> CoreWait().take() >= 0.0
    True
    """

    def __init__(self) -> None:
        self._before = self._seconds()

    def take(self) -> float:
        """Seconds since the last call; called by the thread that trains."""
        before, self._before = self._before, self._seconds()
        return max(0.0, self._before - before)

    def _seconds(self) -> float:
        try:
            _, waited_nanoseconds, _ = SCHEDULE.read_text().split()
        except (OSError, ValueError):
            return 0.0
        return int(waited_nanoseconds) / 1e9
