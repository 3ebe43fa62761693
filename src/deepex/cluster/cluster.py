"""A cluster on one machine: hosts with networks of their own, lines with a rate and a length, links that can be cut.

The hosts are namespaces of the kernel and `wire.py` is the network between them. They share this machine's files and
nothing else: each has its own name, address, cores, processes and shared memory. Nothing here knows what runs there.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from sysconfig import get_path
from time import monotonic
from types import TracebackType
from typing import IO, Self

from deepex.cluster import wire
from deepex.errors import UsageError
from deepex.launch.launchers.torchrun import torchrun_variables

SYSTEM_PROGRAMS = ":/usr/sbin:/sbin"  # not on every user's PATH
FIRST_PORT = 29_500
MOST_HOSTS = 250
SECONDS_TO_END = 30.0


class Cluster:
    """Several hosts on this machine, from `with` to its end.

    Needs root, iproute2 and /dev/net/tun. When the block ends, or this process dies in any way, hosts, networks and all
    processes in them are gone; clusters never see each other.

    Cores are dealt to hosts in turn, and a host's processes stay on its own. Where some cores get more hosts than
    others, those are slower; a host's `cores` can be set before something is started there.

    Arguments:
        hosts: how many; they are called n1, n2, … and know each other by these names.
        megabits_per_second: of each host's line, in each direction. At 100 the wire takes an eighth of a core for four
            full lines; 1000 works too, at half a core.
        round_trip_ms: for a short message from host to host and back on idle lines. On full ones it waits its turn, for
            34 ms at 100 Mbit/s.

    Example:
        with Cluster(hosts=2, round_trip_ms=4.0) as cluster:
            ranks = cluster.launch(["deepex", "run", "protein"])
            cluster.hosts[1].cut()
            code = ranks.wait()
    """

    def __init__(self, *, hosts: int = 4, megabits_per_second: float = 100.0, round_trip_ms: float = 1.0) -> None:
        if not 1 <= hosts <= MOST_HOSTS:
            raise UsageError(f"a cluster of {hosts} hosts. Allowed: 1 to {MOST_HOSTS}. Choose a number in between.")
        if megabits_per_second <= 0 or round_trip_ms < 0:
            raise UsageError(
                f"lines of {megabits_per_second:g} Mbit/s and {round_trip_ms:g} ms. "
                "Allowed: more than 0 Mbit/s, and 0 ms or more. 100 and 1 are a slow cluster's."
            )
        self.num_hosts, self.megabits_per_second, self.round_trip_ms = hosts, megabits_per_second, round_trip_ms
        self.hosts: list[Host] = []
        self._launches = 0

    def __enter__(self) -> Self:
        _check_machine()
        plan = wire.Plan(
            owner=os.getpid(),
            num_hosts=self.num_hosts,
            bytes_per_second=self.megabits_per_second * 1e6 / 8,
            one_way_seconds=self.round_trip_ms / 2e3,
        )
        self.wire = subprocess.Popen(
            [sys.executable, "-I", "-S", wire.__file__, json.dumps(asdict(plan))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,  # a line at once
            env={**os.environ, "PATH": _path()},
            process_group=0,  # Ctrl-C is for the ranks
        )
        told = json.loads(self._read_reply() or '{"error": "its process died"}')
        if "error" in told:
            self.wire.communicate()
            raise UsageError(
                f"the kernel refused to make a host: {told['error'].strip()}. Allowed: root with all rights. "
                "In a container, start it with --privileged."
            )
        self.hosts = [Host(self, number, process) for number, process in enumerate(told["hosts"])]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(BrokenPipeError):  # a wire that was killed has taken the hosts along
            self._send("stop")
        for host in self.hosts:
            host.close()
        self.wire.communicate()

    def launch(
        self,
        command: Sequence[str],
        *,
        hosts: int | None = None,
        ranks_per_host: int = 1,
        env: Mapping[str, str] | None = None,
        output: Path | None = None,
    ) -> "Ranks":
        """Start a command on hosts, with the variables by which torchrun tells a process its rank.

        Arguments:
            command: program and arguments; programs beside this Python are found first.
            hosts: on how many, the first ones; None for all.
            ranks_per_host: how many to start on each.
            env: variables to add, for all ranks.
            output: a folder for all that ranks print, in rank0.txt, rank1.txt, …, or one file for all of them; without
                one rank 0's output is this process's, and of the other ranks only what they print as errors.
        """
        port = FIRST_PORT + self._launches
        self._launches += 1
        size = ranks_per_host * (hosts or len(self.hosts))
        processes = []
        for rank in range(size):
            variables = torchrun_variables(
                rank=rank, size=size, address=self.hosts[0].address, port=port, local_size=ranks_per_host
            )
            host = self.hosts[rank // ranks_per_host]
            with ExitStack() as stack:
                stdout: IO[str] | int | None = None if rank == 0 else subprocess.DEVNULL
                stderr: int | None = None
                if output is not None:
                    path = output / f"rank{rank}.txt" if output.is_dir() else output
                    mode = "w" if output.is_dir() else "a"
                    stdout, stderr = stack.enter_context(open(path, mode)), subprocess.STDOUT
                processes.append(host.popen(command, env={**variables, **(env or {})}, stdout=stdout, stderr=stderr))
        return Ranks(processes)

    def command_wire(self, command: str) -> None:
        """Have the wire do something, and wait until it is done."""
        self._send(command)
        self._read_reply()

    def _send(self, command: str) -> None:
        assert self.wire.stdin is not None
        self.wire.stdin.write(command + "\n")

    def _read_reply(self) -> str:
        assert self.wire.stdout is not None
        return self.wire.stdout.readline()


class Host:
    """One host of a cluster: a name, an address, a share of this machine's cores, and a line that can be cut."""

    def __init__(self, cluster: Cluster, number: int, first_process: int) -> None:
        self.name = wire.host_name(number)
        self.address = wire.address(number)
        self.cores = _share_of_cores(number, cluster.num_hosts)
        self._cluster, self._number = cluster, number
        self._first_process = os.pidfd_open(first_process)
        self._processes: list[subprocess.Popen[str]] = []

    def popen(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: IO[str] | int | None = subprocess.DEVNULL,
        stdout: IO[str] | int | None = None,
        stderr: IO[str] | int | None = None,
    ) -> "subprocess.Popen[str]":
        """Start a process on this host, with variables of its own beside this process's; it ends with the cluster."""
        own = {"PATH": _path(), "HOSTNAME": self.name, "GLOO_SOCKET_IFNAME": "eth0"}
        environment = {"OMP_NUM_THREADS": "1", **os.environ, **own, **(env or {})}
        folder = cwd or Path.cwd()

        def start() -> "subprocess.Popen[str]":
            # Cores and namespaces belong to threads, and a process is born with those of the thread that starts it.
            os.sched_setaffinity(0, self.cores)
            wire.call(wire.libc.unshare, wire.CLONE_FS)
            wire.call(wire.libc.setns, self._first_process, wire.OWN_SPACES)
            return subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                text=True,
                process_group=0,
            )

        with ThreadPoolExecutor(1) as thread:
            process = thread.submit(start).result()
        self._processes.append(process)
        return process

    def cut(self) -> None:
        """Pull the cable: from now on frames to and from this host are lost, and nobody is told."""
        self._cluster.command_wire(f"cut {self._number}")

    def heal(self) -> None:
        """Put the cable back."""
        self._cluster.command_wire(f"heal {self._number}")

    def kill(self) -> None:
        """Kill all processes of this host; its kernel tells peers so, unless the line was cut before."""
        self.popen(["sh", "-c", "kill -9 -1"]).wait()

    def close(self) -> None:
        """Wait for the processes of a host whose end has come."""
        for process in self._processes:
            process.wait()
        os.close(self._first_process)


class Ranks:
    """The processes of one launch, in rank order."""

    def __init__(self, processes: "Sequence[subprocess.Popen[str]]") -> None:
        self.processes = processes

    def wait(self, timeout_seconds: float | None = None, *, seconds_to_end: float = SECONDS_TO_END) -> int:
        """0 once all have ended well, or the exit code of the first that failed; above 128 it is a signal's.

        After a failure the other ranks have `seconds_to_end` to end by themselves, as long again after SIGTERM, and
        are killed then. After `timeout_seconds` TimeoutExpired is raised and ranks go on.
        """
        end = None if timeout_seconds is None else monotonic() + timeout_seconds
        code = _first_failure(self.processes)
        while code == 0 and (ended := self._wait_for_one(end)):
            code = _first_failure(ended)
        if code:
            self._end(seconds_to_end)
        return code if code >= 0 else 128 - code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to all ranks that live."""
        for process in self.processes:
            process.send_signal(number)

    def _end(self, seconds_to_end: float) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                end = monotonic() + seconds_to_end
                while self._wait_for_one(end):
                    pass
            except subprocess.TimeoutExpired:
                self.send_signal(number)
        for process in self.processes:
            process.wait()

    def _wait_for_one(self, end: float | None) -> "list[subprocess.Popen[str]]":
        """The processes that ended since the last call, once there is one; none when there are no more."""
        living = {os.pidfd_open(process.pid): process for process in self.processes if process.returncode is None}
        if not living:
            return []
        seconds = None if end is None else max(0.0, end - monotonic())
        try:
            ready, _, _ = select.select(list(living), [], [], seconds)
        finally:
            for file in living:
                os.close(file)
        if not ready:
            raise subprocess.TimeoutExpired(self.processes[0].args, seconds or 0.0)
        for file in ready:
            living[file].wait()
        return [living[file] for file in ready]


def _first_failure(processes: "Sequence[subprocess.Popen[str]]") -> int:
    return next((process.returncode for process in processes if process.returncode), 0)


def _share_of_cores(number: int, num_hosts: int) -> set[int]:
    """A host's cores: as many as each can have, or one that it shares with other hosts."""
    cores = sorted(os.sched_getaffinity(0))
    return set(cores[number::num_hosts]) or {cores[number % len(cores)]}


def _path() -> str:
    return f"{get_path('scripts')}:{os.environ.get('PATH', os.defpath)}{SYSTEM_PROGRAMS}"


def _check_machine() -> None:
    """Refuse a machine on which hosts can't be made, with what it lacks."""
    if sys.platform != "linux":
        raise UsageError(f"hosts are namespaces of the Linux kernel, and this is {sys.platform}. Use a Linux machine.")
    if os.geteuid() != 0:
        raise UsageError(f"making hosts needs root, and this is user {os.geteuid()}. Start it again with sudo.")
    missing = [program for program in ("ip", "tc") if shutil.which(program, path=_path()) is None]
    if missing:
        raise UsageError(
            f"making hosts needs the program{'s' * (len(missing) > 1)} {' and '.join(missing)}, and there is none. "
            "On Debian: apt-get install iproute2"
        )
    if not Path("/dev/net/tun").exists():
        raise UsageError("making networks needs /dev/net/tun, and there is none. Try: modprobe tun")
