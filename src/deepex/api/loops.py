"""A loop of one's own as a run, from Python: on one rank, or as a function on several."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deepex.api.ending import end_stopped_scripts
from deepex.fabric import FabricName
from deepex.launch.function import call_on_ranks
from deepex.own_loop import LoopConfig, Session, run_loop
from deepex.record.sinks.progress import Verbosity, choose_verbosity
from deepex.report import write_report
from deepex.report.notebook.live import showing_run, showing_runs_of_ranks
from deepex.train.compute.precision import Precision


@contextmanager
def start(
    *,
    name: str | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    fabric: FabricName = "auto",
    precision: Precision = "fp32",
    seed: int = 0,
    keep_heap: bool = True,
    checkpoint_epochs: int = 1,
    timeout_seconds: float = 300.0,
    verbosity: Verbosity | None = None,
    page: bool = True,
) -> Iterator[Session]:
    """Begin a run around a loop of one's own: on one rank, or on those of torchrun, srun, mpirun or `dx.launch`.

    The loop makes its models `Replicated` and takes batches from a `feed`. At its end the run's directory holds the
    same record, checkpoint and page as any other run's.

    Arguments:
        name: of the run, for its directory and page; by default the script's.
        out: the run directory; by default a fresh name under runs/.
        resume: the directory of a run that was stopped early, to go on from its checkpoint.
        fabric: what ranks talk by; by default the fastest here.
        precision: what the loop computes with, for the record and for kernels; its autocast is the loop's own.
        seed: for weights (on all ranks the same) and for noise (on each rank its own).
        keep_heap: whether freed memory stays with the process, which is faster.
        checkpoint_epochs: how many epochs lie between two checkpoints.
        timeout_seconds: how long a rank waits for another before it gives up.
        verbosity: `lines`, `bar`, `quiet` or `notebook`; by default `notebook` in one, and else `lines`.
        page: whether to write the page; `deepex report RUN` writes it later.

    Example:
        with dx.start() as run:
            replicated = dx.Replicated(model, torch.optim.Adam(model.parameters()), sync="local:8")
            feed = dx.feed(dataset, batch_size=64)
            for epoch in run.epochs(10):
                for x, y in feed:
                    with replicated.step() as step:
                        step.backward(mse_loss(model(x), y))
    """
    end_stopped_scripts()
    chosen = choose_verbosity(verbosity)
    config = LoopConfig(
        name=name,
        out=None if out is None else Path(out),
        resume=None if resume is None else Path(resume),
        fabric=fabric,
        precision=precision,
        seed=seed,
        keep_heap=keep_heap,
        checkpoint_epochs=checkpoint_epochs,
        timeout_seconds=timeout_seconds,
        verbosity=chosen,
    )
    with showing_run(chosen) as show:
        with run_loop(config) as session:
            if session.is_first:
                show(session.folder)
            yield session
        if page and session.is_first:
            write_report(session.folder)


def launch(function: Callable[..., Any], *arguments: Any, ranks: int = 1) -> Any:
    """Call a function on so many ranks of this machine, each a process of its own, and wait for them.

    Inside it, `dx.start()` finds the ranks. Under a launcher, which has started ranks already, it is just called. A
    notebook shows below the cell what ranks print, and the runs that they begin.

    Arguments:
        function: what each rank does.
        arguments: of the function.
        ranks: how many.

    Returns: what the function returned on rank 0, if that is plain: numbers, texts, lists and mappings; else None.

    Example: `launch(train, "data.h5", ranks=2)`
    """
    end_stopped_scripts()
    with showing_runs_of_ranks():
        return call_on_ranks(function, *arguments, ranks=ranks)
