"""Where the time of a step goes, by phase, in wall seconds. Phases are context managers and nest in a step.

One look at the clock ends a phase and begins the next, so nothing between two phases is lost, and recording a step
costs seven looks: under one percent of the smallest network's step.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import Self

STEP_PHASES = ("input", "forward", "backward", "update", "sync")
BESIDE_PHASES = ("evaluate", "checkpoint")


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Steps and their wall time, and seconds by phase, those beside the steps included."""

    steps: int
    step_wall_seconds: float
    phase_seconds: Mapping[str, float]


class Clock:
    """Adds up seconds by phase until `take` hands them out.

    >>> clock = Clock()
    >>> with clock.step:
    ...     with clock.forward:
    ...         pass
    >>> taken = clock.take()
    >>> taken.steps, taken.step_wall_seconds >= taken.phase_seconds["forward"]
    (1, True)
    """

    def __init__(self) -> None:
        self.step = Stopwatch()
        self.input = Phase(self.step)
        self.forward = Phase(self.step)
        self.backward = Phase(self.step)
        self.update = Phase(self.step)
        self.sync = Phase(self.step)
        self.evaluate = Stopwatch()
        self.checkpoint = Stopwatch()

    def take(self) -> "StepTimes":
        """What was measured since the last call."""
        phases = {name: getattr(self, name).take()[0] for name in STEP_PHASES + BESIDE_PHASES}
        seconds, steps = self.step.take()
        return StepTimes(steps=steps, step_wall_seconds=seconds, phase_seconds=phases)


class Sums:
    """Seconds and times, added up until they are taken."""

    def __init__(self) -> None:
        self._seconds, self._times = 0.0, 0

    def take(self) -> tuple[float, int]:
        """Seconds and times since the last call."""
        taken = self._seconds, self._times
        self._seconds, self._times = 0.0, 0
        return taken


class Stopwatch(Sums):
    """Counts what is inside its `with` blocks. `mark` is when its last phase ended."""

    def __init__(self) -> None:
        super().__init__()
        self._started = self.mark = 0.0

    def __enter__(self) -> Self:
        self._started = self.mark = perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._seconds += perf_counter() - self._started
        self._times += 1

    def reopen(self) -> None:
        """Begin again, as a part of the time that was counted last."""
        self.__enter__()
        self._times -= 1


class Phase(Sums):
    """A part of a step: from the end of the part before it to its own end."""

    def __init__(self, step: Stopwatch) -> None:
        super().__init__()
        self._step = step

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now = perf_counter()
        self._seconds += now - self._step.mark
        self._step.mark = now
        self._times += 1
