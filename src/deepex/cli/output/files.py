"""Files that a command writes: whole or not at all, and refused before the measuring if they can't be written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deepex.errors import UsageError
from deepex.files import explained, temporary_beside, write_whole


def check_output(path: Path, option: str) -> None:
    """Refuse a file that could not be written later; leaves everything as it was."""
    with _writing(path, option):
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "not a plain file"
            raise UsageError(f"{option} {path} is {kind}. Allowed: a file, new or to be replaced. Give a file's name.")
        with temporary_beside(path) as temporary:
            temporary.write_text("")


def write_output(path: Path, option: str, content: str | bytes) -> None:
    """Replace a file's content, at once."""
    with _writing(path, option):
        write_whole(path, content)


@contextmanager
def _writing(path: Path, option: str) -> Iterator[None]:
    otherwise = f"Allowed: a file in a folder that exists and that you may write to. Choose another with {option}."
    with explained(f"{option} {path}", UsageError, elsewhere=f"choose another with {option}.", otherwise=otherwise):
        yield
