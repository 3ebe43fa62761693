"""A user's own module on a user's own data: whatever loss, metric, model and data are given, and what is refused."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import deepex as dx
from deepex.data import ArraySource
from deepex.errors import ConfigError, DataError, UsageError
from deepex.sample import Batch
from deepex.tasks.own import Criterion, OwnTask, task

NOISE = torch.Generator().manual_seed(0)
X = torch.randn(120, 3, generator=NOISE)
Y = X @ torch.tensor([[1.0], [-2.0], [0.5]])
CLASSES = (Y[:, 0] > 0).long()


def squared_error(model: nn.Module, batch: Any) -> Tensor:
    x, y = batch
    return functional.mse_loss(model(x), y)


def worst(model: nn.Module, batch: Any) -> Tensor:
    x, y = batch
    error: Tensor = (model(x) - y).abs().mean()
    return error


def count_half(model: nn.Module, batch: Any) -> dx.Tally:
    return dx.Tally(total=float(len(batch[0])), count=2.0 * len(batch[0]))


class Net(nn.Linear):
    def __init__(self) -> None:
        super().__init__(3, 1)


def train(out: Path, **given: Any) -> dx.Run:
    """A short run in this process, of a plane unless something else is given."""
    chosen: dict[str, Any] = {"model": Net, "data": (X, Y), "loss": squared_error, "epochs": 1, "batch_size": 32}
    return dx.run(**(chosen | given), out=out, verbosity="quiet", page=False)


def test_a_loss_is_a_function_of_model_and_batch_or_of_outputs_and_labels(tmp_path: Path) -> None:
    def of_parts(model: nn.Module, batch: Any) -> dx.Loss:
        return dx.Loss(total=squared_error(model, batch))

    losses = (squared_error, nn.MSELoss(), functional.mse_loss, of_parts)
    runs = [train(tmp_path / str(number), loss=loss) for number, loss in enumerate(losses)]
    assert len({run.summary.weights_sha256 for run in runs}) == 1


def test_classes_are_learned_by_cross_entropy_and_told_apart_by_a_metric(tmp_path: Path) -> None:
    def accuracy(model: nn.Module, batch: Any) -> Tensor:
        x, label = batch
        share: Tensor = (model(x).argmax(dim=1) == label).float().mean()
        return share

    run = train(
        tmp_path / "run",
        model=lambda: nn.Linear(3, 2),
        data=(X, CLASSES),
        loss=nn.CrossEntropyLoss(label_smoothing=0.1),
        metric=accuracy,
        mode="max",
        target=0.9,
        epochs=60,
        lr=0.05,
        name="signs",
    )
    summary = run.summary
    assert (summary.task, summary.metric, summary.target, summary.direction) == ("signs", "accuracy", 0.9, "max")
    assert summary.target_reached
    assert run.metrics[-1].value > 0.9 >= run.metrics[-2].value  # it stops as soon as it is there
    best = max(range(len(run.metrics)), key=lambda row: run.metrics[row].value)
    assert best == len(run.metrics) - 1


def test_parts_of_a_loss_are_recorded_by_name(tmp_path: Path) -> None:
    def two_parts(model: nn.Module, batch: Any) -> dx.Loss:
        error, size = squared_error(model, batch), model.get_parameter("weight").square().sum()
        return dx.Loss(total=error + 0.1 * size, parts={"error": error, "size": size})

    losses = train(tmp_path / "run", loss=two_parts).metrics[0].losses
    assert losses["loss"] == pytest.approx(losses["error"] + 0.1 * losses["size"], rel=1e-4)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda model, batch: (squared_error(model, batch), 1), "returned a tuple. Allowed: a scalar tensor"),
        (lambda model, batch: 1.0, "the loss function returned a float"),
        (lambda model, batch: None, "the loss function returned a NoneType"),
        (lambda model, batch: model(batch[0]), "the loss has shape (32, 1). Allowed: a scalar tensor. Take its mean"),
        (lambda model, batch: squared_error(model, batch).detach(), "the loss has no gradient"),
        (lambda model, batch: torch.tensor(1), "the loss has no gradient"),
        (lambda model, batch: dx.Loss(total=squared_error(model, batch).detach()), "the loss has no gradient"),
        (lambda model, batch: dx.Loss(total=model(batch[0])), "the loss has shape (32, 1)"),
        ("mse", "loss is a str. Allowed: something to call, or file.py:name of it"),
        (3, "loss is a int. Allowed: something to call"),
    ],
)
def test_a_loss_that_is_none_is_refused_before_the_first_epoch(tmp_path: Path, loss: Any, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        train(tmp_path / "run", loss=loss)
    assert said in str(raised.value)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_loss_of_outputs_and_labels_needs_a_batch_of_both(tmp_path: Path) -> None:
    for data, parts in (({"x": X, "y": Y}, "x, y"), ((X, Y, Y), "tuple"), (X, "Tensor")):
        with pytest.raises(ConfigError, match=f"loss MSELoss compares outputs with labels, and .* but: {parts}"):
            train(tmp_path / "run", data=data, loss=nn.MSELoss())
        (tmp_path / "run").rename(tmp_path / parts)
    with pytest.raises(DataError, match="missing 1 required positional argument: 'var'"):
        train(tmp_path / "run", loss=nn.GaussianNLLLoss())


@pytest.mark.parametrize(
    ("metric", "name", "value"),
    [
        (worst, "worst", lambda x, y: (x - y).abs().mean()),
        (functional.l1_loss, "l1_loss", lambda x, y: (x - y).abs().mean()),
        (nn.L1Loss(), "L1Loss", lambda x, y: (x - y).abs().mean()),
        (lambda model, batch: 0.25, "metric", lambda x, y: 0.25),
        (count_half, "count_half", lambda x, y: 0.5),
        (None, "validation_loss", lambda x, y: (x - y).square().mean()),
    ],
)
def test_the_metric_is_that_of_the_held_out_samples_under_its_own_name(
    tmp_path: Path, metric: Any, name: str, value: Callable[[Tensor, Tensor], float]
) -> None:
    held_out = (X[:50] + 1, Y[:50])
    run = train(tmp_path / "run", metric=metric, validation=held_out)
    assert run.summary.metric == name
    with torch.no_grad():
        expected = float(value(run.model()(held_out[0]), held_out[1]))
    assert run.summary.value == pytest.approx(expected, rel=1e-5)
    assert (run.summary.target, run.summary.target_reached) == (None, False)


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        (
            lambda model, batch: model(batch[0]),
            "metric 'metric' returned a tensor of shape (24, 1). Allowed: one number",
        ),
        (lambda model, batch: None, "metric 'metric' returned a NoneType. Allowed: one number"),
        (lambda model, batch: (0.5, 3), "metric 'metric' returned a tuple"),
        ("accuracy", "metric is a str. Allowed: a function (model, batch) -> number, or None"),
    ],
)
def test_a_metric_that_is_no_number_is_refused(tmp_path: Path, metric: Any, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        train(tmp_path / "run", metric=metric)
    assert said in str(raised.value)


def test_a_module_that_was_given_is_where_training_begins_and_stays_as_it_was(tmp_path: Path) -> None:
    mine = Net()
    before = {name: value.clone() for name, value in mine.state_dict().items()}
    run = train(tmp_path / "run", model=mine, lr=1e-12)
    trained = run.model()
    assert trained is not mine
    assert isinstance(trained, Net)
    for name, value in before.items():
        assert torch.equal(mine.state_dict()[name], value)
        torch.testing.assert_close(trained.state_dict()[name], value, rtol=0, atol=1e-9)
    assert mine.training
    assert mine.weight.grad is None
    further = train(tmp_path / "further", model=trained, epochs=2)
    assert further.summary.value < run.summary.value


def test_classes_functions_modules_and_their_names_in_files_make_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nets.py").write_text(
        "from torch import nn\n"
        "from torch.nn import functional\n"
        "class Net(nn.Linear):\n"
        "    def __init__(self):\n"
        "        super().__init__(3, 1)\n"
        "def make():\n"
        "    return Net()\n"
        "def loss(model, batch):\n"
        "    return functional.mse_loss(model(batch[0]), batch[1])\n"
    )
    given: list[dict[str, Any]] = [
        {"model": Net},
        {"model": lambda: nn.Linear(3, 1)},
        {"model": "nets.py:Net"},
        {"model": "nets.py:make", "loss": "nets.py:loss"},
    ]
    hashes = {train(tmp_path / f"run{number}", **each).summary.weights_sha256 for number, each in enumerate(given)}
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (lambda: 3, "model() returned a int. Allowed: an nn.Module, or a class or function that makes one"),
        (3, "model is a int. Allowed: something to call, or file.py:name of it"),
        ("Net", "model is a str. Allowed: something to call, or file.py:name of it"),
        ("no.py:Net", "there is no file"),
        ("math:pi", "model is a float. Allowed: a module"),
        (nn.Linear, "model Linear can't be called without arguments: missing a required argument: 'in_features'"),
        (lambda: nn.Linear(3, 1, device="meta"), "the model's weights are on the meta device"),
        (nn.Flatten, "the model has no trainable weights"),
        (lambda: Net().requires_grad_(False), "the model has no trainable weights"),
    ],
)
def test_a_model_that_is_none_is_refused_with_what_is_allowed(tmp_path: Path, model: Any, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        train(tmp_path / "run", model=model)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mode": "up"}, "mode = 'up'. Allowed: min, max"),
        ({"name": "a/b"}, "name = 'a/b'. Allowed: text without slashes"),
        ({"name": ""}, "name = ''"),
        ({"validation": 0}, "validation = 0.0. Allowed: a share of the samples between 0 and 1, or samples"),
        ({"validation": 1.0}, "validation = 1.0. Allowed"),
        ({"validation": float("nan")}, "validation = nan. Allowed"),
        ({"data": (X[:1], Y[:1])}, "1 samples with validation = 0.2 leave one side empty"),
        ({"batch_size": 1000}, "Use data.batch=96 or less"),
        ({"lr": 0.1, "optimizer": lambda parameters: torch.optim.SGD(parameters)}, "own rates. Set it there"),
        ({"optimizer": torch.optim.SGD([torch.zeros(1)])}, "optimizer is a SGD that is made already"),
        ({"settings": {"schedul.name": "cosine"}}, "Did you mean 'schedule'?"),
    ],
)
def test_what_does_not_hold_together_is_refused_before_anything_is_written(
    tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        train(tmp_path / "run", **given)
    assert said in str(raised.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("what", "given", "said"),
    [
        (None, {}, "dx.run was given nothing to train. Allowed: a task, as in dx.run('protein'), or all of model="),
        (None, {"model": Net, "loss": squared_error}, "dx.run was given model, loss. Allowed"),
        (3, {}, "3 is a int, which is no task: it has no name, target, data, model, loss, evaluate"),
        ("protein", {"data": X, "loss": squared_error}, "both 'protein' and data and loss="),
        ("protien", {}, "unknown task 'protien'. Did you mean 'protein'?"),
        ("no.toml", {}, "no.toml can't be read: No such file"),
        ("no.py:task", {}, "there is no file"),
        ("math:pi", {}, "'math:pi' is a float, which is no task: it has no name, target, data, model, loss, evaluate"),
        ("math:sqrt", {}, "'math:sqrt' can't be called without arguments"),
    ],
)
def test_what_can_not_be_run_is_answered_with_what_can(what: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        dx.run(what, **given)
    assert said in str(raised.value)


def test_held_out_samples_are_always_the_same_and_go_by_name_where_there_are_names() -> None:
    def held_out(**given: Any) -> list[str]:
        splits = task(model=Net, loss=squared_error, **given).data()
        assert len(splits.train) + len(splits.validation) == len(X)
        return [splits.validation.name(index) for index in range(len(splits.validation))]

    assert held_out(data=(X, Y)) == held_out(data=(X.clone(), Y.clone()))
    assert len(held_out(data=(X, Y), validation=0.5)) == 60
    names = [f"frame{number}" for number in range(len(X))]
    named = held_out(data=ArraySource({"x": X}, names=names))
    turned = held_out(data=ArraySource({"x": X.flip(0)}, names=names[::-1]))
    assert sorted(named) == sorted(turned)  # wherever a sample stands


def test_a_task_is_a_value_with_functions_of_a_batch_as_users_nest_it() -> None:
    seen: list[Any] = []

    def loss(model: nn.Module, batch: Any) -> Tensor:
        seen.append(batch)
        result: Tensor = model(batch["in"][0]).mean()
        return result

    items: Any = [{"in": (row, 1), "out": 2.0} for row in X]
    own = task(model=Net, data=items, loss=loss)
    assert isinstance(own, OwnTask)
    assert own.target == dx.Target(metric="validation_loss")
    batch: Batch = {"in.0": X[:4], "in.1": torch.ones(4), "out": torch.ones(4)}
    own.loss(own.model(), batch)
    assert torch.equal(seen[0]["in"][0], X[:4])
    assert isinstance(task(model=Net, data=(X, Y), loss=nn.MSELoss()).objective, Criterion)


class Weighted(nn.Module):
    """A loss with a weight of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return (self.weight * (outputs - labels).square()).mean()


class Pair(nn.Linear):
    """Returns more than a tensor."""

    def __init__(self) -> None:
        super().__init__(2, 1)

    def forward(self, x: Tensor) -> Any:
        return super().forward(x), None


POINTS = torch.rand(60, 2, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"loss": nn.MSELoss}, r"is the class MSELoss.*Write loss=MSELoss\(\)"),
        ({"loss": Weighted()}, "trainable weights of its own"),
        ({"loss": lambda outputs, labels: (outputs - labels).mean()}, r"It is called as loss\(model, batch\)"),
        ({"model": Pair}, "the model returned a tuple"),
        ({"target": "0.1"}, "target = '0.1'"),
        ({"target": float("nan")}, "target = nan"),
        ({"mode": "max"}, "mode = 'max' without a metric"),
        ({"validation": None}, "validation = None"),
        ({"data": [POINTS, POINTS[:, :1]]}, r"data=\(x, y\)"),
    ],
)
def test_habits_from_elsewhere_are_answered_with_what_to_write(
    tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    usual = {"model": lambda: nn.Linear(2, 1), "data": (POINTS, POINTS[:, :1]), "loss": functional.mse_loss}
    with pytest.raises(UsageError, match=said):
        dx.run(**{**usual, **given}, out=tmp_path / "run", verbosity="quiet", batch_size=10)


def test_a_run_trains_also_where_gradients_are_off_and_with_nested_arrays_and_partial_losses(tmp_path: Path) -> None:
    given: dict[str, Any] = {"epochs": 1, "batch_size": 10, "verbosity": "quiet", "page": False, "optimizer": "Adam"}
    loss = partial(functional.mse_loss, reduction="mean")
    with torch.inference_mode():
        dx.run(model=lambda: nn.Linear(2, 1), data=(POINTS, POINTS[:, :1]), loss=loss, out=tmp_path / "a", **given)
    nested = dx.run(
        model=lambda: nn.Linear(2, 1),
        data=((POINTS, POINTS), {"y": POINTS[:, :1]}),
        loss=lambda model, batch: (model(batch[0][1]) - batch[1]["y"]).square().mean(),
        out=tmp_path / "b",
        **given,
    )
    assert nested.summary.epochs == 1


class Lazy:
    """Opens its file with the first item, as data sets of HDF5 files do; an open file goes to no other process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: h5py.File | None = None

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if self.file is None:
            self.file = h5py.File(self.path)
        return torch.from_numpy(self.file["x"][index]), torch.zeros(1)


class Locked(nn.Linear):
    """A module that can't be sent anywhere, nor copied."""

    def __init__(self) -> None:
        super().__init__(2, 1)
        self.lock = threading.Lock()


def test_a_data_set_that_opens_its_file_late_trains_on_any_number_of_ranks(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = POINTS.numpy()
    given: dict[str, Any] = {"loss": functional.mse_loss, "epochs": 1, "batch_size": 5, "verbosity": "quiet"}
    for ranks in (1, 2):
        out = tmp_path / f"run{ranks}"
        dx.run(model=lambda: nn.Linear(2, 1), data=Lazy(tmp_path / "x.h5"), ranks=ranks, out=out, page=False, **given)
        assert (out / "objects.pkl").exists()


def test_what_can_not_leave_this_process_trains_here_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = threading.Lock()

    def make() -> nn.Module:
        with lock:
            return nn.Linear(2, 1)

    given: dict[str, Any] = {"data": (POINTS, POINTS[:, :1]), "loss": functional.mse_loss, "batch_size": 10}
    run = dx.run(model=make, **given, epochs=1, page=False, out=tmp_path / "alone")
    assert (
        "this run can't be resumed, and dx.load needs model=: 'network' of task can't be sent"
        in capsys.readouterr().err
    )
    assert dx.load(run.path, model=make()).get_parameter("weight").shape == (1, 2)
    with pytest.raises(UsageError, match="give a function of that file that makes it"):
        dx.run(model=make, **given, ranks=2, out=tmp_path / "two")
    with pytest.raises(UsageError, match=r"the module Locked can't be copied.*Give its class"):
        dx.run(model=Locked(), **given, verbosity="quiet", out=tmp_path / "copied")
    assert not (tmp_path / "two").exists()
