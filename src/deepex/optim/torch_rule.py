"""Any torch optimiser as a rule: it steps by the module's own parameters, which are views into the flat block."""

from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn

from deepex.errors import ConfigError
from deepex.replica import Replica

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
GROUP = "group"  # before the place of a group whose number a key of a checkpoint is
NUMBERS = {"int": torch.int64, "float": torch.float64}  # what some optimisers count with, in place of tensors


class TorchRule:
    """A torch optimiser's own step.

    Its rates are its own; a schedule multiplies them by the share that holds. After its first step, what it remembers
    of each weight stands in flat blocks too, so that a strategy may average it in one call.

    Arguments:
        replica: whose weights it changes.
        make: makes the optimiser of parameters, as in `lambda parameters: torch.optim.NAdam(parameters, lr=1e-3)`.
        learning_rate: the recipe's, of which the rate that holds is a share.

    Attributes:
        moments: what it remembers of each weight, by torch's names; nothing before the first step.

    >>> rule = TorchRule(Replica(nn.Linear(2, 1)), torch.optim.NAdam, 1e-3)
    >>> rule.update(torch.empty(0), torch.empty(0), 1e-3, 0.0)
    >>> sorted(rule.moments), sorted(rule.state)[:2]
    (['exp_avg', 'exp_avg_sq'], ['0.exp_avg', '0.exp_avg_sq'])
    """

    decouples_decay = True  # whatever it decays, it decays by itself

    def __init__(self, replica: Replica, make: MakeOptimizer, learning_rate: float) -> None:
        made = make(list(replica.model.parameters()))  # who makes groups goes through them more than once
        if not isinstance(made, torch.optim.Optimizer):
            raise ConfigError(
                f"the optimiser's function returned a {type(made).__name__}. Allowed: a torch.optim.Optimizer of the "
                "parameters that it is given, or a class of rules whose first argument is called replica."
            )
        self.replica, self.optimizer, self.learning_rate = replica, made, learning_rate
        check_ownership(made, replica)
        closure = signature(made.step).parameters.get("closure")
        if closure is not None and closure.default is Parameter.empty:
            raise ConfigError(
                f"{type(made).__name__}.step needs a closure, which computes a loss several times a step. A step of "
                "deepex computes it once. Take an optimiser that steps by the gradient alone."
            )
        if isinstance(made, torch.optim.SparseAdam):
            raise ConfigError("SparseAdam takes sparse gradients, and a step has dense ones. Take torch.optim.Adam.")
        self.moments: dict[str, Tensor] = {}
        self._rates = [float(group["lr"]) for group in made.param_groups]

    @property
    def momentum(self) -> float:
        """A first beta or a momentum, if it has one."""
        group = self.optimizer.param_groups[0]
        return float(group.get("momentum") or (group.get("betas") or (0.0,))[0])

    @property
    def state(self) -> dict[str, Tensor]:
        """What it remembers, by the place of the parameter and the key; numbers as tensors, with their type."""
        found = {}
        for place, values in self.optimizer.state_dict()["state"].items():
            for key, value in values.items():
                if isinstance(value, Tensor):
                    found[f"{place}.{key}"] = value
                elif type(value).__name__ in NUMBERS:
                    kind = type(value).__name__
                    found[f"{place}.{key}:{kind}"] = torch.tensor(value, dtype=NUMBERS[kind])
        return found

    def state_dict(self) -> dict[str, Tensor]:
        """All that a later step depends on: what it remembers, and the numbers of its groups, rates among them."""
        numbers = {}
        for place, group in enumerate(self.optimizer.param_groups):
            for key, value in {**group, "lr": float(group["lr"])}.items():
                if (kind := type(value).__name__) in NUMBERS:
                    numbers[f"{GROUP}{place}.{key}:{kind}"] = torch.tensor(value, dtype=NUMBERS[kind])
        return {**self.state, **numbers}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from an earlier `state_dict`."""
        nested: dict[int, dict[str, Any]] = {}
        for name, value in state.items():
            place, _, key = name.partition(".")
            key, _, kind = key.partition(":")
            if place.startswith(GROUP):
                self.optimizer.param_groups[int(place.removeprefix(GROUP))][key] = value.item()
            else:
                nested.setdefault(int(place), {})[key] = value.item() if kind else value.clone()
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": nested})
        self.moments.clear()
        self._flatten_moments()

    def update(self, weights: Tensor, gradients: Tensor, rate: float, weight_decay: float) -> None:
        """Let the optimiser step; weights and gradients are those of its parameters."""
        for group, own in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = own * (rate / self.learning_rate)  # own itself, to the bit, where no schedule holds
        self.step()

    def step(self) -> None:
        """One step of the optimiser, at the rates that its groups have."""
        self.optimizer.step()
        if not self.moments:
            self._check_state()
            self._flatten_moments()

    def _check_state(self) -> None:
        """Refuse what a checkpoint would lose."""
        for values in self.optimizer.state.values():
            for key, value in values.items():
                if value is not None and not isinstance(value, Tensor) and type(value).__name__ not in NUMBERS:
                    raise ConfigError(
                        f"{type(self.optimizer).__name__} remembers '{key}', a {type(value).__name__}. A checkpoint "
                        "holds tensors and numbers of each parameter. Let it remember such."
                    )

    def _flatten_moments(self) -> None:
        """Move what is remembered of each weight into one block for each key; it stands in the weights' order."""
        states, entries = self.optimizer.state, self.replica.entries
        keys = [key for key, value in states.get(entries[0].parameter, {}).items() if isinstance(value, Tensor)]
        for key in keys:
            values = [states.get(entry.parameter, {}).get(key) for entry in entries]
            shapes = [entry.parameter.shape for entry in entries]
            if any(value is None or value.shape != shape for value, shape in zip(values, shapes, strict=True)):
                continue
            block = self.moments[key] = torch.zeros_like(self.replica.weights)
            for entry, value in zip(entries, values, strict=True):
                place = block.as_strided(value.shape, entry.gradient.stride(), entry.start)
                states[entry.parameter][key] = place.copy_(value)


def check_ownership(optimizer: torch.optim.Optimizer, replica: Replica) -> None:
    """Refuse an optimiser whose parameters are not the model's trainable ones."""
    names = {id(entry.parameter): entry.name for entry in replica.entries}
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    foreign = [parameter for parameter in held if id(parameter) not in names and parameter.requires_grad]
    if foreign:
        shapes = ", ".join(str(tuple(parameter.shape)) for parameter in foreign[:5])
        raise ConfigError(
            f"the optimiser owns {len(foreign)} parameters that the model has not, of shapes {shapes}. Make it of the "
            "model's own parameters: torch.optim.Adam(model.parameters())."
        )
    owned = {id(parameter) for parameter in held}
    left = [name for key, name in names.items() if key not in owned]
    if left:
        listed = ", ".join(left[:5]) + (" and others" if len(left) > 5 else "")
        raise ConfigError(
            f"the optimiser does not own {listed}, which the model trains. Give it all of model.parameters(), or "
            "freeze these with requires_grad_(False)."
        )
