"""Code of a user's own, by name: `package.module:name` or `path/to/file.py:name`, imported where it is needed.

An object that no name leads to, from a notebook or a script's own lines, is kept under `objects.pkl:NAME`: a file of
that name travels beside a recipe. It knows names and modules, and nothing of what they are for.
"""

import hashlib
import importlib
import importlib.util
import pickle
import re
import sys
import traceback
from collections.abc import Iterable
from itertools import chain, count
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from deepex.errors import ConfigError, unknown

OBJECTS_FILE = "objects.pkl"
FORM = re.compile(r"(?P<place>[^:,+()=]+\.py|[^:,+()=\s]+):(?P<name>[A-Za-z_][\w.]*)")
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

_objects: dict[str, Any] = {}  # by name: those that travel in a file


def is_reference(text: str) -> bool:
    """Whether a text has the form of a name for code.

    >>> is_reference("kepler.py:Kepler"), is_reference("my_package.tasks:Kepler"), is_reference("protein")
    (True, True, False)
    """
    found = FORM.fullmatch(text)
    return found is not None and (found["place"].endswith((".py", OBJECTS_FILE)) or bool(MODULE.fullmatch(found[1])))


def make_absolute(text: str) -> str:
    """The same name, as every process finds it whatever its folder."""
    place, _, name = text.rpartition(":")
    return f"{Path(place).resolve()}:{name}" if place.endswith(".py") else text


def shorten(text: str) -> str:
    """A text with its names of code as people say them: files without their folders.

    >>> shorten("/home/me/my code/mine.py:Gossip:4+bf16"), shorten("local:4")
    ('mine.py:Gossip:4+bf16', 'local:4')
    """
    return FORM.sub(lambda found: f"{Path(found['place']).name}:{found['name']}", text)


def load_object(text: str) -> Any:
    """The object that a name leads to; an error says where the name ends.

    >>> load_object("math:pi")
    3.141592653589793
    """
    place, _, name = text.rpartition(":")
    if place == OBJECTS_FILE:
        if name not in _objects:
            raise ConfigError(
                f"'{text}' is an object that a script or notebook gave to its run. Give it again there, or put it into "
                "a file and name it file.py:name."
            )
        return _objects[name]
    found: Any = _load_file(Path(place)) if place.endswith(".py") else _load_module(place, text)
    for part in name.split("."):
        if not hasattr(found, part):
            names = [each for each in getattr(found, "__dict__", dir(found)) if not each.startswith("_")]
            raise ConfigError(f"'{text}': " + unknown("name", part, names))
        found = getattr(found, part)
    return found


def name_object(value: Any, name: str = "") -> str:
    """A name for an object, by which a later `load_object` finds it, in this process or in another.

    One that can be imported is called by its module. Any other is kept, under its own name or the given one, until a
    recipe that mentions it is written.

    >>> import math
    >>> name_object(math.sqrt)
    'math:sqrt'
    """
    module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module and path and module != "__main__" and "<" not in path:
        found: Any = sys.modules.get(module)
        for part in path.split("."):
            found = getattr(found, part, None)
        if found is value:
            file = getattr(sys.modules[module], "__deepex_file__", None)
            return f"{file or module}:{path}"
    if not name:
        own = re.sub(r"\W", "", (path or type(value).__name__).rpartition(".")[2]) or "object"
        names = chain([own], (f"{own}{number}" for number in count(2)))  # two lambdas are two objects
        name = next(each for each in names if each not in _objects or _are_alike(_objects[each], value))
    _objects[name] = value
    return f"{OBJECTS_FILE}:{name}"


def mentioned_objects(text: str) -> list[str]:
    """The names of kept objects that a text mentions.

    >>> mentioned_objects('sync = "objects.pkl:Mine:4"')
    ['Mine']
    """
    return sorted(set(re.findall(rf"\b{re.escape(OBJECTS_FILE)}:([A-Za-z_]\w*)", text)))


def dump_objects(names: Iterable[str]) -> bytes:
    """Kept objects as bytes, for a file; one that can't leave this process is named."""
    kept = {name: load_object(f"{OBJECTS_FILE}:{name}") for name in names}
    try:
        return bytes(cloudpickle.dumps(kept))
    except Exception as error:  # whatever a user's object raises when it is pickled
        raise ConfigError(
            f"{_find_unpicklable(kept)} can't be sent to the run's own processes: {type(error).__name__}: {error}. Put "
            "it into a file of its own and give a function of that file that makes it."
        ) from error


def load_objects(path: Path) -> None:
    """Know the objects of a file, as `dump_objects` made it."""
    try:
        _objects.update(cloudpickle.loads(path.read_bytes()))
    except OSError as error:
        raise ConfigError(
            f"{path} can't be read: {error.strerror}. Bring it back from a copy, or start the run again from the "
            "script or notebook that gave its objects."
        ) from error
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError) as error:  # as pickle tells damage
        raise ConfigError(f"{path} is damaged: {error}. Bring it back from a copy.") from error
    except (ImportError, AttributeError) as error:  # a module that moved, of deepex or of the user's own
        raise ConfigError(
            f"{path} names code that can't be imported here: {error}. Add the folder of that module to PYTHONPATH, or "
            "install it."
        ) from error


def _are_alike(one: Any, other: Any) -> bool:
    """Whether two objects are one, or the same lines of a script or notebook made both."""
    try:
        return one is other or cloudpickle.dumps(one) == cloudpickle.dumps(other)
    except Exception:  # noqa: BLE001  # as in `dump_objects`, where it is told
        return False


def _find_unpicklable(kept: dict[str, Any]) -> str:
    """Which part of which object is to blame, in words."""
    for name, value in kept.items():
        for part, held in getattr(value, "__dict__", {}).items():
            try:
                cloudpickle.dumps(held)
            except Exception:  # noqa: BLE001  # as above
                return f"'{part}' of {name}"
    return ", ".join(kept)


def _load_module(place: str, text: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path and "" not in sys.path:
        sys.path.insert(0, folder)  # as `python -m` has it; the deepex program itself would not look here
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        missing = error.name or place
        raise ConfigError(
            f"'{text}': there is no module '{missing}'. Give the path of a file, as in file.py:name, or add the folder "
            "of that module to PYTHONPATH."
        ) from error
    except (Exception, SystemExit) as error:  # whatever a user's module raises
        raise _failed(text, error) from error


def _load_file(path: Path) -> ModuleType:
    """A file as a module; what stands beside it can be imported from it, as from a script."""
    path = path.resolve()
    if not path.is_file():
        raise ConfigError(f"there is no file {path}. Give the path of a file that exists, as in file.py:name.")
    name = f"deepex_file_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "a .py file has a loader"
    assert spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    module.__dict__["__deepex_file__"] = str(path)
    sys.modules[name] = module
    cloudpickle.register_pickle_by_value(module)  # no other process finds it by that name
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, Exception | SystemExit):  # the latter of a script that runs as soon as it is imported
            raise _failed(str(path), error) from error
        raise
    return module


def _failed(text: str, error: BaseException) -> ConfigError:
    """The error for code that raises while it is imported, with its place."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    where = f" in {frames[-1].filename}, line {frames[-1].lineno}" if len(frames) > 1 else ""
    if isinstance(error, SyntaxError):
        where = f" in {error.filename}, line {error.lineno}"
    return ConfigError(
        f"importing '{text}' failed{where}: {type(error).__name__}: {error}. Correct that and try again."
    )
