"""Runs from Python: one call from a module and its data, or a task, to a finished run, its page and its model."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deepex.api.ending import end_stopped_scripts
from deepex.api.recipes import What, build_recipe
from deepex.data import Preparation
from deepex.data.dataset import Given
from deepex.deploy.load import ModelOf, load_model, load_weights
from deepex.errors import DeepexError, Interrupted, RunFolderError, UsageError
from deepex.launch.failure import find_own_part
from deepex.launch.start import TellFolder, is_first_rank, resume, start
from deepex.notebook import current_cell, in_notebook
from deepex.record.folder import RunFolder
from deepex.record.rows import EpochRow, Summary, read_epochs, read_summary
from deepex.record.sinks.progress import Verbosity, choose_verbosity
from deepex.record.weights import load_into
from deepex.report import write_report
from deepex.report.notebook.live import showing_run
from deepex.report.notebook.run_card import draw_run
from deepex.report.terminal.run_state import RunReader
from deepex.sync import Sync
from deepex.tasks.own import LossFunction, MakeModel, MetricFunction, OwnTask, task
from deepex.train import checkpoint
from deepex.train.checkpoint import Which
from deepex.train.task import Direction, Task


class Run:
    """A run: its directory, what is in it, and its trained model.

    Arguments:
        path: the run's directory, of a run that is finished or not.

    Example: `Run("runs/2026-01-31_120000_protein_allreduce_2r_ab12").summary.value`
    """

    def __init__(self, path: str | Path, *, task: Task | None = None, shown_in: int | None = None) -> None:
        self.folder = RunFolder.open(Path(path))
        self.path = self.folder.path
        self.page = self.folder.page
        self._task = task
        self._shown_in = shown_in  # the cell of a notebook whose output has ended as this run

    @property
    def summary(self) -> Summary:
        """The outcome, as in summary.json."""
        summary = read_summary(self.folder)
        if summary is None:
            raise RunFolderError(
                f"{self.path} is not complete: it has no summary.json yet. See: deepex watch {self.path}"
            )
        return summary

    @property
    def metrics(self) -> list[EpochRow]:
        """An epoch each, as in metrics.jsonl."""
        return read_epochs(self.folder)

    def state_dict(self, weights: Which = "last") -> dict[str, Tensor]:
        """The trained weights by the names of the module, the last or the `best` by the metric; on the CPU."""
        return load_weights(self.folder, weights)

    def model(self, weights: Which = "last") -> nn.Module:
        """The trained module in eval mode, with the last weights or the `best` by the metric; on the CPU."""
        if self._task is None:
            return load_model(self.folder, weights)
        with torch.random.fork_rng(devices=[]):
            made = self._task.model()
        return load_into(made, self.state_dict(weights), str(self.path)).eval()

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def _repr_html_(self) -> str | None:
        """What a notebook shows of it: where it stands, or its outcome; nothing in a cell that shows it already."""
        if self._shown_in is not None and self._shown_in == current_cell():
            return None
        return draw_run(RunReader(self.folder).read())


def run(
    what: What | None = None,
    *,
    model: MakeModel | None = None,
    data: Given = None,
    loss: LossFunction | str | None = None,
    metric: MetricFunction | None = None,
    target: float | None = None,
    mode: Direction = "min",
    validation: float | Given = 0.2,
    name: str = "own",
    preparation: Preparation | None = None,
    size: str | None = None,
    batch_size: int | None = None,
    epochs: int | None = None,
    optimizer: str | Callable[..., Any] | None = None,
    lr: float | None = None,
    ranks: int | None = None,
    sync: str | Sync | type[Sync] | None = None,
    fabric: str | None = None,
    precision: str | None = None,
    stage: str | Path | None = None,
    seed: int | None = None,
    settings: tuple[str, ...] | Mapping[str, Any] = (),
    out: str | Path | None = None,
    verbosity: Verbosity | None = None,
    page: bool = True,
) -> Run:
    """Train, and write the run's directory and page.

    Give either `what`, or `model`, `data` and `loss`.

    Arguments:
        what: a task's name, the path of a recipe.toml, `file.py:name` of a task of your own, a task or a recipe.
        model, data, loss, metric, mode, validation, name, preparation: a task of your own, as `task` has them. With a
            task's name, `model` is a network of your own in that task.
        target: the value of the metric at which training stops; by default the task's, if it has one.
        size: of the task, such as `small` or `paper`.
        batch_size: samples of one rank in one step (data.batch); by default the task's, the loader's, or 64.
        epochs: at most so many (stop.epochs).
        optimizer: `adam`, `adamw`, `muon`, `rmsprop`, `sgd`; a torch optimiser's class; a function of parameters that
            makes a torch optimiser; or a class of rules (optimiser.name).
        lr: the learning rate (optimiser.learning_rate).
        ranks: processes that this call starts on this machine; under a launcher, leave it out.
        sync: how replicas are kept together: a text such as `local:8`, or a strategy of your own.
        fabric: what ranks talk by; by default the fastest here.
        precision: `fp32`, `bf16` or `fp16`.
        stage: a folder of the node's own to which data is copied first.
        seed: of weights, order and noise.
        settings: any other key of the recipe, as in `{"schedule.name": "cosine"}`.
        out: the run directory; by default a fresh name under runs/.
        verbosity: `lines`, `bar`, `quiet` or `notebook`; by default `notebook` in one, and else `lines`.
        page: whether to write the page; `deepex report RUN` writes it later.

    Example: `run("protein", ranks=2, sync="local:epoch").summary.target_reached`
    """
    end_stopped_scripts()
    own = _own_task(what, model, data, loss, metric, target, mode, validation, name, preparation)
    recipe = build_recipe(
        own if own is not None else what if what is not None else "",
        model=None if own is not None else model,
        size=size,
        batch_size=batch_size,
        epochs=epochs,
        optimizer=optimizer,
        lr=lr,
        ranks=ranks,
        sync=sync,
        fabric=fabric,
        precision=precision,
        stage=None if stage is None else str(stage),
        seed=seed,
        until=None if own is not None else target,
        settings=settings,
    )
    chosen, place = choose_verbosity(verbosity), None if out is None else Path(out)
    folder = _train(lambda tell: start(recipe, place, chosen, tell), chosen, page)
    return Run(folder.path, task=recipe.task, shown_in=current_cell() if chosen == "notebook" else None)


def resume_run(path: str | Path, *, verbosity: Verbosity | None = None, page: bool = True) -> Run:
    """Go on with a run that was stopped early."""
    end_stopped_scripts()
    chosen = choose_verbosity(verbosity)
    folder = _train(lambda tell: resume(Path(path), chosen, tell), chosen, page)
    return Run(folder.path, shown_in=current_cell() if chosen == "notebook" else None)


def load(path: str | Path, *, weights: Which = "last", model: ModelOf | None = None) -> nn.Module:
    """The trained module of a run, in eval mode, on the CPU; its training data and its ranks are not needed.

    Arguments:
        path: the run's directory.
        weights: `last`, or `best` for those of the epoch with the best metric.
        model: the module to put them into, or what makes it; by default as the run's recipe makes it.

    Example: `load("runs/2026-01-31_120000_protein_allreduce_2r_ab12")`
    """
    return load_model(RunFolder.open(Path(path)), weights, model)


def _own_task(what: What | None, model: Any, data: Given, loss: Any, *rest: Any) -> OwnTask | None:
    """The task that a user's own module, data and loss make; None if a task is named instead."""
    given = [word for word, value in (("model", model), ("data", data), ("loss", loss)) if value is not None]
    if what is not None:
        if given not in ([], ["model"]):
            raise UsageError(
                f"both {what!r} and {' and '.join(given)}=. Allowed: a task, or model=, data= and loss= of your own."
            )
        return None
    if len(given) < 3:
        raise UsageError(
            f"dx.run was given {', '.join(given) or 'nothing to train'}. Allowed: a task, as in dx.run('protein'), or "
            "all of model=, data= and loss=."
        )
    metric, target, mode, validation, name, preparation = rest
    return task(
        model=model,
        data=data,
        loss=loss,
        metric=metric,
        target=target,
        mode=mode,
        validation=validation,
        name=name,
        preparation=preparation,
    )


def _train(begin: Callable[[TellFolder], RunFolder], verbosity: Verbosity, page: bool) -> RunFolder:
    """Train, shown as `verbosity` says, and write the page. Stopped in a notebook, it says how to go on there."""
    begun: list[RunFolder] = []
    with showing_run(verbosity) as show:

        def tell(folder: RunFolder) -> None:
            begun.append(folder)
            show(folder)

        try:
            folder = begin(tell)
            if page and is_first_rank():
                write_report(folder)
        except (Interrupted, KeyboardInterrupt) as stopped:
            if not in_notebook():
                raise
            raise _stopped_in_notebook(str(stopped), begun) from None
        except Exception as error:
            if in_notebook() and not isinstance(error, DeepexError):  # a cell shows the lines of every frame
                error.__traceback__ = find_own_part(error.__traceback__)
            raise
    return folder


def _stopped_in_notebook(told: str, begun: Sequence[RunFolder]) -> Interrupted:
    """What to tell where a cell was interrupted: before training, while it trained, or afterwards."""
    if not begun or (checkpoint.latest(begun[0]) is None and read_summary(begun[0]) is None):
        return Interrupted(told or "stopped before there was anything to keep. Run the cell again.")
    path = begun[0].path
    if read_summary(begun[0]) is not None:
        return Interrupted(f'stopped when the run was complete, before its page was. It is there: dx.Run("{path}")')
    told = told or f"stopped before the first step. Go on with: deepex resume {path}"
    return Interrupted(f'{told}, or here: dx.resume_run("{path}")')
