"""A process that has imported deepex, and forks a new one for each call of the command: `command_server.py SOCKET`.

A call begins with everything imported, which otherwise takes two seconds of a core each time. It knows no tests.
"""

import json
import os
import signal
import socket
import sys

from deepex.cli.app import main


def serve(path: str) -> None:
    """Answer calls until the process that started this one closes its end of standard input."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        server.listen()
        print("ready", flush=True)
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                _answer(connection)
            connection.close()
            _reap()


def _answer(connection: socket.socket) -> None:
    """Run one call in a process of its own, and tell its exit code."""
    request, descriptors, _, _ = socket.recv_fds(connection, 2**20, 2)
    command = os.fork()
    if command == 0:
        connection.close()
        _run(json.loads(request), descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    connection.sendall(f"{command}\n".encode())
    _, status = os.waitpid(command, 0)
    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _run(request: dict[str, object], descriptors: list[int]) -> None:
    for number, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.setsid()
    os.chdir(str(request["folder"]))
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]  # a mapping of texts
    sys.argv = ["deepex", *request["words"]]  # type: ignore[misc]  # a list of texts
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


def _reap() -> None:
    """Let processes go that have answered."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


if __name__ == "__main__":
    serve(sys.argv[1])
