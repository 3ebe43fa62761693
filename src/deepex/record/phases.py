"""Where the time of a step goes, by phase, in wall seconds. Phases are context managers and nest in a step."""

from time import perf_counter
from types import TracebackType
from typing import Any, Self

STEP_PHASES = ("input", "forward", "backward", "update", "sync")
BESIDE_PHASES = ("evaluate", "checkpoint")


class Clock:
    """Adds up seconds by phase until `take` hands them out.

    >>> clock = Clock()
    >>> with clock.step:
    ...     with clock.forward:
    ...         pass
    >>> taken = clock.take()
    >>> taken["steps"], taken["step_wall_seconds"] >= taken["phase_seconds"]["forward"]
    (1, True)
    """

    def __init__(self) -> None:
        self.step = Stopwatch()
        self.input = Stopwatch()
        self.forward = Stopwatch()
        self.backward = Stopwatch()
        self.update = Stopwatch()
        self.sync = Stopwatch()
        self.evaluate = Stopwatch()
        self.checkpoint = Stopwatch()

    def take(self) -> dict[str, Any]:
        """What was measured since the last call, as plain values."""
        phases = {name: getattr(self, name).take()[0] for name in STEP_PHASES + BESIDE_PHASES}
        seconds, steps = self.step.take()
        return {"steps": steps, "step_wall_seconds": seconds, "phase_seconds": phases}


class Stopwatch:
    """Seconds and times spent inside its `with` blocks."""

    def __init__(self) -> None:
        self._seconds, self._times, self._started = 0.0, 0, 0.0

    def __enter__(self) -> Self:
        self._started = perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._seconds += perf_counter() - self._started
        self._times += 1

    def take(self) -> tuple[float, int]:
        """Seconds and times since the last call."""
        taken = self._seconds, self._times
        self._seconds, self._times = 0.0, 0
        return taken
