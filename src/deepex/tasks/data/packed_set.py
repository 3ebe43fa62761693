"""A task's packed data set: opened with its fields checked, and split into training and validation."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deepex.data import Preparation, Splits, Subset
from deepex.data.packing.packed import PackedSource
from deepex.errors import DataError


def open_set(path: Path, *, fields: tuple[str, ...], advice: str) -> PackedSource:
    """The data set of a path; one without these fields is an error that ends with the advice."""
    source = PackedSource(path)
    if missing := set(fields) - set(source.spec.fields):
        raise DataError(f"{path} has no {' and no '.join(sorted(missing))}. {advice}")
    return source


def split_set(source: PackedSource, is_validation: NDArray[np.bool_], preparation: Preparation) -> Splits:
    """Samples to train on and those held back, by a value for each sample."""
    return Splits(
        train=Subset(source, np.flatnonzero(~is_validation)),
        validation=Subset(source, np.flatnonzero(is_validation)),
        content_sha256=source.content_sha256,
        preparation=preparation,
        left_out=source.left_out,
    )
