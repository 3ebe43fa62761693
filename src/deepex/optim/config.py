"""The optimisers by name, in one table, and what a recipe's `[optimiser]` may say of them."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, signature

from deepex.errors import ConfigError, unknown
from deepex.optim.adam import Adam
from deepex.optim.adamw import AdamW
from deepex.optim.muon import Muon
from deepex.optim.rmsprop import RMSprop
from deepex.optim.rule import Rule
from deepex.optim.sgd import SGD
from deepex.replica import Replica

OPTIMISERS: dict[str, Callable[..., Rule]] = {
    "adam": Adam,
    "adamw": AdamW,
    "muon": Muon,
    "rmsprop": RMSprop,
    "sgd": SGD,
}


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """Which optimiser, and its numbers; they mean what they mean in torch.optim.

    `momentum` is for sgd, muon and rmsprop, `nesterov` for sgd, `betas` for adam, adamw and muon's vectors, `alpha` for
    rmsprop. Weight decay is beside the gradient in adamw and muon and in it elsewhere; with `decay_vectors=false` it
    leaves out parameters of one dimension, which are biases and batch-norm's scales and shifts. `clip_norm` bounds the
    gradient's global norm.
    """

    name: str = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    decay_vectors: bool = True
    momentum: float = 0.9
    nesterov: bool = False
    betas: tuple[float, ...] = (0.9, 0.999)
    alpha: float = 0.99
    epsilon: float = 1e-8
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        if self.name not in OPTIMISERS:
            raise ConfigError("optimiser.name: " + unknown("value", self.name, OPTIMISERS))
        for key in ("learning_rate", "epsilon"):
            if not getattr(self, key) > 0:
                raise ConfigError(f"optimiser.{key} = {getattr(self, key)}. Allowed: numbers above 0.")
        if not self.weight_decay >= 0:
            raise ConfigError(f"optimiser.weight_decay = {self.weight_decay}. Allowed: numbers from 0.")
        for key in ("momentum", "alpha"):
            if not 0 <= getattr(self, key) < 1:
                raise ConfigError(f"optimiser.{key} = {getattr(self, key)}. Allowed: numbers from 0 to below 1.")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"optimiser.betas = {self.betas}. Allowed: two numbers from 0 to below 1.")
        if self.nesterov and ("nesterov" not in keys_of(self.name) or self.momentum == 0):
            names = " or ".join(name for name in OPTIMISERS if "nesterov" in keys_of(name))
            raise ConfigError(
                f"optimiser.nesterov=true with {self.name} and momentum {self.momentum:g}. "
                f"Allowed: with optimiser.name={names} and a momentum above 0."
            )
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ConfigError(f"optimiser.clip_norm = {self.clip_norm}. Allowed: numbers above 0, or none.")

    def build(self, replica: Replica) -> Rule:
        """The optimiser's rule for a replica, with the numbers that it takes."""
        return OPTIMISERS[self.name](replica, **{key: getattr(self, key) for key in keys_of(self.name)})


def keys_of(name: str) -> list[str]:
    """The keys of `[optimiser]` that an optimiser takes: its class's keyword arguments.

    >>> keys_of("adam")
    ['betas', 'epsilon']
    """
    parameters = signature(OPTIMISERS[name]).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is Parameter.KEYWORD_ONLY]
