"""The run directory: one folder that holds everything about a run. It knows files, and nothing of what is in them."""

import errno
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from deepex.errors import RunFolderError
from deepex.record.rows import parse_rows


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
        target = self.path / name
        temporary = target.with_name(target.name + ".tmp")
        with _writing(target):
            temporary.write_text(text)
            os.replace(temporary, target)
        return target

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

    def read_json(self, name: str) -> dict[str, Any]:
        return dict(json.loads((self.path / name).read_text()))

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        """The complete rows of a log; none if it was never written."""
        path = self.path / name
        return parse_rows(path.read_text()) if path.exists() else []

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turn a failure to write into this directory into an error with its cure."""
        with _writing(self.path):
            yield


def new_run_name(task: str, sync: str, num_ranks: int) -> str:
    """A name for a run directory: date, task, sync, ranks and a few random letters."""
    date = datetime.now().strftime("%Y-%m-%d_%H%M%S")
    return f"{date}_{task}_{sync.replace(':', '-')}_{num_ranks}r_{secrets.token_hex(2)}"


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        cures = {
            errno.ENOSPC: "The disk is full: free some space, or choose another place with --out.",
            errno.EDQUOT: "Your quota is used up: free some space, or choose another place with --out.",
        }
        cure = cures.get(error.errno or 0, "Choose a place that you may write to with --out.")
        raise RunFolderError(f"{path} can't be written: {error.strerror or error}. {cure}") from error
    except RuntimeError as error:  # torch.save says so when the disk is full, with a text of its own
        if "unexpected pos" in str(error) or "PytorchStreamWriter" in str(error):
            raise RunFolderError(
                f"{path} can't be written completely. The disk is probably full: free some space, or choose "
                "another place with --out."
            ) from error
        raise
