"""What a node's processors and their memory use, by the counters that Linux shows of them (RAPL). It knows no ranks."""

from pathlib import Path
from threading import Event, Lock, Thread

POWERCAP = Path("/sys/class/powercap")
SECONDS_BETWEEN_LOOKS = 20.0  # the smallest counters hold 65 kJ, which 1 kW fills in a minute


class Energy:
    """Joules of a whole node, whoever uses it, until `take` hands them out; accelerators and fans are not among them.

    Packages are added up, and the memory beside each where it has a counter of its own. A counter begins again at zero
    when it is full, so a thread looks at it often enough to see that. Most systems let only root read.

    Arguments:
        root: where Linux shows the counters.

    >>> Energy(Path("/nowhere")).take() is None
    True
    """

    def __init__(self, root: Path = POWERCAP) -> None:
        self._lock, self._closed = Lock(), Event()
        self._microjoules = 0
        self._counters = find_counters(root)
        if self._counters:
            Thread(target=self._keep_looking, name="energy", daemon=True).start()

    def take(self) -> float | None:
        """Joules since the last call; None if this node can't tell."""
        self._look()
        with self._lock:
            taken, self._microjoules = self._microjoules, 0
            return taken / 1e6 if self._counters else None

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _keep_looking(self) -> None:
        while not self._closed.wait(SECONDS_BETWEEN_LOOKS):
            self._look()

    def _look(self) -> None:
        with self._lock:
            try:
                self._microjoules += sum(counter.advance() for counter in self._counters)
            except (OSError, ValueError):
                self._counters = []  # what went by unseen can't be told any more


class Counter:
    """One counter, and what it has counted since the last look."""

    def __init__(self, zone: Path) -> None:
        self._file = zone / "energy_uj"
        self._range = int((zone / "max_energy_range_uj").read_text())
        self._last = int(self._file.read_text())

    def advance(self) -> int:
        """Microjoules since the last look."""
        before, self._last = self._last, int(self._file.read_text())
        return self._last - before if self._last >= before else self._last + self._range - before


def find_counters(root: Path) -> list[Counter]:
    """Counters of all packages and of the memory beside each; none if one of them can't be read."""
    try:
        names = {zone: (zone / "name").read_text().strip() for zone in root.glob("intel-rapl:*")}
        packages = [zone for zone, name in names.items() if name.startswith("package") and zone.name.count(":") == 1]
        inside = tuple(f"{zone.name}:" for zone in packages)
        memories = [zone for zone, name in names.items() if name == "dram" and zone.name.startswith(inside)]
        return [Counter(zone) for zone in sorted(packages + memories)]
    except (OSError, ValueError):
        return []
