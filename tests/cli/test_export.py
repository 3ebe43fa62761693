"""`deepex export`: weights as any tool of the field reads them."""

from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch
from torch import nn

import deepex as dx
from tests.conftest import Command


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dx.Run:
    """Two epochs, of which the metric, which only falls where it counts down, has the first as its best."""
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    values = iter(range(100))
    return dx.run(
        model=lambda: nn.Linear(3, 1), data=(x, x[:, :1]), loss=nn.MSELoss(), metric=lambda model, batch: next(values),
        epochs=2, batch_size=10, out=tmp_path_factory.mktemp("export") / "run", verbosity="quiet", page=False,
    )  # fmt: skip


def test_the_last_and_the_best_weights_are_written_by_name(run: dx.Run, deepex: Command, tmp_path: Path) -> None:
    for words, which, epochs in (((), "last", "2"), (("--best",), "best", "1")):
        done = deepex("export", str(run.path), "weights.safetensors", *words)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "weights.safetensors\n"
        weights = safetensors.torch.load_file(tmp_path / "weights.safetensors")
        expected = run.state_dict(which)  # type: ignore[arg-type]  # either of both
        assert weights.keys() == expected.keys() == {"weight", "bias"}
        assert all(torch.equal(weights[name], expected[name]) for name in weights)
        with safetensors.safe_open(tmp_path / "weights.safetensors", "pt") as file:
            assert file.metadata() == {"format": "pt", "epochs": epochs}
    assert not torch.equal(run.state_dict("last")["weight"], run.state_dict("best")["weight"])


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("weights.pt", "weights.pt is no name for weights. Allowed: a file that ends in .safetensors"),
        ("nowhere/weights.safetensors", "FILE nowhere/weights.safetensors can't be written: No such file"),
        ("folder.safetensors", "FILE folder.safetensors is a folder"),
        (".", "FILE . is a folder"),
    ],
)
def test_a_file_that_can_not_be_written_is_refused(
    run: dx.Run, deepex: Command, tmp_path: Path, out: str, said: str
) -> None:
    (tmp_path / "folder.safetensors").mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    done = deepex("export", str(run.path), out)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_what_is_no_run_or_has_no_weights_is_refused(deepex: Command, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    done = deepex("export", "run", "weights.safetensors")
    assert done.returncode == 2
    assert "run is not a run directory: it has no recipe.toml" in done.stderr
    (tmp_path / "run" / "recipe.toml").touch()
    done = deepex("export", "run", "weights.safetensors")
    assert done.returncode == 2
    assert "run has no weights yet: they are written with each checkpoint" in done.stderr
    assert not (tmp_path / "weights.safetensors").exists()
