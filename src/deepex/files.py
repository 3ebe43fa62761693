"""Writing files: whole or not at all, and with a cure where the disk or its owner refuses.

It knows how libraries tell of a full disk, and nothing of runs, data sets and commands: each caller names the error to
raise and what to do instead.
"""

import errno
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deepex.errors import DeepexError

NO_ROOM = {errno.ENOSPC: "The disk is full", errno.EDQUOT: "Your quota is used up"}
CUT_OFF = ("unexpected pos", "PytorchStreamWriter", "requested and")  # torch and NumPy so tell of a full disk


@contextmanager
def explained(what: object, error: type[DeepexError], *, elsewhere: str, otherwise: str) -> Iterator[None]:
    """Turn a failure to write into an error that ends with its cure.

    Arguments:
        what: could not be written; a path, with its option in front if there is one.
        error: to raise.
        elsewhere: follows "free some space, or", where there is no room.
        otherwise: the whole cure for all else, such as a folder that may not be written to.
    """
    try:
        yield
    except (OSError, RuntimeError) as failure:
        text, number = str(failure), _error_number(failure)
        if number in NO_ROOM:
            reason, cure = os.strerror(number), f"{NO_ROOM[number]}: free some space, or {elsewhere}"
        elif number is not None:
            reason, cure = os.strerror(number), otherwise
        elif any(told in text for told in CUT_OFF):
            reason, cure = "it was cut off", f"The disk is probably full: free some space, or {elsewhere}"
        elif isinstance(failure, OSError):
            reason, cure = text.rstrip("."), otherwise
        else:
            raise
        raise error(f"{what} can't be written: {reason}. {cure}") from failure


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write a file's new content to: it takes the file's place when all is written, else nothing changes.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "a.txt") as temporary:
    ...         _ = temporary.write_text("new")
    ...     [file.name for file in Path(folder).iterdir()]
    ['a.txt']
    """
    with temporary_beside(path) as temporary:
        yield temporary
        os.replace(temporary, path)


@contextmanager
def temporary_beside(path: Path) -> Iterator[Path]:
    """A name in the same folder that no other process and no other thread uses; what stands there is removed."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
    finally:
        with suppress(OSError):  # where it could not be made, or has taken its place, there is nothing to remove
            temporary.unlink()


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a file by this content."""
    with replacing(path) as temporary:
        if isinstance(content, str):
            temporary.write_text(content)
        else:
            temporary.write_bytes(content)


def _error_number(failure: OSError | RuntimeError) -> int | None:
    """The system's number of an error; HDF5 tells it only in its text."""
    told = re.search(r"errno = (\d+)", str(failure))
    return int(told[1]) if told else getattr(failure, "errno", None)
