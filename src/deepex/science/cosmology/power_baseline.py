"""What the power spectrum alone tells of a universe: ridge regression from log P(k) to its parameters.

The step_cost for a network that sees the whole field: the spectrum holds all there is in a Gaussian field, so what a
network finds beyond it comes from structure that is not Gaussian. NumPy only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deepex.errors import DataError

Array = NDArray[np.float64]
PENALTIES = tuple(float(p) for p in np.geomspace(1e-4, 1e3, 22))  # a sample and standardised feature
FOLDS = 6


@dataclass(frozen=True, kw_only=True)
class PowerBaseline:
    """A fitted regression; S spectra (redshifts times bins), F features, T targets."""

    mean: Array  # S, of log P
    deviation: Array  # S
    quadratic: bool
    feature_mean: Array  # F
    target_mean: Array  # T
    weights: Array  # F x T
    penalties: tuple[float, ...]  # T, chosen by cross-validation
    error: Array  # T, mean absolute error in cross-validation

    def predict(self, power: NDArray[np.floating]) -> Array:
        """Targets (N x T) from power spectra (N x redshifts x bins)."""
        standard = (_log_power(power) - self.mean) / self.deviation
        return np.asarray((_features(standard, self.quadratic) - self.feature_mean) @ self.weights + self.target_mean)


def fit(
    power: NDArray[np.floating],
    target: NDArray[np.floating],
    box: NDArray[np.integer],
    *,
    quadratic: Sequence[bool] = (False, True),
) -> PowerBaseline:
    """Fit w = (X'X + N lambda)^-1 X'y on standardised log P(k), with or without all products of two of its values.

    The penalty of each target, and for all whether products enter, are those of least mean absolute error in
    six-fold cross-validation, the cubes of one box never on both sides of it.

    Arguments:
        power: N x redshifts x bins, positive.
        target: N x T.
        box: N, which box a cube was cut from.
        quadratic: what to choose from.
    """
    if not len(power) == len(target) == len(box):
        raise DataError(f"{len(power)} spectra, {len(target)} targets, {len(box)} boxes. Give one of each a cube.")
    boxes = np.unique(box)
    if len(boxes) < FOLDS:
        raise DataError(f"cubes of {len(boxes)} boxes. Allowed: {FOLDS} or more, for cross-validation.")
    logarithm = _log_power(power)
    mean, deviation = logarithm.mean(axis=0), logarithm.std(axis=0)
    deviation = np.where(deviation > 0.0, deviation, 1.0)
    standard = (logarithm - mean) / deviation
    fold = np.searchsorted(boxes, box) % FOLDS
    values = np.asarray(target, dtype=np.float64)

    best: PowerBaseline | None = None
    for products in quadratic:
        features = _features(standard, products)
        errors = np.mean([_fold_errors(features, values, fold == number) for number in range(FOLDS)], axis=0)
        chosen = errors.argmin(axis=0)
        error = errors[chosen, np.arange(errors.shape[1])]
        if best is not None and error.mean() >= best.error.mean():
            continue
        penalties = tuple(PENALTIES[i] for i in chosen)
        centre, target_mean = features.mean(axis=0), values.mean(axis=0)
        weights = _Ridge(features - centre, values - target_mean)
        columns = [weights(penalty)[:, t] for t, penalty in enumerate(penalties)]
        best = PowerBaseline(
            mean=mean,
            deviation=deviation,
            quadratic=products,
            feature_mean=centre,
            target_mean=target_mean,
            weights=np.stack(columns, axis=1),
            penalties=penalties,
            error=error,
        )
    assert best is not None
    return best


def _log_power(power: NDArray[np.floating]) -> Array:
    flat = np.asarray(power, dtype=np.float64).reshape(len(power), -1)
    if not np.isfinite(flat).all() or flat.min() <= 0.0:
        raise DataError(
            f"power spectra down to {flat.min():g}. Allowed: positive numbers, for their logarithm is taken."
        )
    return np.log(flat)


def _features(standard: Array, quadratic: bool) -> Array:
    if not quadratic:
        return standard
    first, second = np.triu_indices(standard.shape[1])
    return np.concatenate([standard, standard[:, first] * standard[:, second]], axis=1)


class _Ridge:
    """Weights for any penalty, from one decomposition."""

    def __init__(self, features: Array, values: Array) -> None:
        self._values, self._vectors = np.linalg.eigh(features.T @ features / len(features))
        self._projected = self._vectors.T @ (features.T @ values / len(features))

    def __call__(self, penalty: float) -> Array:
        return np.asarray(self._vectors @ (self._projected / (np.maximum(self._values, 0.0) + penalty)[:, None]))


def _fold_errors(features: Array, values: Array, held_back: NDArray[np.bool_]) -> Array:
    """Mean absolute errors (penalties x T) on what is held back, fitted on the rest."""
    known, known_values = features[~held_back], values[~held_back]
    centre, target_mean = known.mean(axis=0), known_values.mean(axis=0)
    weights = _Ridge(known - centre, known_values - target_mean)
    unseen = features[held_back] - centre
    errors = [np.abs(unseen @ weights(penalty) + target_mean - values[held_back]).mean(axis=0) for penalty in PENALTIES]
    return np.stack(errors)
