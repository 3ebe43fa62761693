"""A cluster of hosts on this machine: its lines have the rate and the length that were asked for, and nothing stays."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from deepex.cluster.cluster import Cluster, Host
from deepex.errors import UsageError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making hosts needs root")
MEGABITS_PER_SECOND = 100.0
ROUND_TRIP_MS = 4.0

ECHO = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as echo:
    echo.bind(("", 5000))
    print("ready", flush=True)
    while True:
        echo.sendto(*echo.recvfrom(2048))
"""

PING = """
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ping:
    ping.settimeout(0.5)
    times = []
    for _ in range(50):
        start = time.perf_counter()
        ping.sendto(b"!", (sys.argv[1], 5000))
        try:
            ping.recv(10)
        except TimeoutError:
            sys.exit("silence")
        times.append(time.perf_counter() - start)
    print(1000 * min(times))  # the others have waited for a core
"""

SINK = """
import socket, time
with socket.create_server(("", 6000)) as server:
    print("ready", flush=True)
    stream, _ = server.accept()
    bytes_read, start = 0, time.perf_counter()
    while data := stream.recv(2**20):
        bytes_read += len(data)
    print(8e-6 * bytes_read / (time.perf_counter() - start))
"""

STREAM = """
import socket, sys
with socket.create_connection((sys.argv[1], 6000)) as stream:
    stream.sendall(bytes(10_000_000))
"""

ALL_REDUCE = """
import os, sys
from datetime import timedelta
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=2))
dist.all_reduce(torch.ones(1))
print("met", flush=True)
sys.stdin.readline()
try:
    dist.all_reduce(torch.ones(1))
except RuntimeError as error:
    print("error" if "imed out" in str(error) else error, flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(hosts=2, megabits_per_second=MEGABITS_PER_SECOND, round_trip_ms=ROUND_TRIP_MS) as cluster:
        yield cluster


def start(host: Host, program: str, *words: str, env: dict[str, str] | None = None) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return host.popen([sys.executable, "-c", program, *words], env=env, stdin=pipe, stdout=pipe, stderr=pipe)


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_hosts_have_names_that_others_know(cluster: Cluster) -> None:
    program = "import socket; print(socket.gethostname(), socket.gethostbyname('n1'), socket.gethostbyname('n2'))"
    addresses = [host.address for host in cluster.hosts]
    for host in cluster.hosts:
        with start(host, program) as process:
            assert line_of(process).split() == [host.name, *addresses]


def test_a_message_takes_as_long_as_was_asked(cluster: Cluster) -> None:
    with start(cluster.hosts[0], ECHO) as echo:
        try:
            assert line_of(echo) == "ready"
            with start(cluster.hosts[1], PING, "n1") as ping:
                assert 0.8 < float(line_of(ping)) / ROUND_TRIP_MS < 2
        finally:
            echo.kill()


def test_a_stream_is_as_fast_as_was_asked(cluster: Cluster) -> None:
    with start(cluster.hosts[0], SINK) as sink:
        assert line_of(sink) == "ready"
        with start(cluster.hosts[1], STREAM, "n1"):
            assert 0.6 < float(line_of(sink)) / MEGABITS_PER_SECOND < 1.05


def test_a_cut_line_is_silent_until_it_is_healed(cluster: Cluster) -> None:
    with start(cluster.hosts[0], ECHO) as echo:
        assert line_of(echo) == "ready"
        cluster.hosts[0].cut()
        with start(cluster.hosts[1], PING, "n1") as ping:
            assert ping.communicate()[1].strip() == "silence"
        cluster.hosts[0].heal()
        with start(cluster.hosts[1], PING, "n1") as ping:
            assert float(line_of(ping)) > 0
        echo.kill()


def test_ranks_on_both_sides_of_a_cut_line_get_errors(cluster: Cluster) -> None:
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "n1", "MASTER_PORT": "7000"}
    ranks = [start(host, ALL_REDUCE, env={**variables, "RANK": str(rank)}) for rank, host in enumerate(cluster.hosts)]
    for rank in ranks:
        assert line_of(rank) == "met"
    cluster.hosts[1].cut()
    try:
        for rank in ranks:
            assert rank.stdin is not None
            rank.stdin.write("go\n")
            rank.stdin.flush()
        assert [rank.communicate(timeout=20)[0].strip() for rank in ranks] == ["error", "error"]
    finally:
        cluster.hosts[1].heal()


def test_ranks_of_a_launch_know_their_place(cluster: Cluster, tmp_path: Path) -> None:
    program = "import os; print(*(os.environ[name] for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'MASTER_ADDR')))"
    ranks = cluster.launch([sys.executable, "-c", program], ranks_per_host=2, output=tmp_path)
    assert ranks.wait(timeout_seconds=20) == 0
    told = [(tmp_path / f"rank{rank}.txt").read_text().split() for rank in range(4)]
    assert told == [[str(rank), "4", str(rank % 2), cluster.hosts[0].address] for rank in range(4)]


def test_a_failed_rank_ends_the_others(cluster: Cluster, tmp_path: Path) -> None:
    program = "import os, sys, time; sys.exit(3) if os.environ['RANK'] == '1' else time.sleep(100)"
    ranks = cluster.launch([sys.executable, "-c", program], output=tmp_path)
    assert ranks.wait(timeout_seconds=20, seconds_to_end=0.1) == 3
    assert [process.returncode for process in ranks.processes] == [-signal.SIGTERM, 3]


def test_a_killed_host_has_no_processes(cluster: Cluster) -> None:
    with start(cluster.hosts[0], "import time; time.sleep(100)") as process:
        cluster.hosts[0].kill()
        assert process.wait(timeout=10) == -signal.SIGKILL


@pytest.mark.parametrize("with_wire", [True, False])
def test_nothing_is_left_after_an_error(with_wire: bool) -> None:
    watched = []
    with suppress(ZeroDivisionError), Cluster(hosts=2) as cluster:
        watched = watch(cluster)
        if not with_wire:
            cluster.wire.kill()
        1 / 0  # noqa: B018  # an error of the block's own
    assert_ended(watched)


OWNER = """
import sys
from deepex.cluster.cluster import Cluster
with Cluster(hosts=2) as cluster:
    cluster.hosts[0].popen(["sleep", "1000"])
    print(cluster.wire.pid, flush=True)
    sys.stdin.readline()
"""


def test_nothing_is_left_when_the_owner_is_killed() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", OWNER], stdin=pipe, stdout=pipe, text=True) as owner:
        wire = int(line_of(owner))
        watched = [os.pidfd_open(process) for process in (wire, *processes_in_hosts(wire))]
        assert len(watched) == 4  # the wire, each host's first process, and the one that sleeps
        owner.kill()
        assert_ended(watched)


def watch(cluster: Cluster) -> list[int]:
    """All processes of a cluster, some in the background of a shell among them."""
    shell = cluster.hosts[0].popen(["sh", "-c", "sleep 1000 & echo; sleep 1000"], stdout=subprocess.PIPE)
    line_of(shell)
    assert shell.stdout is not None
    shell.stdout.close()
    return [os.pidfd_open(process) for process in (cluster.wire.pid, *processes_in_hosts(cluster.wire.pid))]


def assert_ended(watched: list[int]) -> None:
    assert len(watched) >= 4
    for process in watched:
        assert select.select([process], [], [], 20)[0], "a process lives on, and its host with it"
        os.close(process)


def processes_in_hosts(wire: int) -> list[int]:
    first = Path(f"/proc/{wire}/task/{wire}/children").read_text().split()
    hosts = {Path(f"/proc/{process}/ns/pid").readlink() for process in first}
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # ended meanwhile, or the machine's own
            if (entry / "ns/pid").readlink() in hosts:
                found.append(int(entry.name))
    return found


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ({"hosts": 0}, {"megabits_per_second": 0.0}, {"round_trip_ms": -1.0}):
        with pytest.raises(UsageError, match="Allowed"):
            Cluster(**wrong)
    monkeypatch.setattr("deepex.cluster.cluster.SYSTEM_PROGRAMS", "")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="apt-get install iproute2"), Cluster():
        pass


def test_the_command_runs_ranks_on_hosts(tmp_path: Path) -> None:
    program = "import os, socket, sys; print(socket.gethostname()); sys.exit(7 * (os.environ['RANK'] == '1'))"
    command = [sys.executable, "-m", "deepex", "cluster", "--hosts", "2", "--", "python", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (7, "n1\n", "")
