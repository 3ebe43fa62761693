"""A stand-in for the interpreter: `client.py PYTHON SOCKET WORDS…`. It knows how to ask the server, and no deepex.

No pathlib here: its import takes as long as all the rest.
"""

import array
import json
import os
import signal
import socket
import sys
from types import FrameType
from typing import NoReturn

FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGQUIT")


def main() -> None:
    python, path, *words = sys.argv[1:]
    if not _fits(words):
        _run_as_usual(python, words)
    line = socket.socket(socket.AF_UNIX)
    try:
        line.connect(path)
    except OSError:
        _run_as_usual(python, words)
    lines = line.makefile("r")
    if lines.readline().strip() != os.readlink("/proc/self/ns/net"):  # noqa: PTH115  # as in the heading
        _run_as_usual(python, words)
    program = 0
    early: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        if program:
            _send(program, number)
        else:
            early.append(number)

    for name in FORWARDED:
        signal.signal(getattr(signal, name), forward)
    files = _open_files(line.fileno())
    umask = os.umask(0)
    os.umask(umask)
    request = {
        "words": words,
        "folder": os.getcwd(),  # noqa: PTH109  # as in the heading
        "environment": dict(os.environ),
        "cores": sorted(os.sched_getaffinity(0)),
        "umask": umask,
        "files": files,
    }
    text = json.dumps(request).encode()
    sent = array.array("i", files)
    line.sendmsg([f"{len(text)}\n".encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)])
    line.sendall(text)
    program = int(lines.readline())
    for number in early:
        _send(program, number)
    code = int(lines.readline() or -signal.SIGKILL)  # no answer: whoever waited for the program was killed
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _send(program: int, number: int) -> None:
    try:
        os.kill(program, number)
    except ProcessLookupError:  # it has ended; its exit code is on its way
        return


def _run_as_usual(python: str, words: list[str]) -> NoReturn:
    os.execv(python, [python, *words])  # noqa: S606  # the interpreter that this stands in for


def _fits(words: list[str]) -> bool:
    """Whether the program is one that the server can run: a module, a script or a text, with few options."""
    rest = list(words)
    while rest and rest[0] in ("-u", "-W"):
        rest = rest[2:] if rest[0] == "-W" else rest[1:]
    return bool(rest) and (rest[0] in ("-m", "-c") or rest[0].endswith(".py"))


def _open_files(own: int) -> list[int]:
    """Numbers of the open files that a program inherits, the three standard ones first."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  # as in the heading
        number = int(name)
        try:
            inherited = number <= 2 or os.get_inheritable(number)
        except OSError:  # the folder's own
            continue
        if inherited and number != own:
            found.append(number)
    return sorted(found)


if __name__ == "__main__":
    main()
