"""Splits by name: whether a sample is for training, validation or test follows from what it is called, and from nothing
else. So a set may grow, be packed anew or be read in another order, and no sample ever changes sides.
"""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from deepex.errors import ConfigError


def split_by_name(names: Sequence[str], shares: Mapping[str, float]) -> dict[str, NDArray[np.int64]]:
    """Indices by part, for parts with shares that add up to 1.

    Give the name of what belongs together (a trajectory, a patient, a simulation) instead of a sample's own name, and
    it stays together.

    >>> parts = split_by_name([str(i) for i in range(1000)], {"train": 0.8, "validation": 0.1, "test": 0.1})
    >>> {part: len(indices) for part, indices in parts.items()}
    {'train': 797, 'validation': 104, 'test': 99}
    """
    if not shares or min(shares.values()) < 0 or abs(sum(shares.values()) - 1) > 1e-9:
        raise ConfigError(f"shares of {dict(shares)}. Allowed: numbers from 0 that add up to 1.")
    edges = np.cumsum(list(shares.values()))[:-1]
    places = np.fromiter((_place(name) for name in names), dtype=np.float64, count=len(names))
    parts = np.searchsorted(edges, places, side="right")
    return {part: np.flatnonzero(parts == number) for number, part in enumerate(shares)}


def _place(name: str) -> float:
    """A number from 0 to 1 that a name always has."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") / 2**64
