"""The shape of one input, as networks take it, and the error for one that does not fit."""

from torch import Tensor

from deepex.errors import ConfigError, DataError


def check_shape(network: str, shape: tuple[int, ...], *, axes: str, least: int, multiple: int = 1) -> None:
    """Refuse a sample's shape that a network can't be built for; `axes` names them, channels first."""
    names = axes.split(" x ")
    sides_fit = all(side >= least and side % multiple == 0 for side in shape[1:])
    if len(shape) != len(names) or shape[0] < 1 or not sides_fit:
        steps = f" and a multiple of {multiple}" if multiple > 1 else ""
        raise ConfigError(
            f"{network} was asked for inputs of shape {tuple(shape)}. "
            f"Allowed: {axes}, each side at least {least}{steps}."
        )


def check_classes(network: str, classes: int, *, word: str = "classes") -> None:
    """Refuse a number of classes, or of other outputs, that is none."""
    if classes < 1:
        raise ConfigError(f"{network} was asked for {classes} {word}. Allowed: whole numbers from 1.")


def check_input(network: str, batch: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse a batch that is not B x shape, before a layer deep inside says it less clearly."""
    if batch.shape[1:] != shape:
        raise DataError(
            f"{network} was given a batch of shape {tuple(batch.shape)}, and takes samples of shape {shape}. "
            "Build it for the shape of your data, or reshape the data."
        )
