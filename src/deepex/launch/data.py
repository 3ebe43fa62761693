"""A task's data where there is none yet: made by the cores of this machine before the run begins."""

import os

from deepex.errors import DataError, Interrupted, UsageError
from deepex.launch.launchers.launcher import Launched
from deepex.record.sinks.progress import Verbosity
from deepex.record.sinks.progress_bar import ProgressBar
from deepex.tasks.data.make import MakeOptions, SelfMade, make_data
from deepex.text import say_duration
from deepex.train.task import Task


def make_missing_data(task: Task, launched: Launched | None, verbosity: Verbosity) -> None:
    """Make a task's data set if it can be made and is not there; says what it makes and how long that will take."""
    if not isinstance(task, SelfMade) or task.path.exists():
        return
    if launched is not None and launched.world.size > 1:
        raise UsageError(
            f"there is no data set {task.path} yet. Make it first, with as many ranks as you like: "
            f"{launched.world.launcher} … deepex data make {task.name} --out {task.path}"
        )
    making, ranks = task.making, len(os.sched_getaffinity(0))
    source, speaks = making.source(), verbosity != "quiet"
    if speaks:
        work = f"making {len(source):,} samples on {ranks} cores, about {say_duration(making.core_seconds / ranks)}"
        print(f"{task.path} is not there: {work}", flush=True)
    try:
        with ProgressBar("making", source.spec.num_bytes, speaks=speaks) as bar:
            made = make_data(making, task.path, MakeOptions(ranks=ranks, tell=bar.tell))
    except DataError as error:
        raise DataError(f"{error} To make it by itself, with its options: deepex data make {task.name}") from None
    except KeyboardInterrupt:
        raise Interrupted("stopped; what is made is kept. Go on with the same command.") from None
    if speaks:
        print(f"{task.path}: {made.num_samples:,} samples, content sha256 {made.content_sha256[:16]}", flush=True)
