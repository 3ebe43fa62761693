"""Trained models back in the process that trained them: the right weights, whole, and what is told of wrong ones."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import deepex as dx
from deepex.deploy.load import export_weights
from deepex.errors import ConfigError, Interrupted, RunFolderError, UsageError
from deepex.report import write_report
from deepex.train.checkpoint import latest
from tests.deploy.nets import write_nets

BEST, EPOCHS = 3, 6


class Scale(nn.Module):
    """One weight on its way from 0 to 9, half a unit an epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def approach(model: nn.Module, batch: Any) -> Tensor:
    return nn.functional.mse_loss(model(batch), 9 * batch)


def passing(model: nn.Module, batch: Any) -> Tensor:
    """How far the weight is from where it passes in the third epoch."""
    return nn.functional.mse_loss(model(batch), 1.5 * batch)


def train(out: Path, **given: Any) -> dx.Run:
    chosen: dict[str, Any] = {"model": Scale, "loss": approach, "metric": passing, "epochs": EPOCHS}
    return dx.run(
        **(chosen | given), data=torch.ones(50, 1), validation=torch.ones(7, 1), batch_size=10, lr=0.1, out=out,
        verbosity="quiet", page=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> dx.Run:
    return train(tmp_path_factory.mktemp("passed") / "run")


def judge(model: nn.Module) -> float:
    with torch.no_grad():
        return float(passing(model, torch.ones(7, 1)))


def test_the_last_and_the_best_weights_have_the_values_of_their_epochs(passed: dx.Run) -> None:
    values = [row.value for row in passed.metrics]
    assert values.index(min(values)) + 1 == BEST < len(values)
    last, best = passed.model(), passed.model("best")
    assert (judge(last), judge(best)) == (values[-1], values[BEST - 1])
    assert not last.training
    assert not best.training
    assert passed.state_dict()["weight"] != passed.state_dict("best")["weight"]
    reached = train(passed.path.parent / "max", metric=lambda model, batch: -passing(model, batch), mode="max")
    assert torch.equal(reached.state_dict("best")["weight"], passed.state_dict("best")["weight"])


def test_a_run_that_was_stopped_and_resumed_has_the_same_models(passed: dx.Run, tmp_path: Path) -> None:
    calls = 0

    def interrupted(model: nn.Module, batch: Any) -> Tensor:
        nonlocal calls
        calls += model.training
        if calls == 16 + 5 * BEST + 7:  # behind the best epoch
            os.kill(os.getpid(), signal.SIGINT)
        return approach(model, batch)

    with pytest.raises(Interrupted):
        train(tmp_path / "run", loss=interrupted)
    stopped = dx.Run(tmp_path / "run")
    assert judge(stopped.model("best")) == passed.metrics[BEST - 1].value
    assert passed.metrics[BEST].value < judge(stopped.model()) < passed.metrics[BEST + 1].value  # in mid-epoch
    resumed = dx.resume_run(tmp_path / "run", verbosity="quiet", page=False)
    assert torch.equal(resumed.state_dict()["weight"], passed.state_dict()["weight"])
    assert torch.equal(resumed.state_dict("best")["weight"], passed.state_dict("best")["weight"])


def test_weights_go_into_a_module_that_is_given_and_the_caller_s_noise_is_left_alone(passed: dx.Run) -> None:
    mine, state = Scale(), torch.get_rng_state()
    found = dx.load(passed.path, model=mine, weights="best")
    assert found is mine
    assert judge(dx.load(passed.path, model=Scale)) == passed.summary.value
    passed.model()
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(ConfigError, match=r"model is a int\. Allowed: an nn\.Module, or what makes one"):
        dx.load(passed.path, model=lambda: 3)  # type: ignore[arg-type]  # as a user may
    with pytest.raises(UsageError, match=r"unknown choice 'bset'\. Did you mean 'best'\?"):
        passed.model("bset")  # type: ignore[arg-type]  # as a user may


class Renamed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.zeros(1))


class Wider(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))


def test_code_that_has_changed_since_is_told_by_the_weights_that_differ(passed: dx.Run) -> None:
    with pytest.raises(RunFolderError) as raised:
        dx.load(passed.path, model=Renamed)
    said = str(raised.value)
    assert f"the module has factor, which {passed.path} has not; {passed.path} has weight, which the module" in said
    assert "Has its code changed since?" in said
    with pytest.raises(RunFolderError, match=r"weight is \(1,\) there and \(3,\) in the module"):
        dx.load(passed.path, model=Wider)


def test_a_file_of_weights_that_is_damaged_or_missing_is_named(passed: dx.Run, tmp_path: Path) -> None:
    shutil.copytree(passed.path, tmp_path / "run")
    run = dx.Run(tmp_path / "run")
    checkpoint = latest(run.folder)
    assert checkpoint is not None
    file = checkpoint / "best.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    with pytest.raises(RunFolderError, match=r"best\.safetensors is damaged or missing\. Bring it back from a copy"):
        run.model("best")
    file.unlink()
    with pytest.raises(RunFolderError, match=r"best\.safetensors is damaged or missing"):
        run.state_dict("best")
    assert judge(run.model()) == passed.summary.value
    shutil.rmtree(run.folder.checkpoints)
    with pytest.raises(RunFolderError, match="has no weights yet: they are written with each checkpoint"):
        dx.load(run.path)


def test_who_gives_the_module_or_looks_loads_no_code_of_the_run(passed: dx.Run, tmp_path: Path) -> None:
    shutil.copytree(passed.path, tmp_path / "run")
    (tmp_path / "run/objects.pkl").write_bytes(f"cos\nmkdir\n(S'{tmp_path}/loaded'\ntR.".encode())  # as a stranger may
    run = dx.Run(tmp_path / "run")
    assert judge(dx.load(run.path, model=Scale)) == run.summary.value
    assert run.state_dict("best").keys() == {"weight"}
    export_weights(run.folder, tmp_path / "weights.safetensors")
    write_report(run.folder)
    assert not (tmp_path / "loaded").exists()


def test_a_run_whose_metric_is_never_a_number_has_last_weights_and_no_best(tmp_path: Path) -> None:
    run = train(tmp_path / "run", metric=lambda model, batch: float("nan"), epochs=1)
    assert run.state_dict()["weight"].item() > 0
    with pytest.raises(RunFolderError, match=r"has no best weights\. Take the last"):
        run.model("best")


def test_all_that_a_module_holds_comes_back_and_computes_the_same_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_nets(tmp_path)
    run = dx.run(
        model="nets.py:Net", data="nets.py:data", loss="nets.py:loss", epochs=2, batch_size=16, out="run",
        settings={"layout": "channels_last"}, verbosity="quiet", page=False,
    )  # fmt: skip
    model, weights = run.model(), run.state_dict()
    assert weights.keys() == model.state_dict().keys() >= {"encode.weight", "decode.weight", "frozen.weight"}
    assert "scratch" not in weights
    assert model.get_parameter("decode.weight") is model.get_parameter("encode.weight")
    assert not model.get_parameter("frozen.weight").requires_grad
    steps = sum(row.steps for row in run.metrics)
    assert model.get_buffer("norm.num_batches_tracked") >= steps
    assert model.get_buffer("batches").dtype == torch.int64
    x = torch.rand(9, 1, 4, 4)
    with torch.no_grad():
        expected = model(x)
        assert expected.std() > 0
        own = type(model)()
        own.load_state_dict(weights)
        assert torch.equal(own.eval()(x), expected)
        assert torch.equal(torch.export.export(model, (x,)).module()(x), expected)
