"""The optimisers by name, in one table, and what a recipe's `[optimiser]` may say of them."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from inspect import Parameter, signature
from typing import Any, cast

from deepex.errors import ConfigError, unknown
from deepex.optim.adam import Adam
from deepex.optim.adamw import AdamW
from deepex.optim.muon import Muon
from deepex.optim.rmsprop import RMSprop
from deepex.optim.rule import Rule
from deepex.optim.sgd import SGD
from deepex.optim.torch_rule import TorchRule
from deepex.reference import is_reference, load_object
from deepex.replica import Replica

OPTIMISERS: dict[str, Callable[..., Rule]] = {
    "adam": Adam,
    "adamw": AdamW,
    "muon": Muon,
    "rmsprop": RMSprop,
    "sgd": SGD,
}


PARTS_OF_A_RULE = ("state", "momentum", "decouples_decay", "update")


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """Which optimiser, and its numbers; they mean what they mean in torch.optim.

    `momentum` is for sgd, muon and rmsprop, `nesterov` for sgd, `betas` for adam, adamw and muon's vectors, `alpha` for
    rmsprop. Weight decay is beside the gradient in adamw and muon and in it elsewhere; with `decay_vectors=false` it
    leaves out parameters of one dimension, which are biases and batch-norm's scales and shifts. `clip_norm` bounds the
    gradient's global norm.

    `name` may also be code of your own, `file.py:name`: a class of rules, whose keyword arguments are keys of this
    table; a torch optimiser's class, which gets `learning_rate` and else has its own defaults; or a function of
    parameters that returns a torch optimiser, whose rates `learning_rate` then has no part in.
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
        if self.name not in OPTIMISERS and not is_reference(self.name):
            raise ConfigError("optimiser.name: " + unknown("value", self.name, [*OPTIMISERS, "file.py:name"]))
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
        make = find_optimiser(self.name)
        if takes_parameters(make):
            if self.weight_decay:
                raise ConfigError(
                    f"optimiser.weight_decay = {self.weight_decay:g} with an optimiser of your own, which decays by "
                    "itself. Set it there."
                )
            takes_rate = isinstance(make, type) and "lr" in signature(make).parameters
            make = partial(make, lr=self.learning_rate) if takes_rate else make
            return TorchRule(replica, make, self.learning_rate)
        rule = make(replica, **{key: getattr(self, key) for key in keys_of(self.name)})
        missing = [part for part in PARTS_OF_A_RULE if not hasattr(rule, part)]
        if missing:
            raise ConfigError(
                f"optimiser.name={self.name} made a {type(rule).__name__}, which is no rule: it has no "
                f"{', '.join(missing)}. See the protocol deepex.optim.Rule."
            )
        return cast(Rule, rule)


def find_optimiser(name: str) -> Callable[..., Any]:
    """What makes the optimiser of a name: one in the table, or a user's own."""
    found = OPTIMISERS[name] if name in OPTIMISERS else load_object(name)
    if not callable(found):
        raise ConfigError(
            f"optimiser.name={name} is a {type(found).__name__}. Allowed: a class of rules, or a function of "
            "parameters that returns a torch optimiser."
        )
    return cast(Callable[..., Any], found)


def takes_parameters(make: Callable[..., Any]) -> bool:
    """Whether something makes a torch optimiser of parameters, and not a rule of a replica.

    >>> import torch
    >>> takes_parameters(torch.optim.NAdam), takes_parameters(Adam)
    (True, False)
    """
    first = next(iter(signature(make).parameters), "replica")
    return first != "replica"


def keys_of(name: str) -> list[str]:
    """The keys of `[optimiser]` that an optimiser takes: its class's keyword arguments.

    >>> keys_of("adam")
    ['betas', 'epsilon']
    """
    known = {field.name for field in fields(OptimiserConfig)}
    parameters = signature(find_optimiser(name)).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is Parameter.KEYWORD_ONLY]
    return [key for key in names if key in known]
