"""A user's own loop on one rank: that it learns what a plain loop learns, and what it says to mistakes."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

import deepex as dx
from deepex.errors import ConfigError, Interrupted, TrainingError, UsageError
from tests.own_loop.loops import Net, make_data, train


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def loop(
    model: nn.Module | None = None, optimizer: torch.optim.Optimizer | None = None, **options: Any
) -> dx.Replicated:
    model = model or nn.Linear(4, 1)
    return dx.Replicated(model, optimizer or torch.optim.SGD(model.parameters(), lr=0.1), **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
        lambda parameters: torch.optim.Adagrad(parameters, lr=0.05),
        lambda parameters: torch.optim.NAdam(parameters, lr=0.01),
    ],
)
def test_it_learns_bit_for_bit_what_a_plain_loop_learns(make: Any) -> None:
    x, y = make_data()
    with dx.start(verbosity="quiet", page=False, seed=3) as run:
        model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
        optimizer = make(model.parameters())
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        replicated, feed = loop(model, optimizer), dx.feed((x, y), batch_size=20)
        batches = []
        for _ in run.epochs(2):
            for inputs, labels in feed:
                batches.append((inputs.clone(), labels.clone()))
                with replicated.step() as step:
                    step.backward(mse_loss(model(inputs), labels))
            scheduler.step()
    torch.manual_seed(3)
    twin = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = make(twin.parameters())
    for number, (inputs, labels) in enumerate(batches):
        if number == 10:
            for group in optimizer.param_groups:
                group["lr"] *= 0.5
        optimizer.zero_grad()
        mse_loss(twin(inputs), labels).backward()  # type: ignore[no-untyped-call]  # torch
        optimizer.step()
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True))
    assert run.path.joinpath("summary.json").exists()


def change_weights(parts: list[slice], clip_norm: float | None = None) -> torch.Tensor:
    """How a step by the sum of several backwards changes the weights."""
    with dx.start(verbosity="quiet", page=False):
        model = nn.Linear(4, 1)
        before = model.weight.detach().clone()
        replicated = loop(model, clip_norm=clip_norm)
        for x, y in dx.feed(make_data(40), batch_size=40):
            with replicated.step() as step:
                for part in parts:
                    step.backward(mse_loss(model(x[part]), y[part]) / len(parts))
    return model.weight.detach() - before


def test_several_backwards_of_a_step_add_up_and_the_norm_is_clipped() -> None:
    whole = change_weights([slice(0, 40)])
    halves = change_weights([slice(0, 20), slice(20, 40)])
    torch.testing.assert_close(halves, whole)
    clipped = change_weights([slice(0, 40)], clip_norm=1e-3)
    assert float(clipped.norm()) <= 0.1 * 1e-3 < float(whole.norm())


def test_evaluation_goes_once_through_all_samples_in_order_and_figures_are_kept() -> None:
    x = torch.arange(23.0)[:, None]
    with dx.start(verbosity="quiet", page=False) as run:
        model = nn.Linear(1, 1)
        replicated, feed = loop(model), dx.feed(DataLoader(TensorDataset(x), batch_size=6))
        held_out = dx.feed(x, batch_size=10, shuffle=False)
        assert (len(feed), len(held_out)) == (3, 3)
        for _ in run.epochs(2):
            for (inputs,) in feed:
                with replicated.step() as step:
                    step.backward(1e-6 * model(inputs).square().mean())
            seen = torch.cat([batch.clone() for batch in held_out])
            assert torch.equal(seen, x)
            run.log(mean=dx.Tally(total=float(seen.sum()), count=23), worst=22)
    rows = dx.Run(run.path).metrics
    assert [(row.metric, row.value, row.beside) for row in rows] == [("mean", 11.0, {"worst": 22.0})] * 2
    assert rows[0].phase_seconds["evaluate"] > 0


def test_without_a_feed_the_loop_tells_how_long_an_epoch_is() -> None:
    x, y = make_data(20)
    with dx.start(verbosity="quiet", page=False) as run:
        replicated = loop(sync="local:epoch", steps_per_epoch=4)
        for _ in run.epochs(2):
            for part in range(4):
                with replicated.step() as step:
                    step.backward(mse_loss(replicated.model(x[part * 5 :][:5]), y[part * 5 :][:5]))
    assert [row.epoch for row in dx.Run(run.path).metrics] == [1, 2]
    with pytest.raises(ConfigError, match="needs to know when an epoch ends"), dx.start(page=False):
        loop(sync="local:epoch").step().__enter__()


def step_in_step(replicated: dx.Replicated) -> None:
    with replicated.step(), replicated.step():
        pass


def step_twice(replicated: dx.Replicated) -> None:
    with replicated.step() as step:
        step.backward(replicated.model(torch.ones(2, 4)).mean())
    replicated.optimizer.step()


def step_without(replicated: dx.Replicated) -> None:
    with replicated.step():
        replicated.model(torch.ones(2, 4)).mean().backward()


def let_gradients_go(replicated: dx.Replicated) -> None:
    with replicated.step() as step:
        replicated.optimizer.zero_grad()
        step.backward(replicated.model(torch.ones(2, 4)).mean())


def go_back_from_a_float(replicated: dx.Replicated) -> None:
    with replicated.step() as step:
        step.backward(1.0)  # type: ignore[arg-type]  # the mistake


def go_back_from_many(replicated: dx.Replicated) -> None:
    with replicated.step() as step:
        step.backward(replicated.model(torch.ones(2, 4)))


def go_back_late(replicated: dx.Replicated) -> None:
    with replicated.step() as step:
        step.backward(replicated.model(torch.ones(2, 4)).mean())
    step.backward(replicated.model(torch.ones(2, 4)).mean())


def become_nan(replicated: dx.Replicated) -> None:
    with replicated.step() as step:
        step.backward(replicated.model(torch.ones(2, 4)).mean() * torch.nan)


@pytest.mark.parametrize(
    ("mistake", "error", "said"),
    [
        (step_in_step, UsageError, "inside of itself"),
        (step_twice, UsageError, r"optimizer.step\(\) was called by the loop.*Leave the call out"),
        (step_without, UsageError, r"without step.backward\(loss\)"),
        (let_gradients_go, ConfigError, r"did not add its gradient.*no zero_grad\(\)"),
        (go_back_from_a_float, ConfigError, "was given a float"),
        (go_back_from_many, ConfigError, r"a tensor of shape \(2, 1\)"),
        (go_back_late, UsageError, "after its block has ended"),
        (become_nan, TrainingError, "the loss is nan in step 0"),
    ],
)
def test_mistakes_in_a_step_are_told(mistake: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said), dx.start(verbosity="quiet", page=False):
        mistake(loop())
    train(epochs=1)  # afterwards another run begins as if nothing had happened


def test_a_step_after_the_run_has_ended_is_refused() -> None:
    with dx.start(verbosity="quiet", page=False) as run:
        replicated = loop()
        for _ in run.epochs(1):
            for x, y in dx.feed(make_data(), batch_size=50):
                with replicated.step() as step:
                    step.backward(mse_loss(replicated.model(x), y))
    with pytest.raises(UsageError, match=r"after its run has ended.*with dx\.start\(\)"):
        replicated.step().__enter__()


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (1, "in epoch 1 after step 2 of 10"),
        (16, "in epoch 2 after step 7 of 10"),
        (9, "after epoch 1"),  # behind its last step
        (19, "after epoch 2"),
    ],
)
def test_a_loop_that_is_stopped_goes_on_to_the_same_bits_wherever_that_was(step: int, said: str) -> None:
    whole = train(epochs=3, batch_size=20)[1]
    with pytest.raises(Interrupted, match=f"stopped {said}; a checkpoint is written"):
        train(epochs=3, batch_size=20, out="stopped", before_step=interrupt_in(step))
    assert train(epochs=3, batch_size=20, resume="stopped")[1] == whole
    assert [row.epoch for row in dx.Run("stopped").metrics] == [1, 2, 3]


def test_a_loop_that_is_stopped_in_its_very_last_step_completes() -> None:
    train(epochs=3, batch_size=20, out="complete", before_step=interrupt_in(29))
    assert dx.Run("complete").summary.epochs == 3


def interrupt_in(step: int) -> Callable[[dx.Session, int], None]:
    return lambda run, number: os.kill(os.getpid(), signal.SIGINT) if number == step else None


def test_gradients_that_were_let_go_between_steps_are_found_again() -> None:
    with dx.start(verbosity="quiet", page=False):
        replicated = loop()
        for x, y in dx.feed(make_data(), 50):
            replicated.optimizer.zero_grad()
            with replicated.step() as step:
                step.backward(mse_loss(replicated.model(x), y))
    assert replicated.count == 4


def own_too_much() -> dx.Replicated:
    model = nn.Linear(4, 1)
    return loop(model, torch.optim.SGD([*model.parameters(), nn.Parameter(torch.ones(3))], lr=0.1))


def own_too_little() -> dx.Replicated:
    model = nn.Linear(4, 1)
    return loop(model, torch.optim.SGD([model.weight], lr=0.1))


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (own_too_much, ConfigError, r"owns 1 parameters that the model has not, of shapes \(3,\)"),
        (own_too_little, ConfigError, "does not own bias, which the model trains"),
        (
            lambda: loop(nn.Linear(4, 1, device="meta")),
            ConfigError,
            r"is on meta, and this rank computes on cpu.*model.to",
        ),
        (lambda: loop(sync="locl:8"), ConfigError, "unknown sync 'locl:8'"),
        (lambda: dx.Replicated(nn.Linear, None), UsageError, "an nn.Module and a torch optimiser"),  # type: ignore[arg-type]
        (lambda: [loop(), loop()], ConfigError, "a second model named ''"),
        (lambda: loop(name="loss"), ConfigError, "not 'loss'"),
        (lambda: dx.feed([]), UsageError, "length of 0"),
        (lambda: list(dx.feed(torch.ones(3, 2), 64)), ConfigError, "Use data.batch=3 or less"),
        (lambda: dx.start().__enter__(), UsageError, "inside of another"),
    ],
)
def test_mistakes_before_a_step_are_told(make: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said), dx.start(verbosity="quiet", page=False):
        make()


@pytest.mark.parametrize("call", [lambda: dx.feed(torch.ones(3, 2)), lambda: loop()])
def test_there_is_no_replica_and_no_feed_outside_of_a_run(call: Any) -> None:
    with pytest.raises(UsageError, match=r"with dx.start\(\) as run"):
        call()


def test_a_loop_without_steps_has_no_outcome_and_a_complete_one_is_not_resumed() -> None:
    with pytest.raises(TrainingError, match="without a finished epoch"), dx.start(verbosity="quiet"):
        pass
    path, _ = train(epochs=1)
    with pytest.raises(UsageError, match="is complete"), dx.start(resume=path):
        pass
    with pytest.raises(UsageError, match="one of them"), dx.start(resume=path, out="elsewhere"):
        pass
    with pytest.raises(UsageError, match="Give the module"):
        dx.load(path)
    assert isinstance(dx.load(path, model=Net), Net)


def test_two_feeds_can_be_gone_through_together() -> None:
    x = torch.arange(40.0)[:, None]
    for many, few in ((40, 40), (40, 20), (20, 40)):
        with dx.start(verbosity="quiet", page=False) as run:
            model = nn.Linear(1, 1)
            replicated = loop(model)
            first, second = dx.feed(x[:many], batch_size=4), dx.feed(x[:few], batch_size=4)
            seen = []
            for _ in run.epochs(2):
                for one, other in zip(first, second, strict=False):
                    seen.append((one.clone(), other.clone()))
                    with replicated.step() as step:
                        step.backward(1e-6 * (model(one) - model(other) + model(one)).square().mean())
        assert len(seen) == 2 * min(many, few) // 4
        if few <= many:  # each epoch all samples of the shorter
            for epoch in (seen[: len(seen) // 2], seen[len(seen) // 2 :]):
                assert torch.equal(torch.cat([pair[1] for pair in epoch]).sort(0)[0], x[:few])


def replace_a_layer(replicated: dx.Replicated) -> None:
    replicated.model.add_module("new", nn.Linear(4, 1))
    step_twice(replicated)


def become_double(replicated: dx.Replicated) -> None:
    replicated.model.double()
    step_twice(replicated)


def assign_weights(replicated: dx.Replicated) -> None:
    replicated.model.load_state_dict({k: v.clone() for k, v in replicated.model.state_dict().items()}, assign=True)
    step_twice(replicated)


def go_without_steps(replicated: dx.Replicated) -> None:
    session = replicated.session
    for epoch in session.epochs(2):
        for x, y in dx.feed(make_data(), 50):
            if epoch == 0:
                with replicated.step() as step:
                    step.backward(mse_loss(replicated.model(x), y))


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (replace_a_layer, "parameter 'new.weight' is new"),
        (become_double, "has left the flat block"),
        (assign_weights, "parameter 'weight' is new|has left the flat block"),
        (go_without_steps, "epoch 2 had 4 batches and no step"),
        (lambda replicated: replicated.session.log(accuracy="high"), "was given 'high'"),
        (lambda replicated: replicated.session.log(accuracy=torch.ones(3)), r"a tensor of shape \(3,\)"),
    ],
)
def test_a_model_that_is_changed_and_figures_that_are_none_are_told(mistake: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said), dx.start(verbosity="quiet", page=False):
        mistake(loop())
