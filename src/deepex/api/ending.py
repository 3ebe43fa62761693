"""How a script ends whose run was stopped: with the word on how to go on, and the exit code of a stopped run."""

import atexit
import os
import sys
from types import TracebackType

from deepex.errors import Interrupted
from deepex.launch.detect import find_world
from deepex.notebook import in_notebook


def end_stopped_scripts() -> None:
    """Let a script that does not catch `Interrupted` end without a traceback and with exit code 75."""
    is_program = not in_notebook() and not hasattr(sys, "ps1")
    if is_program and sys.excepthook is sys.__excepthook__:
        sys.excepthook = _end


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not isinstance(error, Interrupted):
        sys.__excepthook__(kind, error, trace)
        return
    launched = find_world()
    if launched is None or launched.world.is_first:
        print(f"deepex: {error}", file=sys.stderr, flush=True)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(error.exit_code)  # the interpreter itself would end with 1
