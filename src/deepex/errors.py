"""The exception tree.

    DeepexError              everything a user can cure; its text ends with the cure
    ├── UsageError           wrong command, key or value                       exit 2
    │   ├── ConfigError      a recipe that does not hold together
    │   ├── DataError        a data set that is missing, damaged or unfit
    │   │   └── SampleError  one sample that can't be used; the others can
    │   └── RunFolderError   a run directory that exists or can't be written
    ├── TrainingError        a run that started and failed                     exit 1
    │   └── PeerError        another rank died or fell silent; the cause is there
    └── Interrupted          stopped early, resumable                          exit 75

A message says what was given, what is allowed and what to do. Nothing here knows what raised it.
"""

import difflib
from collections.abc import Iterable

from deepex.notebook import name_cells

__all__ = [
    "ConfigError",
    "DataError",
    "DeepexError",
    "Interrupted",
    "PeerError",
    "RunFolderError",
    "SampleError",
    "TrainingError",
    "UsageError",
    "unknown",
]


class DeepexError(Exception):
    """Base of all errors that a user can cure."""

    exit_code = 1
    heading = "deepex: error: "

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows below a cell: the message, which says all, in place of a traceback through deepex."""
        return name_cells(f"{self.heading}{self}").splitlines()


class UsageError(DeepexError):
    """The command, a key or a value is wrong."""

    exit_code = 2


class ConfigError(UsageError):
    """A recipe that does not hold together."""


class DataError(UsageError):
    """A data set that is missing, damaged or unfit for the task."""


class SampleError(DataError):
    """One sample that can't be used. Its text names file and sample; what packs may leave such samples out."""


class RunFolderError(UsageError):
    """A run directory that exists already, is missing, or can't be written."""


class TrainingError(DeepexError):
    """A run that started and failed."""


class PeerError(TrainingError):
    """Another rank died or fell silent; the cause lies there.

    Attributes:
        tells: whether this rank is the one to tell people, since all that are left meet the same error.
    """

    def __init__(self, text: str, *, tells: bool = True) -> None:
        super().__init__(text)
        self.tells = tells


class Interrupted(DeepexError):  # noqa: N818  # stopping is not an error
    """A run that stopped early, with a checkpoint to go on from."""

    exit_code = 75
    heading = "deepex: "


def unknown(kind: str, given: str, allowed: Iterable[str]) -> str:
    """The text for an unknown name: what was given, the nearest match, what is allowed."""
    names = sorted(allowed)
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"unknown {kind} '{given}'.{hint} Allowed: {', '.join(names)}."
