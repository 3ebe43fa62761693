"""The program of a local rank: `python -m deepex.launch RUN VERBOSITY`, started by torch's elastic agent."""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)  # before the long imports: Ctrl-C ends a rank that does not train yet

# ruff: noqa: E402  # see above
import json
import os
import sys
import traceback
from pathlib import Path
from time import time
from typing import cast

from deepex.errors import DeepexError
from deepex.launch.detect import find_world
from deepex.launch.rank import leave, run_rank
from deepex.launch.recipes import read_recipe
from deepex.record.folder import RunFolder
from deepex.record.sinks.progress import Verbosity


def main() -> None:
    """Run one rank; an error is left for the agent to find, and is told once, where the run was started."""
    folder = RunFolder.open(Path(sys.argv[1]))
    verbosity = cast(Verbosity, sys.argv[2])
    try:
        run_rank(read_recipe(folder.recipe), find_world(), lambda *_: folder, verbosity)
    except DeepexError as error:
        _leave_error(type(error).__name__, str(error), "")
        leave(error.exit_code)
    except Exception as error:  # noqa: BLE001  # whatever a user's own code raises goes back to the user
        _leave_error(type(error).__name__, str(error), traceback.format_exc())
        leave(1)
    leave(0)


def _leave_error(kind: str, text: str, trace: str) -> None:
    """Write an error, with its kind, where the agent looks for it."""
    details = {"py_callstack": trace, "timestamp": str(int(time())), "kind": kind}
    message = {"message": {"message": text, "extraInfo": details}}
    Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps(message))


main()
