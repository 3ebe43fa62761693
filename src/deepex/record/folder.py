"""The run directory: one folder that holds everything about a run. It knows files, and nothing of what is in them."""

import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from deepex.errors import RunFolderError
from deepex.files import explained, write_whole
from deepex.record.logs import parse_rows

V = TypeVar("V")


class RunFolder:
    """Paths and writing of one run's directory. Whole files are replaced atomically; logs are appended by line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path) -> "RunFolder":
        """Make a new, empty run directory; one that exists is never touched."""
        with _writing(path):
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                raise RunFolderError(
                    f"{path} exists already, and a run never overwrites another. "
                    "Choose another --out, delete it, or continue it with: deepex resume " + str(path)
                ) from None
            (path / "phases").mkdir()
            (path / "checkpoints").mkdir()
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """An existing run directory."""
        if not (path / "recipe.toml").is_file():
            raise RunFolderError(
                f"{path} is not a run directory: it has no recipe.toml. Give one that deepex run made."
            )
        return cls(path)

    @property
    def version(self) -> str | None:
        """The version of deepex that made the directory, if it says so."""
        try:
            return str(self.read_json("record.json")["versions"]["deepex"])
        except (OSError, RunFolderError, KeyError, TypeError):
            return None

    @property
    def made_by(self) -> str:
        """Which version of deepex made the directory, in words."""
        return f"made by deepex {self.version}" if self.version else "made by an unknown version of deepex"

    @property
    def recipe(self) -> Path:
        return self.path / "recipe.toml"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def page(self) -> Path:
        return self.path / "report.html"

    def write_text(self, name: str, text: str) -> Path:
        """Replace a file of the directory by `text`, whole or not at all."""
        return self._replace(name, text)

    def write_bytes(self, name: str, content: bytes) -> Path:
        """Replace a file of the directory by `content`, whole or not at all."""
        return self._replace(name, content)

    def write_json(self, name: str, value: Mapping[str, Any]) -> Path:
        return self.write_text(name, json.dumps(value, indent=2) + "\n")

    def append_line(self, name: str, value: Mapping[str, Any]) -> None:
        """Add one JSON line to a log of the directory."""
        with _writing(self.path / name), open(self.path / name, "a") as file:
            file.write(json.dumps(value) + "\n")

    def keep_lines(self, name: str, last_epoch: int) -> None:
        """Drop the lines of a log after an epoch, and one that a kill cut off: a resumed run writes them again."""
        kept = "".join(json.dumps(row) + "\n" for row in self.read_lines(name) if row["epoch"] <= last_epoch)
        path = self.path / name
        if path.exists() and path.read_text() != kept:
            self.write_text(name, kept)

    def read_json(self, name: str, *, cure: str = "") -> dict[str, Any]:
        """The plain values of a file; one that is missing or damaged is an error with its cure."""
        path = self.path / name
        cure = cure or f"Bring it back from a copy, or run it again: deepex run {self.recipe}"
        try:
            tree = json.loads(path.read_text())
        except FileNotFoundError:
            raise RunFolderError(f"{path} is missing. {cure}") from None
        except ValueError as error:
            raise RunFolderError(f"{path} is damaged: {error}. {cure}") from error
        if not isinstance(tree, dict):
            raise RunFolderError(f"{path} is damaged: it holds no keys and values. {cure}")
        return tree

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        """The complete rows of a log; none if it was never written."""
        path = self.path / name
        return parse_rows(path.read_text()) if path.exists() else []

    def understand(
        self, name: str, read: Callable[[Mapping[str, Any]], V], tree: Mapping[str, Any], *, cure: str = ""
    ) -> V:
        """What `read` makes of a file's content; what it can't take becomes an error with its cure.

        Without a `cure` of the file's own, that is the version which made the run, or another run.
        """
        try:
            return read(tree)
        except (ValueError, KeyError) as error:
            again = f"Read it with that version, or run it again: deepex run {self.recipe}"
            raise RunFolderError(
                f"{self.path / name} is not what this version of deepex writes: {error}. "
                + (cure or f"It was {self.made_by}. {again}")
            ) from error

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turn a failure to write into this directory into an error with its cure."""
        with _writing(self.path):
            yield

    def _replace(self, name: str, content: str | bytes) -> Path:
        target = self.path / name
        with _writing(target):
            write_whole(target, content)
        return target


def new_run_name(task: str, sync: str, num_ranks: int) -> str:
    """A name for a run directory: date, task, sync, ranks and a few random letters."""
    date = datetime.now().strftime("%Y-%m-%d_%H%M%S")
    written = re.sub(r"[^\w.,=+()-]", "-", sync.rpartition("/")[2])  # a strategy of one's own is named by a path
    return f"{date}_{task}_{written}_{num_ranks}r_{secrets.token_hex(2)}"


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    elsewhere, otherwise = "choose another place with --out.", "Choose a place that you may write to with --out."
    with explained(path, RunFolderError, elsewhere=elsewhere, otherwise=otherwise):
        yield
