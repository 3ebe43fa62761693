"""Imports torch and deepex once, and forks a program for each client: `server.py SOCKET EXECUTABLE`.

It ends with the process that started it, which holds the other end of its standard input.
"""

import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

Request = dict[str, Any]


def serve(path: str) -> Request:
    """Answer clients for ever; returns in each program that a client asked for, with what it asked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the clients'
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that answer
    network = str(Path("/proc/self/ns/net").readlink())
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(64)
        while True:
            ready, _, _ = select.select([server, sys.stdin], [], [])
            if sys.stdin in ready:
                os._exit(0)
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                return _answer(connection, network)
            connection.close()


def _answer(connection: socket.socket, network: str) -> Request:
    """Fork the program of one client, in which this returns; here, wait for its end and tell it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    first, files = b"", list[int]()
    with suppress(ConnectionError):  # of a client that was killed
        connection.sendall(f"{network}\n".encode())
        first, files, _, _ = socket.recv_fds(connection, 4096, 250)
    if not first:  # or its program is none for this server
        os._exit(0)
    length, _, text = first.partition(b"\n")
    while len(text) < int(length):
        text += connection.recv(2**20)
    request: Request = json.loads(text)
    program = os.fork()
    if program == 0:
        connection.close()
        _take_place(request, files)
        return request
    for file in files:
        os.close(file)
    connection.sendall(f"{program}\n".encode())
    end = os.pidfd_open(program)
    ready, _, _ = select.select([end, connection.fileno()], [], [])
    if end not in ready:  # the client was killed
        os.kill(program, signal.SIGKILL)
    _, status = os.waitpid(program, 0)
    with suppress(BrokenPipeError):
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _take_place(request: Request, files: list[int]) -> None:
    """Become what the client is: its files, folder, variables and cores, in a session of its own."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    free = max([*request["files"], *files]) + 1
    moved = [os.dup2(file, free + place, inheritable=False) for place, file in enumerate(files)]
    for number, file in zip(request["files"], moved, strict=True):
        os.dup2(file, number)
    for file in {*files, *moved} - set(request["files"]):
        os.close(file)
    os.umask(request["umask"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    os.sched_setaffinity(0, request["cores"])
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        lines = number == 2 or os.isatty(number)
        stream = open(number, mode, buffering=1 if lines else -1, closefd=False, encoding="utf-8")  # noqa: SIM115  # stays open
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def run(words: list[str]) -> None:
    """Do what the interpreter does with its words."""
    while words[0] in ("-u", "-W"):
        option = words.pop(0)
        if option == "-u":
            sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]  # a file of `_take_place`
        else:
            warnings.simplefilter(words.pop(0))  # type: ignore[arg-type]  # `ignore`, in all that we start
    sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    kind = words[0]
    if kind == "-m":
        sys.argv = words[1:]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *words[2:]]
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(words[1], "<string>", "exec"), main.__dict__)  # noqa: S102  # as the interpreter does with -c
    else:
        sys.argv = words
        sys.path.insert(0, str(Path(words[0]).resolve().parent))
        with open(words[0], "rb") as file:
            code = compile(file.read(), words[0], "exec")
        main = sys.modules["__main__"] = ModuleType("__main__")
        main.__file__ = words[0]
        exec(code, main.__dict__)  # noqa: S102  # as the interpreter does with a script


if __name__ == "__main__":
    socket_path, executable = sys.argv[1:]
    sys.path.pop(0)  # this file's folder

    import deepex.cli.app
    import deepex.launch.rank  # noqa: F401  # with all that a rank needs

    gc.freeze()  # programs leave the pages of these modules alone
    sys.executable = executable
    run(serve(socket_path)["words"])
