"""Logs of JSON lines and files that change, read while ranks still write them. It knows no row's keys."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Content = TypeVar("Content")

TAIL_BYTES = 16_384


def parse_rows(text: str) -> list[dict[str, Any]]:
    r"""The rows of a log; a line that is not complete yet is left out.

    >>> parse_rows('{"epoch": 1}\n{"epo')
    [{'epoch': 1}]
    """
    rows = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def read_last_row(path: Path) -> dict[str, Any] | None:
    """The last complete row of a log, from its last bytes alone; None if there is none."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            tail = file.read()
    except OSError:
        return None
    rows = parse_rows(tail.decode(errors="replace"))
    return rows[-1] if rows else None


class ChangingFiles:
    """Files of a folder, each read again only when it has changed.

    Of one that can't be read at this moment, what was there before.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, tuple[tuple[int, int, int], Any]] = {}

    def read(self, name: str, parse: Callable[[str], Content], otherwise: Content) -> Content:
        """What `parse` makes of a file's text; `otherwise` if it was never there, or never whole."""
        known = self._known.get(name)
        try:
            state = (self.folder / name).stat()
            signature = state.st_mtime_ns, state.st_size, state.st_ino
            if known is None or known[0] != signature:
                known = self._known[name] = signature, parse((self.folder / name).read_text())
        except (OSError, ValueError):
            pass
        return otherwise if known is None else known[1]

    def written(self, *names: str) -> float:
        """When the newest of the files that were read was written, all or those of these names, as a unix time."""
        times = [signature[0] / 1e9 for name, (signature, _) in self._known.items() if not names or name in names]
        return max(times, default=0.0)
