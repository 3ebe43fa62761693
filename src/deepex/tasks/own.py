"""A user's own module on a user's own data, as a task."""

import copy
import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from inspect import signature
from typing import Any, SupportsFloat, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deepex.data import Preparation, Splits, Subset
from deepex.data.dataset import Given, Samples, open_samples
from deepex.data.split import split_by_name
from deepex.errors import ConfigError
from deepex.reference import is_reference, load_object, make_absolute
from deepex.sample import Batch
from deepex.train.task import Direction, Loss, Tally, Target

MakeModel: TypeAlias = Callable[[], nn.Module] | nn.Module | str
LossFunction: TypeAlias = Callable[..., Tensor | Loss]
MetricFunction: TypeAlias = Callable[..., Tensor | float | Tally]

VALIDATION_LOSS = "validation_loss"


@dataclass(frozen=True, kw_only=True)
class OwnTask:
    """Train any module on any data; `dx.task` makes one, and `dx.run(model=…, data=…, loss=…)` runs one.

    Its data stands in memory or in files; it is opened once in each process.
    """

    name: str = "own"
    validation_share: float = 0.2
    network: MakeModel = field(metadata={"setting": False})
    samples: Given = field(metadata={"setting": False})
    objective: LossFunction = field(metadata={"setting": False})
    measure: MetricFunction | None = field(default=None, metadata={"setting": False})
    goal: Target = field(default=Target(metric=VALIDATION_LOSS), metadata={"setting": False})
    held_out: Given = field(default=None, metadata={"setting": False})
    preparation: Preparation = field(default_factory=Preparation, metadata={"setting": False})

    def __post_init__(self) -> None:
        if not 0 < self.validation_share < 1:
            raise ConfigError(
                f"validation = {self.validation_share}. Allowed: a share of the samples between 0 and 1, or samples."
            )

    @property
    def target(self) -> Target:
        return self.goal

    def data(self) -> Splits:
        found = self._opened
        source, digest = found.source, found.content_sha256
        if self.held_out is not None:
            judged = open_samples(self.held_out)
            if judged.source.spec.fields != source.spec.fields:
                raise ConfigError(
                    f"samples to validate with are {_say_fields(judged)}, and those to train on {_say_fields(found)}. "
                    "Give both with the same fields, shapes and types."
                )
            train, validation = source, judged.source
        else:
            chosen = self._split(found)
            train, validation = (Subset(source, chosen[part]) for part in ("train", "validation"))
        return Splits(
            train=train,
            validation=validation,
            content_sha256=digest,
            preparation=self.preparation,
            left_out=found.left_out or {},
        )

    def model(self) -> nn.Module:
        made = load_object(self.network) if isinstance(self.network, str) else self.network
        made = _copy(made) if isinstance(made, nn.Module) else _call_without_arguments(made)
        if not isinstance(made, nn.Module):
            raise ConfigError(
                f"model() returned a {type(made).__name__}. Allowed: an nn.Module, or a class or function that makes "
                "one."
            )
        if any(parameter.is_meta for parameter in made.parameters()):
            raise ConfigError(
                "the model's weights are on the meta device, which holds no numbers. Build it on the CPU; a run moves "
                "it to where it computes."
            )
        return made

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        nested = self._nest(batch)
        try:
            return check_loss(self.objective(model, nested))
        except (TypeError, AttributeError) as error:
            if isinstance(self.objective, Criterion):
                raise
            raise _called_wrongly(self.objective, nested, error) from error

    def evaluate(self, model: nn.Module, batch: Batch) -> Tally:
        """The metric's mean over a batch counts as many times as the batch has samples."""
        size = len(next(iter(batch.values())))
        nested = self._nest(batch)
        if self.measure is None:
            return Tally(total=float(check_loss(self.objective(model, nested)).total) * size, count=size)
        value = self.measure(model, nested)
        if isinstance(value, Tally):
            return value
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ConfigError(
                f"metric '{self.goal.metric}' returned a tensor of shape {tuple(value.shape)}. Allowed: one number, "
                "the mean over the batch, or dx.Tally(total=…, count=…)."
            )
        if not isinstance(value, Tensor | SupportsFloat):
            raise ConfigError(
                f"metric '{self.goal.metric}' returned a {type(value).__name__}. Allowed: one number, the mean over "
                "the batch, or dx.Tally(total=…, count=…)."
            )
        return Tally(total=float(value) * size, count=size)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_opened", "_is_flat")}

    @cached_property
    def _opened(self) -> Samples:
        return open_samples(self.samples)

    @cached_property
    def _is_flat(self) -> bool:
        return self._opened.structure.is_flat_mapping

    def _nest(self, batch: Batch) -> Any:
        """A batch as the user's functions know it: nested as the items of the data set are."""
        return batch if self._is_flat else self._opened.structure.nest(batch)

    def _split(self, found: Samples) -> Mapping[str, NDArray[np.int64]]:
        """Which samples are held out: by their names if they have any, else at random but always the same ones."""
        count, share = len(found.source), self.validation_share
        if found.named:
            names = [found.source.name(index) for index in range(count)]
            chosen = split_by_name(names, {"train": 1 - share, "validation": share})
        else:
            order, held_out = np.random.default_rng(0).permutation(count), max(1, round(count * share))
            chosen = {"train": np.sort(order[held_out:]), "validation": np.sort(order[:held_out])}
        if not len(chosen["train"]) or not len(chosen["validation"]):
            raise ConfigError(
                f"{count} samples with validation = {share} leave one side empty. Give more samples, or another share."
            )
        return chosen


def task(
    *,
    model: MakeModel,
    data: Given,
    loss: LossFunction | str,
    metric: MetricFunction | None = None,
    target: float | None = None,
    mode: Direction = "min",
    validation: float | Given = 0.2,
    name: str = "own",
    preparation: Preparation | None = None,
) -> OwnTask:
    """A task of your own: a module, its data and its loss.

    Arguments:
        model: a class or function that makes the module, the module itself (it is copied, and its weights are where
            training begins), or `file.py:name` of such a function.
        data: a torch `Dataset` (map-style, or iterable with a length), a `DataLoader` (its data set is taken), tensors
            or NumPy arrays by name or in a tuple, the path of a packed file, a `Source`, or a function that returns one
            of these, which each rank then calls for itself.
        loss: `(model, batch) -> scalar tensor`, the mean over the batch, with `batch` nested as the items of the data
            set are; or `dx.Loss(total=…, parts={…})`. A module such as `nn.CrossEntropyLoss()`, or a function of
            `torch.nn.functional`, is called with `model(inputs)` and `labels` of a batch of two parts.
        metric: `(model, batch) -> number`, on held-out samples; by default the loss.
        target: the value of the metric at which training stops; None trains for all epochs.
        mode: `min` if small values of the metric are good, `max` if large ones are.
        validation: the share of the samples that is held out, or other samples, given as `data` is.
        name: of the task, for the run's directory and page.
        preparation: conversions and augmentations between storage and network.

    >>> from torch.nn.functional import mse_loss
    >>> own = task(model=lambda: nn.Linear(2, 1), data=(torch.zeros(100, 2), torch.zeros(100, 1)), loss=mse_loss)
    >>> len(own.data().train)
    80
    """
    for what, given in (("model", model), ("loss", loss)):
        if not callable(given) and not (isinstance(given, str) and is_reference(given)):
            raise ConfigError(f"{what} is a {type(given).__name__}. Allowed: something to call, or file.py:name of it.")
    if isinstance(loss, type) and issubclass(loss, nn.Module):
        raise ConfigError(f"loss is the class {_name(loss)}. Allowed: an object of it. Write loss={_name(loss)}().")
    if isinstance(loss, nn.Module) and any(parameter.requires_grad for parameter in loss.parameters()):
        raise ConfigError(
            f"loss {_name(loss)} has trainable weights of its own, which nobody would train. Make them a part of the "
            "model, and give a function loss(model, batch)."
        )
    is_number = isinstance(target, int | float) and not isinstance(target, bool) and math.isfinite(target)
    if target is not None and not is_number:
        raise ConfigError(f"target = {target!r}. Allowed: a number, the value of the metric to reach, or None.")
    if validation is None:
        raise ConfigError("validation = None. Allowed: a share of the samples between 0 and 1, or other samples.")
    if metric is not None and not callable(metric):
        raise ConfigError(
            f"metric is a {type(metric).__name__}. Allowed: a function (model, batch) -> number, or None."
        )
    if mode not in ("min", "max"):
        raise ConfigError(f"mode = {mode!r}. Allowed: min, max.")
    if mode == "max" and metric is None:
        raise ConfigError("mode = 'max' without a metric: the loss is judged, and small ones are good. Give metric=.")
    if not name or "/" in name or name.startswith("."):
        raise ConfigError(f"name = {name!r}. Allowed: text without slashes, which begins with a letter or a digit.")
    metric_name = VALIDATION_LOSS if metric is None else getattr(metric, "__name__", type(metric).__name__)
    share = float(validation) if isinstance(validation, int | float) else None
    return OwnTask(
        name=name,
        validation_share=0.2 if share is None else share,
        network=_locate(model),
        samples=_locate(data),
        objective=_as_objective(load_object(loss) if isinstance(loss, str) else loss),
        measure=None if metric is None else _as_objective(metric),
        goal=Target(metric="metric" if metric_name == "<lambda>" else metric_name, threshold=target, direction=mode),
        held_out=None if share is not None else _locate(validation),
        preparation=preparation or Preparation(),
    )


def check_loss(found: Any) -> Loss:
    """What a user's loss function returned, as a loss."""
    if isinstance(found, Loss):
        return replace(found, total=check_loss(found.total).total)
    if not isinstance(found, Tensor):
        raise ConfigError(
            f"the loss function returned a {type(found).__name__}. Allowed: a scalar tensor, the mean over the batch, "
            "or dx.Loss(total=…, parts={…}) for a loss of several parts."
        )
    if found.numel() != 1:
        raise ConfigError(
            f"the loss has shape {tuple(found.shape)}. Allowed: a scalar tensor. Take its mean over the batch."
        )
    if torch.is_grad_enabled() and not found.requires_grad:
        raise ConfigError(
            "the loss has no gradient: it does not depend on the model's trainable weights, or was detached on the "
            "way. Compute it from the model's output, without .item(), .detach() or no_grad()."
        )
    return Loss(total=found.reshape(()))


@dataclass(frozen=True)
class Criterion:
    """A loss of outputs and labels, such as `nn.MSELoss()`, as a function of model and batch."""

    function: LossFunction

    def __call__(self, model: nn.Module, batch: Any) -> Tensor | Loss:
        if not isinstance(batch, list | tuple) or len(batch) != 2:
            parts = ", ".join(batch) if isinstance(batch, Mapping) else type(batch).__name__
            raise ConfigError(
                f"loss {_name(self.function)} compares outputs with labels, and a batch is not a pair of both but: "
                f"{parts}. Give data with items (inputs, labels), or a function loss(model, batch)."
            )
        inputs, labels = batch
        outputs = model(inputs)
        if not isinstance(outputs, Tensor):
            raise ConfigError(
                f"the model returned a {type(outputs).__name__}, and loss {_name(self.function)} compares one tensor "
                "with labels. Give a function loss(model, batch) that takes the outputs apart."
            )
        return self.function(outputs, labels)


def _as_objective(loss: Callable[..., Any]) -> Callable[..., Any]:
    inner = loss.func if isinstance(loss, partial) else loss
    is_criterion = isinstance(inner, nn.Module) or getattr(inner, "__module__", "") == "torch.nn.functional"
    known = getattr(nn.functional, getattr(inner, "__name__", ""), None) is inner  # some come from elsewhere in torch
    return Criterion(loss) if is_criterion or known else loss


def _copy(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except (RuntimeError, TypeError) as error:  # weights that were computed, as by the old weight_norm; a lock
        raise ConfigError(
            f"the module {type(model).__name__} can't be copied: {error}. Give its class, or a function that makes it."
        ) from error


def _called_wrongly(function: Any, batch: Any, error: Exception) -> ConfigError:
    """The error for a loss function that fails as one of other arguments would."""
    frames = traceback.extract_tb(error.__traceback__)
    parts = f"{type(batch).__name__} of {', '.join(map(str, batch)) if isinstance(batch, Mapping) else len(batch)}"
    return ConfigError(
        f"the loss function {_name(function)} failed with {type(error).__name__} in {frames[-1].filename}, line "
        f"{frames[-1].lineno}: {error}. It is called as loss(model, batch), here with a {parts}. A function of outputs "
        "and labels becomes one by: lambda model, batch: f(model(batch[0]), batch[1])."
    )


def _call_without_arguments(make: Any) -> Any:
    """What a user's class or function makes; one that can't be called so is told."""
    if not callable(make):
        raise ConfigError(
            f"model is a {type(make).__name__}. Allowed: a module, or a class or function that makes one."
        )
    try:
        signature(make).bind()
    except TypeError as error:
        raise ConfigError(
            f"model {_name(make)} can't be called without arguments: {error}. Give a function that makes it, as in "
            f"model=lambda: {_name(make)}(…)."
        ) from error
    return make()


def _locate(given: Any) -> Any:
    """The same; a name of code as processes of any folder find it."""
    return make_absolute(given) if isinstance(given, str) and is_reference(given) else given


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _say_fields(samples: Samples) -> str:
    fields = samples.source.spec.fields
    return ", ".join(f"{name}: {each.dtype} of shape {each.shape}" for name, each in fields.items())
