"""Starts a command that gets SIGTERM when its parent dies: `parent_death_signal.py PARENT WORDS…`.

It is a program of its own, since only a process itself can ask the kernel for that. It knows nothing of deepex.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel, and become the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(f"the process {sys.argv[1]} that wanted this is gone")
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606  # the words are a study's own


if __name__ == "__main__":
    main()
