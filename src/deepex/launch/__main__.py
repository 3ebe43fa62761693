"""The program of a local rank, started by torch's elastic agent.

`python -m deepex.launch run RUN VERBOSITY` trains, `python -m deepex.launch call FOLDER` calls a user's function.
"""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)  # before the long imports: Ctrl-C ends a rank that does not train yet

# ruff: noqa: E402  # see above
import sys
from pathlib import Path
from typing import cast

from deepex.launch.detect import find_world
from deepex.launch.failure import call_as_rank
from deepex.launch.function import call_function
from deepex.launch.rank import leave, run_rank
from deepex.launch.recipes import read_recipe
from deepex.record.folder import RunFolder
from deepex.record.sinks.progress import Verbosity


def main() -> None:
    """Run one rank; an error is left for the agent to find, and is told once, where the run was started."""
    what, path, *rest = sys.argv[1:]
    if what == "call":
        leave(call_as_rank(lambda: call_function(Path(path))))
    leave(call_as_rank(lambda: train(Path(path), cast(Verbosity, rest[0]))))


def train(path: Path, verbosity: Verbosity) -> None:
    """Train as one rank of the run in a directory."""
    folder = RunFolder.open(path)
    run_rank(read_recipe(folder.recipe), find_world(), lambda *_: folder, verbosity)


main()
