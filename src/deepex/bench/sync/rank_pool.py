"""Pools: the ranks of one variant as processes that sleep until they are told to do something, and answer.

Commands and answers are lines of JSON through a socket in the file system, which hosts of a cluster see too though they
share no network with this process. It knows processes and their answers, and nothing of what they compute.
"""

import json
import os
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from sysconfig import get_path
from time import monotonic
from typing import Any

from torch._C._distributed_c10d import TCPStore  # torch.distributed leaves it out of its types

from deepex.bench.sync.rows import NetworkName
from deepex.errors import TrainingError
from deepex.launch.launchers.torchrun import torchrun_variables

Process = subprocess.Popen[str]
Start = Callable[[Sequence[str], Path], Sequence[Process]]
"""Starts a command as ranks, which write what they print to `rank*.txt` in a folder."""

SECONDS_TO_START = 180.0  # importing torch in many processes on few cores takes long
SECONDS_TO_ANSWER = 300.0
SECONDS_TO_END = 10.0


@dataclass(frozen=True, kw_only=True)
class Network:
    """Where ranks stand, how many they are, and how they are started there."""

    name: NetworkName
    num_ranks: int
    start: Start


def local_network(num_ranks: int) -> Network:
    """Ranks of this machine, one thread each, which find each other as under torchrun."""
    return Network(name="local", num_ranks=num_ranks, start=lambda words, folder: _start(words, folder, num_ranks))


def mpi_network(num_ranks: int) -> Network:
    """Ranks of this machine under mpirun."""
    return Network(name="local", num_ranks=num_ranks, start=lambda words, folder: [_mpirun(words, folder, num_ranks)])


def find_mpirun() -> str | None:
    """The mpirun beside this Python, or the user's."""
    return shutil.which("mpirun", path=f"{get_path('scripts')}:{os.environ.get('PATH', os.defpath)}")


class Channel:
    """A connection to one rank, a message a line of text."""

    def __init__(self, end: socket.socket) -> None:
        self.end, self.file = end, end.makefile("rw")

    def write(self, message: Mapping[str, Any]) -> None:
        """Send a message; one to a rank that is gone is lost, and its silence will be told."""
        with suppress(OSError):
            self.file.write(json.dumps(message) + "\n")
            self.file.flush()

    def read(self, seconds: float) -> dict[str, Any] | None:
        """The next message; None if the rank is gone. TimeoutError if there is none within some seconds."""
        if not select.select([self.end], [], [], max(0.0, seconds))[0]:
            raise TimeoutError
        told = self.file.readline()
        return dict(json.loads(told)) if told else None

    def close(self) -> None:
        with suppress(OSError):  # what was still to be sent has nobody to read it
            self.file.close()
        self.end.close()


class RankPool:
    """The ranks of one variant, under command."""

    def __init__(self, name: str, folder: Path, processes: Sequence[Process]) -> None:
        self.name, self.folder, self.processes = name, folder, processes
        self.channels: dict[int, Channel] = {}
        self.has_failed = False

    def wait_until_ready(self, listener: socket.socket, num_ranks: int) -> None:
        """Wait until all ranks have connected and said their number."""
        end = monotonic() + SECONDS_TO_START
        listener.settimeout(0.5)
        while len(self.channels) < num_ranks:
            try:
                channel = Channel(listener.accept()[0])
            except TimeoutError:
                if monotonic() > end or any(process.poll() for process in self.processes):
                    raise self._failure("was not ready") from None
                continue
            try:
                hello = channel.read(end - monotonic())
            except TimeoutError:
                hello = None
            if hello is None:
                channel.close()
                raise self._failure("was not ready")
            self.channels[hello["rank"]] = channel

    def request(self, do: str, *, ranks: Sequence[int] | None = None, **arguments: Any) -> list[dict[str, Any]]:
        """Have all ranks do something; the answers of all, or of some that alone matter, by rank."""
        end = monotonic() + SECONDS_TO_ANSWER
        for channel in self.channels.values():
            channel.write({"do": do, **arguments})
        answers = []
        for rank in sorted(self.channels) if ranks is None else ranks:
            try:
                answer = self.channels[rank].read(end - monotonic())
            except TimeoutError:
                raise self._failure(f"had no answer to '{do}' within {SECONDS_TO_ANSWER:g} s") from None
            if answer is None:
                raise self._failure("ended by itself")
            answers.append(answer)
        return answers

    def end(self) -> None:
        """Let ranks go; those that do not listen are ended."""
        for channel in self.channels.values():
            channel.write({"do": "end"})
        end_all(self.processes, 0.0 if self.has_failed else SECONDS_TO_END)
        for channel in self.channels.values():
            channel.close()

    def _failure(self, what: str) -> TrainingError:
        """What went wrong, by the last words of a rank that tells its own cause rather than a peer's."""
        with suppress(subprocess.TimeoutExpired):
            for process in self.processes:
                process.wait(1.0)
        self.has_failed = True
        texts = [path.read_text(errors="replace").strip() for path in sorted(self.folder.glob("rank*.txt"))]
        words = sorted((text.splitlines()[-1] for text in texts if text), key=lambda line: "PeerError" in line)
        return TrainingError(f"{self.name} {what}: {words[0] if words else 'without a word'}")


@contextmanager
def start_pool(name: str, network: Network, folder: Path, spec: Mapping[str, Any]) -> Iterator[RankPool]:
    """The ranks of a variant, ready for commands; `folder` is made, and `spec` is what rank.py is told."""
    folder.mkdir(parents=True)
    control = folder / "control"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(control))
        listener.listen(network.num_ranks)
        told = json.dumps({"control": str(control), **spec})
        command = [sys.executable, "-W", "ignore", "-m", "deepex.bench.sync.rank", told]
        pool = RankPool(name, folder, network.start(command, folder))
        try:
            pool.wait_until_ready(listener, network.num_ranks)
            yield pool
        finally:
            pool.end()


def end_all(processes: Sequence[Process], patience_seconds: float) -> None:
    """Wait for processes for a while, then ask them to end, then end them."""
    for signal_them in (Process.terminate, Process.kill):
        end = monotonic() + patience_seconds
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - monotonic()))
        for process in processes:
            if process.poll() is None:
                signal_them(process)
        patience_seconds = 5.0
    for process in processes:
        process.wait()


def _start(words: Sequence[str], folder: Path, num_ranks: int) -> list[Process]:
    # This process serves the rendezvous, so that no port is chosen twice; it lasts as long as the process.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    _stores.append(store)
    processes = []
    for rank in range(num_ranks):
        variables = torchrun_variables(
            rank=rank, size=num_ranks, address="127.0.0.1", port=store.port, agent_store=True
        )
        processes.append(_popen(words, folder / f"rank{rank}.txt", variables))
    return processes


def _mpirun(words: Sequence[str], folder: Path, num_ranks: int) -> Process:
    mpirun = find_mpirun()
    assert mpirun is not None, "asked for only where there is one"
    return _popen([mpirun, "-n", str(num_ranks), *words], folder / "ranks.txt", {})


def _popen(words: Sequence[str], output: Path, variables: Mapping[str, str]) -> Process:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    with open(output, "w") as file:
        return subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, text=True
        )


_stores: list[TCPStore] = []
