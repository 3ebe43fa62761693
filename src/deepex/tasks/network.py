"""A network of a user's own in a task of the table: `task.network=file.py:name`. It knows names, and no task."""

from typing import Any

from torch import nn

from deepex.errors import ConfigError, unknown
from deepex.reference import is_reference, load_object, make_absolute


def check_network(network: str | None, known: tuple[str, ...] = ()) -> None:
    """Refuse what is neither a network of the table nor a name of code."""
    if network is not None and network not in known and not is_reference(network):
        raise ConfigError("task.network: " + unknown("network", network, [*known, "file.py:name", "module:name"]))


def locate_network(network: str | None) -> str | None:
    """The same network as processes of any folder find it."""
    return make_absolute(network) if network is not None and is_reference(network) else network


def build_network(network: str, **sizes: Any) -> nn.Module:
    """A user's own network, made for the sizes of the data."""
    given = ", ".join(f"{key}={value}" for key, value in sizes.items())
    try:
        made = load_object(network)(**sizes)
    except TypeError as error:
        raise ConfigError(
            f"task.network={network} can't be called with {given}: {error}. Give a class or function with these "
            "keyword arguments."
        ) from error
    if not isinstance(made, nn.Module):
        raise ConfigError(f"task.network={network} made a {type(made).__name__} of {given}. Allowed: an nn.Module.")
    return made
