"""deepex in a real Jupyter kernel: what cells show, also when they are interrupted, fail, or run several ranks."""

from collections.abc import Iterator

import pytest

from tests.report.notebook.kernel import Notebook, find, open_notebook, read_error, read_printed

SET_UP = """
import pathlib, signal, time
import psutil
import torch
from torch import nn
import deepex as dx

x = torch.randn(600, 4, generator=torch.Generator().manual_seed(0))
data = {"x": x, "y": x @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]])}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        return self.layers(x)

def loss(model, batch):
    return (model(batch["x"]) - batch["y"]).square().mean()

def slow_loss(model, batch):
    time.sleep(0.0 if pathlib.Path("fast").exists() else 0.05)
    return loss(model, batch)

def train(epochs, resume=None):
    with dx.start(resume=resume, page=False) as run:
        model = Net()
        replicated = dx.Replicated(model, torch.optim.Adam(model.parameters()))
        for epoch in run.epochs(epochs):
            for batch in dx.feed(data, batch_size=50):
                with replicated.step() as step:
                    step.backward(slow_loss(model, batch))
            print(f"epoch {epoch} on rank {run.world.rank}")
    return run.path

handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
"""
LEFT_BEHIND = """
assert handlers == {number: signal.getsignal(number) for number in handlers}
print([child.cmdline() for child in psutil.Process().children(recursive=True)])
"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    with open_notebook(tmp_path_factory.mktemp("notebook")) as opened:
        assert opened.run(SET_UP) == []
        yield opened


def test_runs_on_one_rank_and_on_two_are_one_output_each_that_ends_as_their_summary(notebook: Notebook) -> None:
    for ranks, page in ((1, False), (2, True)):
        words = f"epochs=3, target=1e-9, ranks={ranks}, name='<plane>', page={page}"
        outputs = notebook.run(f"run = dx.run(model=Net, data=data, loss=loss, {words})\nrun")
        assert [output["output_type"] for output in outputs] == ["display_data", "execute_result"]
        assert notebook.num_updates >= 1
        shown, result = outputs[0]["data"], outputs[1]["data"]
        assert list(result) == ["text/plain"]  # what the run shows of itself stands above it already
        assert f"{ranks} rank" in shown["text/plain"]
        assert "after 3 epochs" in shown["text/plain"]
        for part in ("complete", "&lt;plane&gt;", "<svg", "forward", "run.model()"):
            assert part in shown["text/html"]
        assert ("report.html" in shown["text/html"]) == page
        assert "<plane>" not in shown["text/html"]
        (again,) = notebook.run("run")
        assert again["data"]["text/html"] == shown["text/html"]
        (predicted,) = notebook.run("tuple(run.model()(x[:2]).shape)")
        assert predicted["data"]["text/plain"] == "(2, 1)"


def test_a_run_that_is_asked_to_print_lines_prints_them(notebook: Notebook) -> None:
    outputs = notebook.run("_ = dx.run(model=Net, data=data, loss=loss, epochs=2, page=False, verbosity='lines')")
    assert find(outputs, "display_data") == []
    assert "epoch   2/2" in read_printed(outputs)


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_interrupted_run_says_how_to_go_on_and_the_next_cell_does(notebook: Notebook, ranks: int) -> None:
    call = f"dx.run(model=Net, data=data, loss=slow_loss, epochs=90, ranks={ranks}, out='stopped{ranks}', page=False)"
    outputs = notebook.run(f"pathlib.Path('fast').unlink(missing_ok=True)\nrun = {call}", interrupt_at="running, epoch")
    (shown,) = find(outputs, "display_data")
    assert "● stopped" in shown["data"]["text/html"]
    said = read_error(outputs)
    assert said.startswith("deepex: stopped")
    assert said.endswith(f'Go on with: deepex resume stopped{ranks}, or here: dx.resume_run("stopped{ranks}")')
    assert len(said.splitlines()) == 1
    assert read_printed(notebook.run(LEFT_BEHIND)) == "[]\n"

    (unfinished,) = notebook.run(f"dx.Run('stopped{ranks}')")
    assert f"dx.resume_run(&quot;stopped{ranks}&quot;)" in unfinished["data"]["text/html"]
    again = notebook.run(f"pathlib.Path('fast').touch()\nrun = dx.resume_run('stopped{ranks}', page=False)")
    assert [output["output_type"] for output in again] == ["display_data"]
    assert "after 90 epochs" in again[0]["data"]["text/plain"]
    assert notebook.run("assert run.summary.epochs == 90; run.model()(x)") != []


def test_a_loop_in_a_cell_and_one_on_two_ranks_are_shown_and_stopped_alike(notebook: Notebook) -> None:
    outputs = notebook.run("pathlib.Path('fast').touch()\npath = train(2)")
    (shown,) = find(outputs, "display_data")
    assert "after 2 epochs" in shown["data"]["text/plain"]
    assert "epoch 1 on rank 0\n" in read_printed(outputs)

    stopped = notebook.run(
        "pathlib.Path('fast').unlink()\ndx.launch(train, 90, ranks=2)", interrupt_at="running, epoch"
    )
    (shown,) = find(stopped, "display_data")
    assert "loop, 2 ranks" in shown["data"]["text/plain"]
    assert "● stopped" in shown["data"]["text/html"]
    said = read_error(stopped)
    assert said.startswith("deepex: stopped ")
    assert read_printed(notebook.run(LEFT_BEHIND)) == "[]\n"

    path = said.partition('dx.start(resume="')[2].partition('"')[0]
    outputs = notebook.run(f"pathlib.Path('fast').touch()\ndx.launch(train, 90, '{path}', ranks=2)")
    assert {"epoch 89 on rank 0", "epoch 89 on rank 1"} <= set(read_printed(outputs).splitlines())
    (result,) = find(outputs, "execute_result")
    assert result["data"]["text/plain"] == repr(path)
    (shown,) = find(outputs, "display_data")
    assert "after 90 epochs" in shown["data"]["text/plain"]


def test_errors_are_told_once_with_the_cell_s_own_line(notebook: Notebook) -> None:
    broken = """\
def broken_loss(model, batch):
    raise KeyError("no such thing")  # mine
dx.run(model=Net, data=data, loss=broken_loss, ranks=2)"""
    outputs = notebook.run(broken)
    said = read_error(outputs)
    assert said.startswith("deepex: error: rank ")
    assert said.count('raise KeyError("no such thing")  # mine') == 1
    assert ", line 2, in broken_loss" in said
    assert "Cell In[" in said
    assert "deepex/" not in said
    (shown,) = find(outputs, "display_data")
    assert "● failed" in shown["data"]["text/html"]

    (alone,) = find(notebook.run("dx.run(model=Net, data=data, loss=broken_loss)"), "error")
    assert len(alone["traceback"]) < 8  # the cell, dx.run and the user's own lines
    assert read_error(notebook.run("dx.run('protin')")).startswith("deepex: error: unknown task 'protin'.")


def test_a_class_that_is_redefined_and_a_run_on_a_thread_are_what_the_cell_says(notebook: Notebook) -> None:
    program = """
Kept = Net
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.only = nn.Linear(4, 1)

    def forward(self, x):
        return self.only(x)

found = []
def work():
    found.append(dx.run(model=Net, data=data, loss=loss, epochs=2, ranks=2, page=False))
import threading
thread = threading.Thread(target=work)
thread.start()
thread.join()
Net = Kept
print(sorted(found[0].model().state_dict()), sorted(dx.load(found[0].path).state_dict()))"""
    outputs = notebook.run(program)
    assert read_printed(outputs) == "['only.bias', 'only.weight'] ['only.bias', 'only.weight']\n"
    assert len(find(outputs, "display_data")) == 1


def test_a_study_is_one_output_that_ends_as_what_it_found(notebook: Notebook) -> None:
    task = "dx.task(model=Net, data=data, loss=loss, target=1e-9, name='plane')"
    outputs = notebook.run(f"dx.run_study({task}, ranks=(1,), repeats=1, changes={{'epochs': 2}})")
    assert [output["output_type"] for output in outputs] == ["display_data", "execute_result"]
    assert notebook.num_updates >= 2
    shown = outputs[0]["data"]
    assert shown["text/plain"].endswith("1 of 1 runs done")
    for part in ("study of plane", "● complete", "1 rank", "report.html"):
        assert part in shown["text/html"]
