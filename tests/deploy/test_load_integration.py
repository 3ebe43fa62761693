"""Trained models in another process, in another folder, without the data, whatever ranks and strategy trained them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import deepex as dx
from tests.deploy.nets import write_nets

LOAD = """
import sys, torch, deepex as dx
run, inputs, out, threads = sys.argv[1:]
torch.set_num_threads(int(threads))  # the same bits need the same threads
models = {which: dx.load(run, weights=which) for which in ("last", "best")}
with torch.no_grad():
    torch.save({which: model(torch.load(inputs)) for which, model in models.items()}, out)
"""
SCRIPT = """
import sys, deepex as dx, torch
from torch import nn

class Mine(nn.Sequential):  # in no module that another process could import
    def __init__(self):
        super().__init__(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))

x = torch.randn(240, 3, generator=torch.Generator().manual_seed(0))
if __name__ == "__main__":
    dx.run(
        model=Mine, data=(x, x.sum(dim=1, keepdim=True)), validation=(x[:60], x[:60].sum(dim=1, keepdim=True)),
        loss=nn.MSELoss(), epochs=2, batch_size=20, ranks=3, sync=sys.argv[1], out="run", verbosity="quiet", page=False,
    )
"""


def load_elsewhere(run: Path, inputs: Tensor, folder: Path) -> dict[str, Tensor]:
    """What the last and the best model of a run compute, in a process of its own in an empty folder."""
    folder.mkdir()
    torch.save(inputs, folder / "inputs.pt")
    command = [sys.executable, "-c", LOAD, str(run), "inputs.pt", "out.pt", str(torch.get_num_threads())]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    outputs: dict[str, Tensor] = torch.load(folder / "out.pt")
    return outputs


def test_a_network_of_a_file_that_two_ranks_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    write_nets(home)
    monkeypatch.chdir(home)
    run = dx.run(
        model="nets.py:Net", data="nets.py:data", loss="nets.py:loss", epochs=2, batch_size=8, ranks=2, sync="local:3",
        out="run", verbosity="quiet", page=False,
    )  # fmt: skip
    (home / "x.npy").unlink()
    x = torch.rand(9, 1, 4, 4)
    found = load_elsewhere(home / "run", x, tmp_path / "elsewhere")
    with torch.no_grad():
        assert torch.equal(found["last"], run.model()(x))
        assert torch.equal(found["best"], run.model("best")(x))
    code = (home / "nets.py").read_text()
    (home / "nets.py").write_text(code.replace("self.head", "self.output"))
    with pytest.raises(dx.DeepexError, match=r"the module has output\.bias, output\.weight, .* its code changed"):
        subprocess_free_load(home / "run")
    (home / "nets.py").write_text(code.replace("nn.Linear(64, 1)", "nn.Linear(64, 2)"))
    with pytest.raises(dx.DeepexError, match=r"head\.weight is \(1, 64\) there and \(2, 64\) in the module"):
        subprocess_free_load(home / "run")
    (home / "nets.py").rename(home / "moved.py")
    with pytest.raises(dx.DeepexError, match=r"there is no file .*nets\.py.* Or give the module yourself: dx\.load\("):
        subprocess_free_load(home / "run")


def subprocess_free_load(run: Path) -> nn.Module:
    """As a process that has not imported the file yet."""
    for name in [name for name in sys.modules if name.startswith("deepex_file_nets")]:
        del sys.modules[name]
    return dx.load(run)


@pytest.mark.parametrize("sync", ["hybrid:3", "lagged"])
def test_a_class_of_a_script_that_three_ranks_trained(sync: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "train.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "train.py", sync], cwd=home, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (home / "train.py").unlink()
    x = torch.randn(240, 3, generator=torch.Generator().manual_seed(0))[:60]
    found = load_elsewhere(home / "run", x, tmp_path / "elsewhere")
    run, y = dx.Run(home / "run"), x.sum(dim=1, keepdim=True)
    values = [row.value for row in run.metrics]
    assert float(nn.functional.mse_loss(found["last"], y)) == pytest.approx(values[-1], rel=1e-5)
    assert float(nn.functional.mse_loss(found["best"], y)) == pytest.approx(min(values), rel=1e-5)


def test_a_task_of_the_table_whose_data_is_gone(chains: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    file = home / "chains.h5"
    shutil.copy(chains, file)
    run = dx.run(
        "protein", settings={"task.file": str(file)}, epochs=1, batch_size=32, out=home / "run", verbosity="quiet",
        page=False,
    )  # fmt: skip
    file.unlink()
    maps = torch.rand(5, 28, 28)
    with torch.no_grad():
        expected = run.model()(maps)
    outputs = load_elsewhere(home / "run", maps, tmp_path / "elsewhere")
    for mine, other in zip(outputs["last"], expected, strict=True):
        assert torch.equal(mine, other)
    assert any(tensor.dim() == 4 for tensor in run.state_dict().values())  # convolutions, by their names
