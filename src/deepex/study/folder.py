"""The directory of a study: plan, fixed recipe, runs and outcome. It knows files, and who may write them."""

import fcntl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TextIO

from deepex.config import read_toml, to_toml, to_tree
from deepex.errors import RunFolderError, UsageError
from deepex.launch.recipes import name_code, read_recipe, write_recipe
from deepex.record.folder import RunFolder
from deepex.reference import OBJECTS_FILE
from deepex.study.plan import Plan, read_plan
from deepex.train.recipe import Recipe

HEADING = """\
# Written before the first run. Fixed is recipe.toml beside this file; what varies, what is judged and where runs go
# stand below. `deepex study DIR` goes on with it.

"""
LOCKS = ("study.lock", "runs.lock")
OWN_FILES = {"recipe.toml", OBJECTS_FILE, *LOCKS}
SECONDS_TO_SAVE = 300.0  # how long a run that was asked to stop may take


class StudyFolder:
    """Paths of one study's directory. Whole files are replaced atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = RunFolder(path)
        self.runs, self.logs = path / "runs", path / "logs"

    @classmethod
    def open(cls, path: Path) -> "StudyFolder":
        """An existing study."""
        if not is_study(path):
            raise RunFolderError(
                f"{path} is not a study's directory: it has no study.toml. Give one that deepex study made."
            )
        return cls(path)

    @classmethod
    def prepare(cls, path: Path, recipe: Recipe, plan: Plan) -> "StudyFolder":
        """The directory for a plan: a new one, or one that holds the same plan, to go on with."""
        folder = cls(path)
        if is_study(path):
            folder.check(recipe, plan)
            return folder
        if path.exists() and (not path.is_dir() or {each.name for each in path.iterdir()} - OWN_FILES):
            raise RunFolderError(f"{path} exists and is no study. Allowed: a new folder, or a study to go on with.")
        with folder.files.writing():
            path.mkdir(parents=True, exist_ok=True)
        write_recipe(folder.files, recipe)
        folder.files.write_text("study.toml", HEADING + to_toml(plan))  # last: with it the study is there
        return folder

    def read(self) -> tuple[Recipe, Plan]:
        """The fixed recipe, and what varies, is judged, and where."""
        path = self.path / "study.toml"
        tree = read_toml(path.read_text(), str(path))
        if not {"varied", "judged"} <= set(tree):
            raise RunFolderError(
                f"{path} is damaged: it does not say what varies and what is judged. Bring it back from a copy, or "
                "begin the study anew with another --out."
            )
        return read_recipe(self.files.recipe), read_plan(tree)

    def check(self, recipe: Recipe, plan: Plan) -> None:
        """Refuse to go on with another study than the one that was begun."""
        before, now = (
            {**_flatten(to_tree(a)), **_flatten(to_tree(b))} for a, b in (self.read(), (name_code(recipe), plan))
        )
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        if keys:
            told = "; ".join(f"{key} is {before.get(key)} there and {now.get(key)} here" for key in keys)
            raise UsageError(
                f"{self.path} holds another study: {told}. Go on with that one by: deepex study {self.path}, or choose "
                "another --out."
            )

    @property
    def is_held(self) -> bool:
        """Whether a process is at work on it."""
        path = self.path / LOCKS[0]
        if not path.exists():
            return False
        with open(path) as file:
            return not _lock(file)

    @contextmanager
    def held(self, say: Callable[[str], None]) -> Iterator[int]:
        """Hold the study, with which no other process then goes on; yields a file for its runs to inherit.

        A run may outlive the study that started it by the time it takes to save itself: that is waited for.
        """
        with ExitStack() as stack:
            with self.files.writing():
                own, of_runs = (stack.enter_context(open(self.path / name, "w")) for name in LOCKS)
            if not _lock(own):
                raise RunFolderError(
                    f"{self.path} is at work: another deepex study goes on with it. Follow it with: "
                    f"deepex watch {self.path}"
                )
            end, told = monotonic() + SECONDS_TO_SAVE, False
            while not _lock(of_runs):
                if monotonic() > end:
                    raise RunFolderError(
                        f"a run of {self.path} that an earlier study started has not ended for "
                        f"{SECONDS_TO_SAVE:.0f} s. End it, then try again."
                    )
                if not told:
                    say("waiting for a run that an earlier study started, and that saves itself")
                    told = True
                sleep(0.1)
            yield of_runs.fileno()


def _lock(file: TextIO) -> bool:
    """Whether this process holds a file now; true where the file system knows no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested mapping with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat


def is_study(path: Path) -> bool:
    """Whether a path is a study's directory."""
    return (path / "study.toml").is_file()
