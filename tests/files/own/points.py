"""A reader of a user's own: a text file with a sample a line, as `name x y`."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deepex.data import ArraySource, Source
from deepex.errors import ConfigError


class Reader:
    """What `--reader points.py:Reader` is given."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        scale: float = 1.0

        def __post_init__(self) -> None:
            if self.scale <= 0:
                raise ConfigError(f"scale = {self.scale}. Allowed: numbers above 0.")

    @staticmethod
    def open_source(path: Path, options: Options) -> Source:
        return read_points(path, options.scale)


def read_points(path: Path, scale: float = 1.0) -> Source:
    rows = [line.split() for line in path.read_text().splitlines()]
    values = np.array([row[1:] for row in rows], dtype=np.float32) * scale
    return ArraySource({"x": values[:, :1], "y": values[:, 1:]}, names=[row[0] for row in rows])


def no_source(path: Path) -> list[str]:
    return path.read_text().splitlines()
