"""A network of hosts inside one machine: namespaces, and the wire between them. A program of its own.

It is started by path, needs only the standard library, and knows nothing of ranks: `cluster.py` starts and steers it.
A host is a network with one device, a TAP, whose other end this program holds. It reads frames there, keeps each for as
long as a line of that rate and length would, and writes it to its receiver. All hosts are children of this program and
the kernel ends them with it, so that nothing can be left behind.
"""

import ctypes
import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import NoReturn

libc = ctypes.CDLL(None, use_errno=True)

# Numbers of the kernel's, which Python 3.11 has no names for.
CLONE_FS = 0x200
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = 1 << 17, 1 << 26, 1 << 27, 1 << 29, 1 << 30
OWN_SPACES = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
MS_BIND, MS_REC, MS_SLAVE = 1 << 12, 1 << 14, 1 << 19
PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29
TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
TUN_F_CSUM, TUN_F_TSO4 = 0x01, 0x02

HEADER_BYTES = 10  # of virtio_net_hdr, before each frame: flags, kind, bytes of headers, bytes of a segment, …
FRAME_BYTES = 2**16 + 14 + HEADER_BYTES  # at most
LAST_OF_ADDRESS = HEADER_BYTES + 5  # where a frame names its receiver

# A frame of TCP carries up to 64 kB through the wire in one piece, as from a kernel to its card; with 1.5 kB the wire
# would take seven times the time. It arrives when its last byte would, and holds a line for 5 ms at most.
SEGMENT_SECONDS = 0.005
SEGMENT_BYTES = (2**13, 2**16)
SEND_BUFFER_BYTES = 2**23
PORT_BUFFER_BYTES = 2**20  # what a switch keeps for one receiver when several send to it; it drops the rest

EARLY_SECONDS = 1e-4  # frames that are due so soon are due now: a timer comes as late, and wakes are what costs most
NEVER = float("inf")
READY = "ready"
SHARED_MEMORY = "/dev/shm"  # noqa: S108  # each host has its own

SETTINGS = {
    "ipv6/conf/eth0/disable_ipv6": "1",  # its announcements would cross the wire
    "ipv4/tcp_congestion_control": "reno",  # bbr and cubic slow down when acknowledgements queue behind data
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to make, and the process that it is for."""

    owner: int
    num_hosts: int
    bytes_per_second: float
    one_way_seconds: float


def main() -> None:
    """Make the hosts that the first argument describes, then forward frames until the owner is gone or says so."""
    plan = Plan(**json.loads(sys.argv[1]))
    owner = os.pidfd_open(plan.owner)
    try:
        hosts = [make_host(index, plan) for index in range(plan.num_hosts)]
    except OSError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        sys.exit(1)
    print(json.dumps({"hosts": [process for process, _ in hosts]}), flush=True)
    gc.disable()
    libc.prctl(PR_SET_TIMERSLACK, 1_000)  # nanoseconds, instead of 50 µs
    with suppress(OSError):  # where the kernel forbids it, frames come late while ranks compute
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    lines = [Line(device) for _, device in hosts]
    Wire(lines, plan.bytes_per_second, plan.one_way_seconds).run(owner, sys.stdin.fileno())
    for process, _ in hosts:
        os.kill(process, signal.SIGKILL)
    for process, _ in hosts:
        os.waitpid(process, 0)


class Line:
    """One host's line to the switch: its device, until when both directions are busy, and what is on its way here."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.is_cut = False
        self.out_busy_until = self.in_busy_until = 0.0
        self.coming: deque[tuple[float, bytes]] = deque()  # in the order of arrival


class Wire:
    """Forwards frames between lines, each line with a rate in both directions and all with the same delay."""

    def __init__(self, lines: Sequence[Line], bytes_per_second: float, one_way_seconds: float) -> None:
        self.lines = lines
        self.seconds_per_byte = 1 / bytes_per_second
        self.one_way_seconds = one_way_seconds
        self.buffer_seconds = PORT_BUFFER_BYTES / bytes_per_second

    def run(self, owner: int, control: int) -> None:
        """Forward until the owner's process ends or its control pipe says stop."""
        by_device = {line.device: line for line in self.lines}
        watched = [owner, control, *by_device]
        while True:
            ready, _, _ = select.select(watched, [], [], self._deliver())
            for file in ready:
                line = by_device.get(file)
                if line is not None:
                    self._take(line)
                elif file == owner or not self._obey(os.read(control, 4096)):
                    return

    def _take(self, sender: Line) -> None:
        """Read a frame that a host sends; it leaves when its line is free, and arrives when the receiver's is."""
        frame = os.read(sender.device, FRAME_BYTES)
        number = frame[LAST_OF_ADDRESS] - 1
        if sender.is_cut or not 0 <= number < len(self.lines):
            return
        receiver = self.lines[number]
        seconds = bytes_on_line(frame) * self.seconds_per_byte
        sender.out_busy_until = max(monotonic(), sender.out_busy_until) + seconds
        here = sender.out_busy_until + self.one_way_seconds
        arrival = max(here, receiver.in_busy_until + seconds)
        if receiver.is_cut or arrival - here > self.buffer_seconds:
            return
        receiver.in_busy_until = arrival
        receiver.coming.append((arrival, frame))

    def _deliver(self) -> float | None:
        """Hand over the frames that are due; the seconds until the next will be, or None."""
        now = monotonic() + EARLY_SECONDS
        first = NEVER
        for line in self.lines:
            coming = line.coming
            while coming:
                arrival, frame = coming[0]
                if arrival > now:
                    first = min(first, arrival)
                    break
                coming.popleft()
                os.write(line.device, frame)
        return None if first == NEVER else first - now

    def _obey(self, commands: bytes) -> bool:
        """Cut and heal lines; False when it is time to stop."""
        for command in commands.decode().splitlines():
            verb, _, number = command.partition(" ")
            if verb == "stop":
                return False
            line = self.lines[int(number)]
            line.is_cut = verb == "cut"
            line.coming.clear()
            print("done", flush=True)
        return bool(commands)


def bytes_on_line(frame: bytes) -> int:
    """What a frame costs on the line: one of many segments goes there as many frames, each with headers."""
    length = len(frame) - HEADER_BYTES
    if frame[1] == 0:
        return length
    header_bytes: int
    segment_bytes: int
    header_bytes, segment_bytes = struct.unpack_from("=HH", frame, 2)
    extra_frames = (length - header_bytes - 1) // segment_bytes
    return length + extra_frames * header_bytes


def make_host(index: int, plan: Plan) -> tuple[int, int]:
    """A host: the process that keeps it alive, and the wire's end of its network device."""
    own_processes = os.open("/proc/self/ns/pid", os.O_RDONLY)
    call(libc.unshare, OWN_SPACES & ~CLONE_NEWNS)
    device = open_device()
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        live_as_host(index, plan, writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        told = pipe.read().decode()
    if told != READY:
        raise OSError(told)
    call(libc.setns, own_processes, CLONE_NEWPID)  # else the next host would live inside this one
    os.close(own_processes)
    return process, device


def open_device() -> int:
    """A new TAP device eth0 in this network; frames come with a header, and 64 kB of TCP in one read."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))
    fcntl.ioctl(device, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4)
    return device


def live_as_host(index: int, plan: Plan, report: int) -> NoReturn:
    """The first process of a host: set it up, then wait to be killed; all processes of the host end with it."""
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        set_up_files(index, plan.num_hosts)
        set_up_network(index, plan)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries orphans
        os.write(report, READY.encode())  # fails if the wire has died meanwhile, and did not take this process along
    except (OSError, subprocess.CalledProcessError) as error:
        os.write(report, f"{error} {getattr(error, 'stderr', '')}".encode())
        os._exit(1)
    os.closerange(0, 1024)  # the wire's, devices of other hosts among them
    while True:
        signal.pause()


def set_up_files(index: int, num_hosts: int) -> None:
    """A host sees this machine's files, but its own name, names of hosts, processes and shared memory."""
    socket.sethostname(host_name(index))
    call(libc.unshare, CLONE_NEWNS)
    mount(None, "/", None, MS_REC | MS_SLAVE)
    mount("proc", "/proc", "proc")
    mount("tmpfs", SHARED_MEMORY, "tmpfs")
    names = [f"{address(other)} {host_name(other)}" for other in range(num_hosts)]
    mapped = [f"::ffff:{name}" for name in names]  # torch's store asks so, and warns of what it can't find
    file = Path(SHARED_MEMORY, "hosts")
    file.write_text("\n".join(["127.0.0.1 localhost", *names, *mapped, ""]))
    mount(str(file), "/etc/hosts", None, MS_BIND)
    file.unlink()


def set_up_network(index: int, plan: Plan) -> None:
    """Addresses and neighbours, fixed, so that nobody asks for them when a line is cut; and the rate of sending.

    The kernel's bucket holds senders back, as a card's queue does; the wire alone would let TCP fill its queues.
    """
    for key, value in SETTINGS.items():
        Path("/proc/sys/net", key).write_text(value)
    least, most = SEGMENT_BYTES
    segment = int(min(max(plan.bytes_per_second * SEGMENT_SECONDS, least), most))
    others = [other for other in range(plan.num_hosts) if other != index]
    commands = [
        "link set lo up",
        f"link set eth0 address {hardware_address(index)} gso_max_size {segment} up",
        f"address add {address(index)}/24 dev eth0",
        *(f"neighbour add {address(other)} lladdr {hardware_address(other)} dev eth0" for other in others),
    ]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, capture_output=True, check=True)
    burst = segment + segment // 10  # the bucket must hold the longest frame; a tenth is for headers
    bucket = f"rate {int(8 * plan.bytes_per_second)}bit burst {burst} limit {SEND_BUFFER_BYTES}"
    words = f"tc qdisc add dev eth0 root tbf {bucket}".split()
    subprocess.run(words, text=True, capture_output=True, check=True)


def host_name(index: int) -> str:
    return f"n{index + 1}"


def address(index: int) -> str:
    return f"10.0.0.{index + 1}"


def hardware_address(index: int) -> str:
    return f"02:00:00:00:00:{index + 1:02x}"


def mount(source: str | None, target: str, kind: str | None, flags: int = 0) -> None:
    words = [None if word is None else word.encode() for word in (source, target, kind)]
    call(libc.mount, *words, ctypes.c_ulong(flags), None)


def call(function: Callable[..., int], *arguments: object) -> None:
    """A call of the C library, with an error as exception."""
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function.__name__}: {os.strerror(number)}")


if __name__ == "__main__":
    main()
