"""Whether processes of this host have ended. It knows process numbers, and nothing of ranks."""

import os
import select
from collections.abc import Iterable
from contextlib import suppress


class ProcessWatch:
    """Watches processes; one that has ended counts as ended even before its parent has waited for it.

    Arguments:
        processes: their numbers. Each means the process that has it now, though the kernel may give it away again.
    """

    def __init__(self, processes: Iterable[int]) -> None:
        self._descriptors: dict[int, int] = {}
        for process in processes:
            with suppress(OSError, AttributeError):  # an old kernel, or one that forbids it: /proc tells too
                self._descriptors[process] = os.pidfd_open(process)

    def has_ended(self, process: int) -> bool:
        if process not in self._descriptors:
            return _is_absent(process)
        poll = select.poll()
        poll.register(self._descriptors[process], select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])


def _is_absent(process: int) -> bool:
    """The same by /proc, where a number that was given away again counts as alive."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True
