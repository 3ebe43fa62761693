"""Replicated: a user's module and torch optimiser, kept together over all ranks by a strategy."""

from functools import cache
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from deepex import sync as strategies
from deepex.errors import ConfigError, UsageError
from deepex.optim import OptimiserConfig
from deepex.optim.torch_rule import TorchRule
from deepex.own_loop.session import Session, current_session
from deepex.record.flops import FlopCount, measure_gemm_peak
from deepex.record.rows import StepCost
from deepex.reference import name_object
from deepex.replica import LaidOut, Layout, Replica
from deepex.sync import Sync, SyncContext
from deepex.train.checkpoint import restore_model
from deepex.train.compute.dispatch_cost import OperatorCount, measure_operator_seconds
from deepex.train.compute.precision import DTYPES, LossScale
from deepex.train.compute.step_cost import share_out

MANY_STEPS = 1 << 30  # of an epoch whose length nobody has told


class Replicated:
    """A module whose replicas on all ranks learn together, with the user's own torch optimiser.

    The module stays what it is: call it, read its parameters, evaluate it. Its weights now stand in one flat block.
    `step()` is what happens to one batch: gradients begin at zero; at its end they are mixed as the strategy says, and
    the optimiser makes its step.

    Arguments:
        model: the module; it is on the run's device, and no other Replicated has it.
        optimizer: any torch optimiser of all its trainable parameters. Schedulers may change its rates.
        sync: how replicas are kept together: a text such as `local:8`, or a strategy of one's own.
        name: of the model in checkpoints and weights, where a loop has several.
        layout: `channels_last` keeps the weights of convolutions with channels innermost; by default as the network
            declares (an attribute `layout`), else `contiguous`.
        clip_norm: the most that the mixed gradient's norm may be.
        steps_per_epoch: where batches don't come from a feed: steps between two calls of `run.drain()`.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        sync: str | Sync | type[Sync] = strategies.DEFAULT,
        *,
        name: str = "",
        layout: Layout | None = None,
        clip_norm: float | None = None,
        steps_per_epoch: int | None = None,
    ) -> None:
        self.session = current_session("dx.Replicated()")
        if not isinstance(model, nn.Module) or not isinstance(optimizer, torch.optim.Optimizer):
            raise UsageError(
                f"dx.Replicated({type(model).__name__}, {type(optimizer).__name__}). Allowed: an nn.Module and a torch "
                "optimiser of its parameters, both made already."
            )
        _check_device(model, self.session)
        _check_name(name, self.session)
        self.name, self.model, self.clip_norm, self.steps_per_epoch = name, model, clip_norm, steps_per_epoch
        self.sync_text = sync if isinstance(sync, str) else name_object(sync)
        self.sync = strategies.parse(self.sync_text)
        self.num_training_ranks = self.sync.num_training_ranks(self.session.world.size)
        declared = model.layout if isinstance(model, LaidOut) else "contiguous"
        self.replica = Replica(model, layout or declared, self.session.fabric.empty)
        self.optimizer, rate = optimizer, float(optimizer.param_groups[0]["lr"])
        self.optimiser = TorchRule(self.replica, lambda _: optimizer, rate)
        self.loss_scale = LossScale("fp32")
        self.count = 0  # steps so far
        self._is_prepared = self._may_step = False
        self._step = Step(self)
        self._hook = optimizer.register_step_pre_hook(self._refuse_step)
        self.session.models[name] = self

    def step(self) -> "Step":
        """What happens to one batch: `with replicated.step() as step: step.backward(loss)`."""
        return self._step

    def follow(self) -> None:
        """A step of a rank without batches: joins the collectives, and applies the update that ranks share."""
        self.prepare()
        clock = self.session.clock
        self.session.begin(self, self.sync_text, self.describe_optimiser(), StepCost())
        with clock.sync:
            self.replica.gradients.zero_()
            has_gradient = self.sync.mix_gradients(self.count)
        self.update(has_gradient=has_gradient and self.sync.traits.shares_gradients)

    def release(self) -> None:
        """The module and its optimiser are the user's again, as any others."""
        self._hook.remove()
        self.replica.release()

    def prepare(self) -> None:
        """Make all replicas equal, and go on from a checkpoint if there is one; once, before the first step."""
        if self._is_prepared:
            return
        self._is_prepared, session = True, self.session
        self.replica.check_parameters()
        steps = self.steps_per_epoch or session.steps_per_epoch
        if self.sync.traits.once_an_epoch and not steps:
            raise ConfigError(
                f"sync '{self.sync_text}' needs to know when an epoch ends, and there is no feed. Take batches from "
                "dx.feed, or give dx.Replicated(…, steps_per_epoch=N)."
            )
        context = SyncContext(
            replica=self.replica,
            fabric=session.fabric,
            moments=self.optimiser.moments,
            steps_per_epoch=steps or MANY_STEPS,
            batch=session.batch_size,
            momentum=self.optimiser.momentum,
        )
        self.sync.prepare(context)
        if session.resumed is None:
            torch.manual_seed(session.recipe.seed + 1 + session.world.rank)  # from here on each rank's noise is its own
            return
        state = session.resumed["models"].get(self.name)
        if state is None:
            known = ", ".join(repr(each) for each in session.resumed["models"])
            raise ConfigError(f"the checkpoint has no model named '{self.name}'. It has: {known}. Give the same names.")
        if state["block"].shape != self.replica.block.shape:
            raise ConfigError(
                f"the checkpoint's model '{self.name}' has {state['block'].numel():,} weights and statistics, and this "
                f"one {self.replica.block.numel():,}. Go on with the same model, or leave resume= out."
            )
        restore_model(state, self)
        self.count = session.position.counts[self.name]
        torch.set_rng_state(session.resumed["random"])

    def update(self, *, has_gradient: bool) -> None:
        """The optimiser's step and what follows it."""
        clock = self.session.clock
        with clock.update:
            if has_gradient:
                if self.clip_norm is not None:
                    clip_grad_norm_(self.model.parameters(), self.clip_norm)
                self._may_step = True
                self.optimiser.step()
                self._may_step = False
        with clock.sync:
            self.sync.mix_weights(self.count)
        self.count += 1

    def describe_optimiser(self) -> OptimiserConfig:
        """The user's optimiser, for the record."""
        rate = float(self.optimizer.param_groups[0]["lr"])
        kind = type(self.optimizer)
        return OptimiserConfig(name=f"{kind.__module__}:{kind.__qualname__}", learning_rate=max(rate, 1e-30))

    def _refuse_step(self, *_: Any) -> None:
        if not self._may_step:
            raise UsageError(
                "optimizer.step() was called by the loop. replicated.step() calls it where its block ends, after "
                "gradients are mixed. Leave the call out."
            )


class Step:
    """One batch's step, as a `with` block. Several backwards in one block add their gradients up."""

    def __init__(self, owner: Replicated) -> None:
        self.owner, self.session, self.clock = owner, owner.session, owner.session.clock
        self._is_open = False
        self._loss: Tensor | None = None
        self._counting: tuple[FlopCount, OperatorCount] | None = None

    def __enter__(self) -> Self:
        owner, session = self.owner, self.session
        if self._is_open:
            raise UsageError("replicated.step() inside of itself. End a step's block before the next begins.")
        if session.is_closed:
            raise UsageError("replicated.step() after its run has ended. Put it inside: with dx.start() as run: …")
        for other in session.models.values():
            other.replica.collects = other is owner
        session.open_step()
        if not owner._is_prepared:
            owner.prepare()
            self._counting = (FlopCount(), OperatorCount())
            for mode in self._counting:
                mode.__enter__()
        self._is_open, self._loss = True, None
        owner.replica.gradients.zero_()
        for entry in owner.replica.entries:
            if entry.parameter.grad is not entry.gradient:  # zero_grad() between two steps lets it go
                entry.parameter.grad = entry.gradient
        return self

    def backward(self, loss: Tensor) -> None:
        """Go backward from a loss, the mean over the batch; with it the record has the loss, and forward by itself."""
        if not self._is_open:
            raise UsageError(
                "step.backward() after its block has ended. Call it inside: with replicated.step() as step:"
            )
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            kind = f"tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise ConfigError(
                f"step.backward was given a {kind} that it can't go backward from. Allowed: a scalar tensor, computed "
                "from the model's output."
            )
        with self.clock.forward:
            pass  # what came before this call
        with self.clock.backward:
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves backward untyped
        self._loss = loss.detach() if self._loss is None else self._loss + loss.detach()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        cost = self._stop_counting()
        if error is not None:
            return
        owner, session = self.owner, self.session
        if self._loss is None:
            raise UsageError(
                "the step's block has ended without step.backward(loss). Call it in the block, in place of "
                "loss.backward(): with it the record has the loss, and gradients are mixed at the right time."
            )
        owner.replica.check_gradients()
        if cost is not None:
            session.begin(owner, owner.sync_text, owner.describe_optimiser(), cost)
        with self.clock.sync:
            has_gradient = owner.sync.mix_gradients(owner.count)
        owner.update(has_gradient=has_gradient)
        session.close_step(owner, self._loss, is_timed=cost is None)

    def _stop_counting(self) -> StepCost | None:
        """What the first step asked of the processor; None in later ones."""
        if self._counting is None:
            return None
        flops, operators = self._counting
        for mode in reversed(self._counting):
            mode.__exit__(None, None, None)
        self._counting, device, cores = None, self.session.device, torch.get_num_threads()
        if sentence := share_out(flops.total, device):
            self.session.listener.say(sentence)
        peak, operator_seconds = _measure_processor(
            device, DTYPES[self.session.recipe.precision], torch.get_num_threads()
        )
        return StepCost(
            flops_per_step=flops.total,
            gemm_flops_per_second=peak,
            cores=cores,
            threads=torch.get_num_threads(),
            dispatch_seconds=operators.total * operator_seconds,
        )


@cache
def _measure_processor(device: torch.device, dtype: torch.dtype, threads: int) -> tuple[float, float]:
    """The rate of a matrix product and the cost of an operator by so many threads, measured once in a process."""
    with torch.random.fork_rng(devices=[]):  # the loop's own noise stays what it would be
        return measure_gemm_peak(device, dtype), measure_operator_seconds(device)


def _check_device(model: nn.Module, session: Session) -> None:
    for name, parameter in model.named_parameters():
        if parameter.device.type != session.device.type:
            raise ConfigError(
                f"parameter '{name}' is on {parameter.device}, and this rank computes on {session.device}. Move the "
                "model before its optimiser is made: model.to(run.device)"
            )


def _check_name(name: str, session: Session) -> None:
    if name == "loss" or "." in name:
        raise ConfigError(
            f"a model named '{name}'. Allowed: names without dots, and not 'loss', which is the sum of all."
        )
    if name in session.models or (session.models and "" in session.models) or (session.models and not name):
        names = ", ".join(repr(each) for each in session.models)
        raise ConfigError(
            f"a second model named '{name}' beside {names}. Where a loop has several, each needs a name of its own, as "
            'in dx.Replicated(generator, …, name="generator").'
        )
