"""Files that a command writes: whole or not at all, and refused before the measuring if they can't be written."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deepex.errors import UsageError


def check_output(path: Path, option: str) -> None:
    """Refuse a file that could not be written later; leaves everything as it was."""
    with _temporary(path, option) as temporary:
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "not a plain file"
            raise UsageError(f"{option} {path} is {kind}. Allowed: a file, new or to be replaced. Give a file's name.")
        temporary.write_text("")


def write_output(path: Path, option: str, content: str | bytes) -> None:
    """Replace a file's content, at once."""
    with _temporary(path, option) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(temporary, path)


@contextmanager
def _temporary(path: Path, option: str) -> Iterator[Path]:
    """A name beside a file for its new content, gone afterwards; what fails becomes an error with its cure."""
    temporary = path.parent / f".{path.name}.{os.getpid()}"
    try:
        yield temporary
    except OSError as error:
        raise UsageError(
            f"{option} {path} can't be written: {error.strerror}. Allowed: a file in a folder that exists and that "
            f"you may write to. Choose another with {option}."
        ) from error
    finally:
        with suppress(OSError):  # where it could not be made, it need not be removed
            temporary.unlink()
