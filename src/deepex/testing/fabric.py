"""The contract of a fabric. `check_fabric` holds any fabric to it, on real ranks and with peers that really go."""

import hashlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from multiprocessing.connection import Connection
from time import monotonic
from typing import Literal, NoReturn, get_args

import torch
from torch import Tensor
from torch._C._distributed_c10d import TCPStore  # torch.distributed leaves it out of its types

from deepex.errors import PeerError
from deepex.fabric import Fabric, FabricName, Rendezvous, open_fabric
from deepex.launch.rank import leave
from deepex.testing.processes import clean_processes
from deepex.testing.ranks import on_ranks
from deepex.world import World

FLOATING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
OTHERS = (torch.int64, torch.uint8, torch.bool, torch.complex64)
NUMELS = (1, 2, 7, 1000, 400_009)  # fewer than ranks, odd, and more than any fabric takes at once
TIMEOUT_SECONDS = 6.0  # of ranks that are to lose a peer; on a busy machine they must still find each other in it
SECONDS_TO_TELL = 15.0  # after the timeout: to find out who is gone, one rank after the other
SECONDS_TO_END = 60.0  # until all have noticed and are gone

Fault = Literal["leave", "kill", "stop"]
FAULTS: tuple[Fault, ...] = get_args(Fault)


def check_fabric(name: FabricName, *, num_ranks: int = 3) -> None:
    """Raise AssertionError unless ranks of this machine that talk by the fabric find its promises kept.

    It must be one that any process can open; ranks that a launcher has to start call `hold_contract` themselves.

    Example: `check_fabric("torch", num_ranks=2)`
    """
    losses = [_Loss(name, num_ranks, fault) for fault in FAULTS]
    try:
        for loss in losses:
            loss.begin()
        on_ranks(num_ranks, hold_contract, fabric=name)  # while those of the losses wait
        for loss in losses:
            loss.check()
    finally:
        for loss in losses:
            loss.end()


def hold_contract(fabric: Fabric) -> None:
    """Raise AssertionError unless the fabric keeps its promises. Every rank of it calls this.

    1. A mean is right to rounding, the same bits on each rank and each time: any floating type, any size, slices, in
       memory of `empty` and in any other; what lies beside a slice stays as it was.
    2. A broadcast brings any type from any rank; `gather` brings any value of any size, in rank order.
    3. Several collectives can be under way and be waited for in any order, and twice.
    4. Groups are numbered as they were asked for; they may be disjoint, overlap, have the same members or one, stand in
       another group, and be used while their parent is.
    5. The traffic counts each collective once.
    """
    checks: tuple[Callable[[Fabric], None], ...] = (
        _check_means,
        _check_broadcasts,
        _check_gathering,
        _check_flight,
        _check_groups,
        _check_pairs,
        _check_meter,
    )
    for check in checks:
        check(fabric)


def _check_means(fabric: Fabric) -> None:
    first, second = _average_everything(fabric), _average_everything(fabric)
    assert first == second, "the same means have other bits when they are computed again"
    told = fabric.gather(first)
    for case in first:
        assert len({each[case] for each in told}) == 1, f"ranks have different bits after a mean of {case}"


def _average_everything(fabric: Fabric) -> dict[str, str]:
    """The mean of tensors of all kinds, checked against the exact one; a digest of its bits by kind."""
    rank, size = fabric.world.rank, fabric.world.size
    digests = {}
    for dtype, numel in product(FLOATING, NUMELS):
        values = [_values(each, numel, dtype) for each in range(size)]
        exact = torch.stack([value.double() for value in values]).mean(0)
        scale = torch.stack([value.double().abs() for value in values]).mean(0)
        allowed = size * torch.finfo(dtype).eps * (scale + torch.finfo(dtype).smallest_normal)
        for where, tensor, beside in _places(fabric, numel, dtype):
            case = f"{numel} {dtype} in {where}"
            tensor.copy_(values[rank])
            fabric.mean_(tensor).wait()
            off = (tensor.double() - exact).abs() - allowed
            assert (off <= 0).all(), f"the mean of {case} is wrong: {tensor[off.argmax()]} for {exact[off.argmax()]}"
            assert all((part == 7).all() for part in beside), f"a mean of {case} changed what lies beside it"
            digests[case] = hashlib.sha256(tensor.view(torch.uint8).numpy().tobytes()).hexdigest()
    return digests


def _places(fabric: Fabric, numel: int, dtype: torch.dtype) -> Iterator[tuple[str, Tensor, Sequence[Tensor]]]:
    """Tensors to average, in words and as such, and what lies before and behind them, full of sevens."""
    yield "a tensor", torch.empty(numel, dtype=dtype), []
    room = torch.full((numel + 5,), 7.0, dtype=dtype)
    yield "a slice", room[3:-2], [room[:3], room[-2:]]
    if dtype == torch.float32:
        block = fabric.empty(numel)
        assert block.dtype == dtype, f"empty gave {block.dtype}, not float32"
        assert (block == 0).all(), "empty gave a block that is not full of zeros"
        yield "a block of empty", block, []
        room = fabric.empty(numel + 5).fill_(7)
        yield "a slice of a block of empty", room[3:-2], [room[:3], room[-2:]]


def _check_broadcasts(fabric: Fabric) -> None:
    rank = fabric.world.rank
    for source, dtype in product(range(fabric.world.size), (*FLOATING, *OTHERS)):
        for shape in ((), (5, 3), (400_009,)):
            wanted = _values(source, shape, dtype)
            tensor = wanted.clone() if rank == source else torch.zeros(shape, dtype=dtype)
            fabric.broadcast_(tensor, source).wait()
            assert torch.equal(tensor, wanted), f"a broadcast of {shape} {dtype} from rank {source} brought {tensor}"


def _check_gathering(fabric: Fabric) -> None:
    rank, size = fabric.world.rank, fabric.world.size
    found = fabric.gather({"rank": rank, "text": "é" * rank})
    assert found == [{"rank": each, "text": "é" * each} for each in range(size)], f"gather brought {found}"
    large = fabric.gather(bytes([rank]) * (3_000_000 * rank + 1))
    assert large == [bytes([each]) * (3_000_000 * each + 1) for each in range(size)], "gather changed large values"
    nothing = fabric.gather(None)
    assert nothing == [None] * size, f"gather of nothing brought {nothing}"


def _check_flight(fabric: Fabric) -> None:
    """Several under way: waited for backwards, twice, and with a gather in between."""
    rank, size = fabric.world.rank, fabric.world.size
    means = [torch.full((numel,), float(rank + index)) for index, numel in enumerate((5, 300_000, 7, 2000))]
    half, sent = torch.full((999,), float(rank), dtype=torch.bfloat16), torch.full((11,), rank)
    works = [fabric.mean_(means[0]), fabric.mean_(half), fabric.mean_(means[1]), fabric.broadcast_(sent, size - 1)]
    assert fabric.gather(rank) == list(range(size)), "gather goes wrong while collectives are under way"
    works += [fabric.mean_(means[2]), fabric.mean_(means[3])]
    for work in (*reversed(works), *works):
        work.wait()
    middle = (size - 1) / 2
    for index, tensor in enumerate(means):
        assert torch.allclose(tensor, torch.tensor(middle + index)), f"mean {index} of several under way is wrong"
    assert torch.allclose(half.float(), torch.tensor(middle)), "a 16-bit mean among several under way is wrong"
    assert (sent == size - 1).all(), "a broadcast among several under way is wrong"


def _check_groups(fabric: Fabric) -> None:
    rank, size = fabric.world.rank, fabric.world.size
    members = range(size)
    middle = (size + 1) // 2
    half = fabric.group(members[:middle] if rank < middle else members[middle:])
    _use(half, members[:middle] if rank < middle else members[middle:], rank)
    _use(fabric.group([rank]), [rank], rank)
    backwards = fabric.group(members[::-1])
    _use(backwards, members[::-1], rank)
    twins = fabric.group(members[::-1]), fabric.group(members[::-1])
    _use(twins[1], members[::-1], rank)
    _use(twins[0], members[::-1], rank)
    inner = backwards.group([1, 0] if rank >= size - 2 else [size - 1 - rank])
    _use(inner, [size - 2, size - 1] if rank >= size - 2 else [rank], rank)
    whole, part = torch.full((70_000,), float(rank)), torch.full((70_000,), float(rank))
    works = [fabric.mean_(whole), half.mean_(part)]
    assert half.gather(rank) == list(half.ranks), "a group gathers wrongly while its parent averages"
    for work in works:
        work.wait()
    assert (whole == (size - 1) / 2).all(), "a mean is wrong while a group is used"
    assert (part == sum(half.ranks) / len(half.ranks)).all(), "a group's mean is wrong while its parent is used"


def _use(group: Fabric, members: Sequence[int], rank: int) -> None:
    """One of each collective in a group, whose members are known by their number outside."""
    members = list(members)
    place = group.world.rank, group.world.size
    assert place == (members.index(rank), len(members)), f"in a group of {members}, rank {rank} is {place}"
    assert group.gather(rank) == members, f"a group of {members} gathers in another order"
    sent, middle = torch.full((3,), rank), sum(members) / len(members)
    for dtype in (torch.float64, torch.bfloat16):
        tensor = torch.full((1000,), float(rank), dtype=dtype)
        group.mean_(tensor).wait()
        assert ((tensor - middle).abs() <= 0.02 * middle).all(), f"the mean in a group of {members} is {tensor[0]}"
    for source, member in enumerate(members):
        group.broadcast_(sent.fill_(rank), source).wait()
        assert (sent == member).all(), f"a broadcast from {source} in a group of {members} brought {sent[0]}"


def _check_pairs(fabric: Fabric) -> None:
    """Every rank in a pair with the next, so that each is in two, and a broadcast in a pair is a message."""
    rank, size = fabric.world.rank, fabric.world.size
    pairs = {
        first: fabric.group([first, (first + 1) % size]) for first in range(size) if rank in (first, (first + 1) % size)
    }
    boxes = {first: torch.full((50_000,), float(rank)) for first in pairs}
    # Each starts with its own pair: a circle, in which nobody gets on who must wait for one collective to do the next.
    order = sorted(pairs, key=lambda first: (first != rank, first))
    works = {first: pairs[first].broadcast_(boxes[first], 0) for first in order}
    for first in order if fabric.overlaps else sorted(pairs):
        works[first].wait()
    for first, box in boxes.items():
        assert (box == first).all(), f"a message from rank {first} brought {box[0]}"


def _check_meter(fabric: Fabric) -> None:
    fabric.gather(None)
    fabric.traffic.take()
    begun = monotonic()
    works = [fabric.mean_(torch.ones(1000)), fabric.broadcast_(torch.ones(10, dtype=torch.float64), 0)]
    for work in works * 2:
        work.wait()
    taken, lasted = fabric.traffic.take(), monotonic() - begun
    assert (taken.calls, taken.num_bytes) == (2, 4080), f"4,080 bytes in 2 collectives were counted as {taken}"
    assert 0 <= taken.waited_seconds <= lasted, f"in {lasted} s, {taken.waited_seconds} s were waited"
    assert 0 <= taken.busy_seconds <= 2 * lasted, f"2 collectives in {lasted} s took {taken.busy_seconds} s"
    assert fabric.traffic.take().calls == 0, "a collective that is waited for again is counted again"


def lose_peer(fabric: Fabric, fault: Fault) -> None:
    """Let the last rank go, and raise AssertionError unless all others get an error in time that names it.

    Every rank of the fabric calls this. The last one raises `Gone`, is killed or is stopped: it does not return.
    """
    assert fabric.rendezvous is not None
    last, timeout_seconds = fabric.world.size - 1, fabric.rendezvous.timeout_seconds
    host = fabric.gather(fabric.world.host)[last]
    if fabric.world.rank == last:
        _go(fault)
    begun = monotonic()
    try:
        fabric.mean_(torch.ones(1_000_000)).wait()
        fabric.gather(None)
        told = ""
    except PeerError as error:
        told = str(error)
    lasted = monotonic() - begun
    assert told, f"{fabric.world} did not notice that rank {last} was gone ({fault})"
    assert f"rank {last} on {host}" in told, f"the error does not name rank {last} on {host}: {told}"
    assert lasted < timeout_seconds + SECONDS_TO_TELL, f"the error came after {lasted:.0f} s"


class _Loss:
    """Ranks in processes of their own, and the last of them goes."""

    def __init__(self, name: FabricName, num_ranks: int, fault: Fault) -> None:
        context = clean_processes()
        self.fault, self.store = fault, TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        pipes = [context.Pipe() for _ in range(num_ranks)]
        self.ranks = [here for here, _ in pipes]
        address = f"127.0.0.1:{self.store.port}"
        self.processes = [
            context.Process(target=_rank_of_loss, args=(rank, num_ranks, address, name, fault, there))
            for rank, (_, there) in enumerate(pipes)
        ]
        for process in self.processes:
            process.start()

    def begin(self) -> None:
        """Let the ranks go, once all of them have started, however long that took."""
        for rank in self.ranks:
            rank.recv()
        for rank in self.ranks:
            rank.send("go")

    def check(self) -> None:
        """Raise AssertionError unless all ranks but the last noticed in time, and could leave after that."""
        end = monotonic() + SECONDS_TO_END
        for number, rank in enumerate(self.ranks[:-1]):
            assert rank.poll(max(0.0, end - monotonic())), f"rank {number} still waits for a peer ({self.fault})"
            problem = rank.recv()
            assert not problem, f"rank {number}, when a peer was lost ({self.fault}): {problem}"
        for number, process in enumerate(self.processes[:-1]):
            process.join(max(0.0, end - monotonic()))
            assert process.exitcode == 0, f"rank {number} left with {process.exitcode}, after a loss ({self.fault})"

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


def _rank_of_loss(rank: int, size: int, address: str, name: FabricName, fault: Fault, starter: Connection) -> None:
    """One rank of a loss; tells what went wrong, or an empty text."""
    torch.set_num_threads(1)
    starter.send("ready")
    starter.recv()
    problem = "nothing happened"
    try:
        world = World(rank=rank, size=size, local_rank=rank, local_size=size, launcher="test")
        rendezvous = Rendezvous(world, address=address, agent_store=True, timeout_seconds=TIMEOUT_SECONDS)
        with open_fabric(name, rendezvous) as fabric:
            lose_peer(fabric, fault)
            problem = ""
            raise PeerError("a peer was lost, as planned")  # survivors leave as they would
    except PeerError as error:
        problem = problem and str(error)
    except (AssertionError, Gone) as error:
        problem = str(error)
    starter.send(problem)
    leave(0)


class Gone(Exception):  # noqa: N818  # what a rank says that leaves, not an error
    """Why the last rank leaves."""


def _go(fault: Fault) -> NoReturn:
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    raise Gone("it had to")


def _values(rank: int, shape: int | Sequence[int], dtype: torch.dtype) -> Tensor:
    """What a rank holds: different on each, known to all."""
    noise = torch.Generator().manual_seed(rank)
    shape = [shape] if isinstance(shape, int) else shape
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=noise).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 200, shape, generator=noise).to(dtype)
