"""What a local rank leaves when it fails: its error, where torch's elastic agent finds it for whoever started it.

Of an error in the user's own code, only what the user has written and what that called is told.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from sysconfig import get_path
from time import time
from types import TracebackType

from deepex.errors import DeepexError, Interrupted

NOT_THE_USERS = (str(Path(__file__).parents[1]), *(get_path(name) for name in ("stdlib", "purelib", "platlib")))


def call_as_rank(work: Callable[[], object]) -> int:
    """Do a rank's work, and return its exit code; an error is left for the agent, and is told once, by the starter."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # whole lines: other ranks print to the same place
            stream.reconfigure(line_buffering=True, write_through=False)
    try:
        work()
    except DeepexError as error:
        _leave_error(type(error).__name__, str(error), "")
        return error.exit_code
    except KeyboardInterrupt:
        return Interrupted.exit_code  # whoever was interrupted tells
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except Exception as error:  # noqa: BLE001  # whatever a user's own code raises goes back to the user
        _leave_error(type(error).__name__, str(error), _format(error))
        return 1
    return 0


def find_own_part(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from the first line of the user's own code on; all of it if it has none."""
    part = trace
    while part is not None and part.tb_frame.f_code.co_filename.startswith(NOT_THE_USERS):
        part = part.tb_next
    return part or trace


def _format(error: Exception) -> str:
    return "".join(traceback.format_exception(error.with_traceback(find_own_part(error.__traceback__))))


def _leave_error(kind: str, text: str, trace: str) -> None:
    """Write an error, with its kind, where the agent looks for it."""
    details = {"py_callstack": trace, "timestamp": str(int(time())), "kind": kind}
    message = {"message": {"message": text, "extraInfo": details}}
    Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps(message))
