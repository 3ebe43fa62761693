"""A function on several local ranks: from a script, or from a cell of a notebook.

The function stands in a private folder, pickled by the process that starts its ranks, and is read by these alone.
"""

import json
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
from torch.distributed.elastic.multiprocessing.api import SignalException

from deepex.errors import ConfigError, Interrupted, UsageError
from deepex.launch.detect import find_world
from deepex.launch.local import start_ranks

FUNCTION_FILE, RESULT_FILE, STOPPED_FILE = "function.pkl", "result.json", "stopped.txt"


def call_on_ranks(function: Callable[..., Any], *arguments: Any, ranks: int = 1) -> Any:
    """Call a function on so many ranks of this machine, as `dx.launch` says."""
    if not callable(function):
        raise UsageError(f"dx.launch was given a {type(function).__name__}. Allowed: a function, and its arguments.")
    if ranks < 1:
        raise UsageError(f"ranks = {ranks}. Allowed: whole numbers from 1.")
    if find_world() is not None:
        return function(*arguments)
    with tempfile.TemporaryDirectory(prefix="deepex-") as name:  # for this user's eyes alone
        folder = Path(name)
        try:
            (folder / FUNCTION_FILE).write_bytes(cloudpickle.dumps((function, arguments)))
        except Exception as error:  # whatever a user's object raises when it is pickled
            raise ConfigError(
                f"{getattr(function, '__name__', 'the function')} or one of its arguments can't be sent to other "
                f"processes: {type(error).__name__}: {error}. Open files and connections inside the function."
            ) from error
        result, stopped = folder / RESULT_FILE, folder / STOPPED_FILE
        try:
            start_ranks(["-m", "deepex.launch", "call", name], ranks)
        except SignalException as signalled:
            if not result.exists():  # else the signal came when the function was done
                told = f"stopped by {signalled.sigval.name}. What the function saved is there."
                raise Interrupted(stopped.read_text() if stopped.exists() else told) from None
        return json.loads(result.read_text()) if result.exists() else None


def call_function(folder: Path) -> None:
    """Call the function in a folder as one rank; rank 0 leaves what it returned."""
    launched = find_world()
    is_first = launched is not None and launched.world.is_first
    function, arguments = cloudpickle.loads((folder / FUNCTION_FILE).read_bytes())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        returned = function(*arguments)
    except Interrupted as stopped:
        if is_first:
            (folder / STOPPED_FILE).write_text(str(stopped))
        raise
    if not is_first:
        return
    try:
        text = json.dumps(returned, default=_to_plain)
    except (TypeError, ValueError) as error:
        name = getattr(function, "__name__", "the function")
        print(
            f"deepex: what {name} returned is not brought back: {error}. Allowed: numbers, texts, lists and mappings. "
            "Save the rest in the function; trained weights stand in the run's directory (dx.load).",
            file=sys.stderr,
        )
        text = "null"
    (folder / RESULT_FILE).write_text(text)


def _to_plain(value: Any) -> Any:
    """Numbers and paths that JSON does not know."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"it has a {type(value).__name__} in it")
