"""Parts of a user's own, each in a file outside of the package: as `deepex run` and as `dx.run` take them.

Each is stopped by a Ctrl-C and resumed somewhere, and each is refused in words where it is wrong.
"""

import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import deepex as dx
from deepex.api import build_plan
from deepex.cli.app import run_command
from deepex.data.packing.packed import PackedSource
from deepex.data.source import read_all
from deepex.data.sources import open_source
from deepex.errors import Interrupted
from deepex.reference import load_object
from deepex.study import StudyFolder
from tests.tasks.test_fashion import write_stripes

FILES = Path(__file__).parent / "files" / "own"
SHORT = ("stop.epochs=2", "data.batch=8", "--no-page", "--quiet")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a space in its name, in which the user's files stand and commands are called."""
    folder = tmp_path / "my code"
    shutil.copytree(FILES, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield folder
    for name in [name for name, module in sys.modules.items() if str(folder) in str(getattr(module, "__file__", ""))]:
        del sys.modules[name]


def call(*words: str) -> int:
    """`deepex WORDS`, in this process."""
    return run_command([*words])


def hash_of(run: Path | str) -> str:
    return dx.Run(run).summary.weights_sha256


def settings(**more: Any) -> dict[str, Any]:
    """What `SHORT` says, for Python."""
    return {"epochs": 2, "batch_size": 8, "verbosity": "quiet", "page": False, **more}


def interrupt(home: Path) -> None:
    """Let the next run of the task be stopped."""
    (home / "interrupt").touch()
    for name in [name for name in sys.modules if name.startswith("deepex_file_kepler")]:
        del sys.modules[name]  # it counts its steps from its import


def write_points(home: Path) -> None:
    lines = [f"planet{number} {number / 50} {number / 25}" for number in range(400)]
    (home / "points.txt").write_text("\n".join(lines))


def test_a_task(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(home)
    assert call("run", "kepler.py:Kepler", "task.degree=3", *SHORT, "--out", "stopped") == 75
    assert call("resume", "stopped", "--no-page", "--quiet") == 0
    recipe = tomllib.loads((home / "stopped/recipe.toml").read_text())
    assert recipe["code"] == f"{home}/kepler.py:Kepler"
    assert recipe["task"] == {"name": "kepler", "degree": 3, "noise": 0.01}
    assert not (home / "stopped/objects.pkl").exists()  # its settings say all of it
    kepler = load_object("kepler.py:Kepler")
    dx.run("kepler.py:Kepler", **settings(settings={"task.degree": 3}), out="by_name")
    dx.run(kepler(degree=3), **settings(), out="by_object")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert call("run", str(home / "by_object/recipe.toml"), "--no-page", "--quiet", "--out", "again") == 0
    runs = [home / "stopped", home / "by_name", home / "by_object", elsewhere / "again"]
    assert len({hash_of(run) for run in runs}) == 1
    assert dx.load(home / "stopped").get_parameter("weight").shape == (1, 3)
    assert call("report", "again") == 0
    assert "kepler on 1 rank" in (elsewhere / "again/report.html").read_text()


def test_a_module_its_data_and_its_loss(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("task.validation_share=0.5", "--ranks", "2", *SHORT)
    assert call("run", "plane.py:plane", *words, "--out", "by_name") == 0
    assert not (home / "by_name/objects.pkl").exists()
    dx.run(load_object("plane.py:plane"), **settings(ranks=2, settings={"task.validation_share": 0.5}), out="by_object")
    assert hash_of("by_name") == hash_of("by_object")
    assert call("run", "plane.py:half", *SHORT, "--out", "half") == 0
    monkeypatch.chdir(tmp_path)
    weight = dx.load(home / "half").get_parameter("weight")
    assert weight.shape == (1, 3)
    assert dx.Run(home / "half").summary.precision == "bf16"
    assert dx.Run(home / "by_name").metrics[0].samples == 240


def test_a_study_of_a_task_over_strategies(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fixed, sync = ("task.degree=3", "stop.epochs=2", "data.batch=8", "stop.target=0.05"), "every.py:Every:2,local:2"
    words = ("--ranks", "2", "--repeats", "1", "--sync", sync, "--quiet", "--out", "study")
    assert call("study", "kepler.py:Kepler", *fixed, *words) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "page: study/report.html"
    runs = [dx.Run(path.parent) for path in sorted(home.glob("study/runs/*/summary.json"))]
    assert sorted(run.summary.sync for run in runs) == sorted([f"{home}/every.py:Every:2", "local:2"])
    assert len({run.summary.weights_sha256 for run in runs}) == 1
    recipe = dx.build_recipe("kepler.py:Kepler", settings=fixed)
    plan = build_plan(recipe, ranks=(2,), sync=sync.split(","), repeats=1)
    StudyFolder.open(home / "study").check(recipe, plan)  # it may go on


def test_a_strategy(home: Path) -> None:
    ranks = ("--ranks", "2")
    interrupt(home)
    assert call("run", "kepler.py:Kepler", *SHORT, *ranks, "--sync", "every.py:Every:4+bf16", "--out", "stopped") == 75
    assert call("resume", "stopped", "--no-page", "--quiet") == 0
    recipe = tomllib.loads((home / "stopped/recipe.toml").read_text())
    assert recipe["sync"] == f"{home}/every.py:Every:4+bf16"
    every = load_object("every.py:Every")
    dx.run("kepler.py:Kepler", **settings(ranks=2, sync="every.py:Every:4+bf16"), out="whole")
    assert hash_of("stopped") == hash_of("whole")
    dx.run("kepler.py:Kepler", **settings(ranks=2, sync=every), out="as_class")
    dx.run("kepler.py:Kepler", **settings(ranks=2, sync=every(4)), out="as_object")
    dx.run("kepler.py:Kepler", **settings(ranks=2, sync="every.py:fours"), out="as_object_of_the_file")
    dx.run("kepler.py:Kepler", **settings(ranks=2, sync="local:4"), out="ours")
    hashes = {name: hash_of(name) for name in ("whole", "as_class", "as_object", "as_object_of_the_file", "ours")}
    assert hashes["as_object"] == hashes["as_object_of_the_file"] == hashes["ours"]
    assert len(set(hashes.values())) == 3
    assert dx.Run("as_class").summary.sync == f"{home}/every.py:Every"
    assert call("run", "kepler.py:Kepler", *SHORT, "--sync", "every.py:Every:4+bf16") == 0
    assert [path.parent.name[18:-5] for path in home.glob("runs/*/recipe.toml")] == ["kepler_every.py-Every-4+bf16_1r"]


def test_an_optimiser(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = ("optimiser.name=rules.py:SignSGD", "optimiser.momentum=0.5", "optimiser.learning_rate=0.05")
    interrupt(home)
    assert call("run", "kepler.py:Kepler", *own, *SHORT, "--out", "stopped") == 75
    monkeypatch.chdir(tmp_path)
    assert call("resume", str(home / "stopped"), "--no-page", "--quiet") == 0
    monkeypatch.chdir(home)
    sign = load_object("rules.py:SignSGD")
    for name, optimizer in (("whole", sign), ("by_name", "rules.py:SignSGD")):
        chosen = settings(settings={"optimiser.momentum": 0.5}, optimizer=optimizer, lr=0.05)
        dx.run("kepler.py:Kepler", **chosen, out=name)
    dx.run("kepler.py:Kepler", **settings(optimizer=sign, lr=0.05), out="other_momentum")
    assert hash_of("stopped") == hash_of("whole") == hash_of("by_name") != hash_of("other_momentum")
    assert call("run", "kepler.py:Kepler", "optimiser.name=rules.py:make_adagrad", *SHORT, "--out", "adagrad") == 0
    chosen = settings(optimizer=lambda parameters: torch.optim.Adagrad(parameters, lr=0.05))
    dx.run("kepler.py:Kepler", **chosen, out="same")
    assert hash_of("adagrad") == hash_of("same")


def test_a_reader(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_points(home)
    reader = ("--reader", "points.py:Reader")
    assert call("data", "pack", "points.txt", "points.h5", "scale=2", *reader, "--ranks", "2") == 0
    packed = PackedSource(Path("points.h5"))
    values = read_all(packed)
    names = [packed.name(index) for index in range(400)]
    assert sorted(names) == sorted(f"planet{number}" for number in range(400))
    place = names.index("planet25")
    assert [float(values[name][place]) for name in ("x", "y")] == [1.0, 2.0]
    assert call("data", "check", "points.txt", *reader) == 0
    assert call("data", "pack", "points.txt", "other.h5", "--reader", "points.py:read_points") == 0
    capsys.readouterr()


@pytest.mark.parametrize("data", ["read by its own reader", "packed by it"])
def test_a_run_on_what_a_reader_reads(home: Path, data: str) -> None:
    write_points(home)
    assert call("data", "pack", "points.txt", "points.h5", "--reader", "points.py:Reader") == 0
    task, ranks = "survey.py:packed" if data == "packed by it" else "survey.py:survey", ("--ranks", "2")
    interrupt(home)
    assert call("run", task, *SHORT, *ranks, "--out", "stopped") == 75
    assert call("resume", "stopped", "--no-page", "--quiet") == 0
    loss = load_object("survey.py:loss")
    source: Any = Path("points.h5") if data == "packed by it" else open_source(Path("points.txt"), "points.py:Reader")
    dx.run(name="survey", model=lambda: nn.Linear(1, 1), data=source, loss=loss, **settings(ranks=2), out="by_object")
    interrupt(home)
    with pytest.raises(Interrupted):
        dx.run(task, **settings(ranks=2), out="python")
    dx.resume_run("python", verbosity="quiet", page=False)
    assert len({hash_of(run) for run in ("stopped", "by_object", "python")}) == 1
    assert dx.Run("python").summary.epochs == 2


def test_a_network(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "images").mkdir()
    write_stripes(home / "images")
    images = (f"task.folder={home / 'images'}", "layout=contiguous")
    (home / "interrupt").touch()
    assert call("run", "fashion", "task.network=nets.py:Small", *images, *SHORT, "--out", "by_name") == 75
    assert call("resume", "by_name", "--no-page", "--quiet") == 0
    small = load_object("nets.py:Small")
    run = dx.run("fashion", model=small, **settings(settings=images), out=home / "by_class")
    assert hash_of("by_name") == hash_of("by_class")
    recipe = tomllib.loads((home / "by_name/recipe.toml").read_text())
    assert recipe["task"]["network"] == f"{home}/nets.py:Small"
    shutil.rmtree(home / "images")
    monkeypatch.chdir(tmp_path)
    x = torch.rand(3, 1, 28, 28)
    with torch.no_grad():
        assert torch.equal(dx.load(home / "by_name")(x), run.model()(x))


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "no task file": (("run", "no.py:Kepler"), "there is no file"),
    "no such task": (("run", "kepler.py:Keppler"), "unknown name 'Keppler'. Did you mean 'Kepler'?"),
    "no task": (("run", "kepler.py:not_a_task"), "is a int, which is no task: it has no name, target, data, model"),
    "wrong setting": (("run", "kepler.py:Kepler", "task.degre=3"), "Did you mean 'task.degree'?"),
    "wrong type": (("run", "kepler.py:Kepler", "task.degree=x"), "task.degree"),
    "no strategy file": (("run", "kepler.py:Kepler", "--sync", "no.py:Every"), "there is no file"),
    "no strategy": (
        ("run", "kepler.py:Kepler", "--sync", "every.py:Half"),
        "Half is no strategy: it has no notes, noise, num_training_ranks, mix_gradients, mix_weights, drain, state",
    ),
    "an argument for none": (
        ("run", "kepler.py:Kepler", "--sync", "every.py:fours:8"),
        "takes no arguments, options or compression. Give its class a classmethod parse",
    ),
    "a wrong argument": (("run", "kepler.py:Kepler", "--sync", "every.py:Every:x"), "H must be a whole number"),
    "a wrong compression": (("run", "kepler.py:Kepler", "--sync", "every.py:Every:2+b16"), "Did you mean 'bf16'?"),
    "no rule file": (("run", "kepler.py:Kepler", "optimiser.name=no.py:Rule"), "there is no file"),
    "no rule": (
        ("run", "kepler.py:Kepler", "optimiser.name=rules.py:NoRule"),
        "made a NoRule, which is no rule: it has no momentum, decouples_decay, update",
    ),
    "a number as a rule": (("run", "kepler.py:Kepler", "optimiser.name=rules.py:number"), "is a int. Allowed: a class"),
    "no reader file": (("data", "pack", "kepler.py", "x.h5", "--reader", "no.py:Reader"), "there is no file"),
    "no such option": (
        ("data", "pack", "kepler.py", "x.h5", "scal=2", "--reader", "points.py:Reader"),
        "unknown key 'scal'. Did you mean 'scale'?",
    ),
    "a wrong option": (
        ("data", "pack", "kepler.py", "x.h5", "scale=0", "--reader", "points.py:Reader"),
        "scale = 0.0. Allowed: numbers above 0",
    ),
    "an option for none": (
        ("data", "pack", "kepler.py", "x.h5", "scale=2", "--reader", "points.py:no_source"),
        "has no Options, so scale=2 can't be set",
    ),
    "no source": (
        ("data", "pack", "kepler.py", "x.h5", "--reader", "points.py:no_source"),
        "returned a list, which is no source: it has no spec, read, name",
    ),
    "no network file": (("run", "fashion", "task.network=no.py:Small"), "there is no file"),
    "no such network": (("run", "fashion", "task.network=smal"), "unknown network 'smal'"),
    "a network of other sizes": (("run", "fashion", "task.network=nets.py:Strange"), "can't be called with shape="),
    "no network": (("run", "fashion", "task.network=nets.py:nothing"), "made a NoneType of shape="),
    "no target": (
        ("study", "kepler.py:Endless", "--ranks", "1"),
        "has no target, so there is nothing to judge its runs",
    ),
    "no study": (("study", "kepler.py:not_a_task", "--ranks", "1"), "is a int, which is no task"),
}


@pytest.mark.parametrize(("words", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_with_what_is_right(
    home: Path, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if words[1] == "fashion":
        (home / "images").mkdir()
        write_stripes(home / "images")
        words = (*words, "task.folder=images", "data.batch=8")
    assert call(*words) == 2
    assert said in capsys.readouterr().err
