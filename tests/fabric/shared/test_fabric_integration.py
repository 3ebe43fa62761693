"""The shared-memory fabric on real ranks; what kills and stops them needs processes of its own, which run this file."""

import gc
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import pytest
import torch
from torch import Tensor
from torch._C._distributed_c10d import TCPStore

from deepex.errors import ConfigError, PeerError, TrainingError
from deepex.fabric import FABRICS, Fabric, FabricName, Rendezvous, SharedFabric, inside_node
from deepex.testing.ranks import on_ranks
from deepex.world import World
from tests.interpreter import PYTHON

SIZES = (1, 3, 7, 1000, 4097, 600_001)  # fewer than ranks, computed by all, in shares, in several windows
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
TIMEOUT_SECONDS = 1.0
REPOSITORY = Path(__file__).parents[3]


def noise(rank: int, numel: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """What a rank brings; peers can compute it too."""
    return torch.randn(numel, generator=torch.Generator().manual_seed(97 * rank + numel)).to(dtype)


def expected_mean(size: int, numel: int, dtype: torch.dtype) -> Tensor:
    """Added in rank order, in 32 bits at least, and rounded once."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    total = noise(0, numel, dtype).to(wide, copy=True)
    for rank in range(1, size):
        total += noise(rank, numel, dtype).to(wide)
    return (total / size).to(dtype)


def in_block(fabric: Fabric, values: Tensor) -> Tensor:
    """The same values at an odd place of a shared block."""
    words = -(-values.nbytes // 4)
    block = fabric.empty(words + 16)[8 : 8 + words]
    placed = block.view(torch.uint8)[: values.nbytes].view(values.dtype)
    return placed.copy_(values)


def check_means(fabric: Fabric) -> None:
    rank, size = fabric.world.rank, fabric.world.size
    for dtype in TYPES:
        for numel in SIZES:
            mine = noise(rank, numel, dtype)
            placed, anywhere = in_block(fabric, mine), mine.clone()
            mixed = anywhere.clone() if rank == 0 else in_block(fabric, mine)
            works = [fabric.mean_(each) for each in (placed, anywhere, mixed)]
            for work in works:
                work.wait()
            for each in (placed, anywhere, mixed):
                assert torch.equal(each, expected_mean(size, numel, dtype)), (size, dtype, numel)


def means_of_groups(fabric: Fabric) -> None:
    check_means(fabric)
    for members in ([0, 1], [0, 1, 2]):
        if fabric.world.rank in members:
            check_means(fabric.group(members))
    fabric.gather(None)


def test_means_of_two_three_and_four_ranks_have_the_bits_of_a_sum_in_rank_order() -> None:
    on_ranks(4, means_of_groups, fabric="shared")


def means_in_slices(fabric: Fabric) -> None:
    numel = 500_000
    whole, sliced = in_block(fabric, noise(fabric.world.rank, numel)), in_block(fabric, noise(fabric.world.rank, numel))
    fabric.mean_(whole).wait()
    works = [fabric.mean_(sliced[start : start + 33_333]) for start in range(0, numel, 33_333)]
    works[-1].wait()
    for work in works:
        work.wait()
    assert torch.equal(whole, sliced)
    taken = fabric.traffic.take()
    assert (taken.calls, taken.num_bytes) == (1 + len(works), 2 * 4 * numel)
    assert taken.busy_seconds > 0
    endless = torch.tensor([torch.inf, torch.inf, 3e38]) * (1 if fabric.world.is_first else torch.tensor([1, -1, 1]))
    with warnings.catch_warnings(action="error"):
        fabric.mean_(endless).wait()
    assert str(endless.tolist()) == "[inf, nan, inf]"
    weights = torch.nn.Parameter(noise(fabric.world.rank, 6).view(2, 3))
    fabric.mean_(weights).wait()
    assert torch.equal(weights.detach().view(-1), expected_mean(4, 6, torch.float32))


def test_a_mean_does_not_depend_on_how_a_block_is_cut() -> None:
    on_ranks(4, means_in_slices, fabric="shared")


def messages(fabric: Fabric) -> list[object]:
    rank, size = fabric.world.rank, fabric.world.size
    for tensor in (
        torch.full((3, 5), rank, dtype=torch.int64),
        torch.full((7,), rank == 2),
        torch.full((3_000_001,), rank, dtype=torch.uint8),
        torch.tensor(float(rank), dtype=torch.float64),
        torch.zeros(0, 3),
        in_block(fabric, torch.full((1_000_001,), float(rank))),
    ):
        fabric.broadcast_(tensor, source=2).wait()
        assert torch.equal(tensor, torch.full_like(tensor, 2)), tensor.dtype
    big = [bytes([each]) * (1 + each * 1_500_000) for each in range(size)]
    assert fabric.gather(big[rank]) == big
    work = fabric.mean_(value := torch.tensor([float(rank)]))
    gathered = fabric.gather({"rank": rank})  # comes after the mean, and carries it out
    assert value.item() == 1.5
    work.wait()
    return list(gathered)


def test_broadcast_and_gather_carry_anything() -> None:
    assert on_ranks(4, messages, fabric="shared") == [[{"rank": rank} for rank in range(4)]] * 4


def groups(fabric: Fabric) -> None:
    rank = fabric.world.rank
    alone = fabric.group([rank])
    value = torch.tensor([float(rank)])
    alone.mean_(value).wait()
    alone.broadcast_(value, source=0).wait()
    assert (value.item(), alone.gather(rank), alone.world.size) == (rank, [rank], 1)
    if rank != 3:
        three = fabric.group([2, 0, 1])
        assert three.gather(rank) == [2, 0, 1]
        if rank != 1:
            pair = three.group([1, 0])
            again = three.group([1, 0])
            assert (pair.ranks, pair.world.rank) == ([0, 2], {0: 0, 2: 1}[rank])
            assert (pair.gather(rank), again.gather(rank)) == ([0, 2], [0, 2])
            shared = fabric.empty(100_000).fill_(rank)  # a block belongs to the rank, not to a group
            again.mean_(shared).wait()
            assert shared.eq(1.0).all()
    fabric.gather(None)


def test_groups_of_groups_and_of_one() -> None:
    on_ranks(4, groups, fabric="shared")


def wait_in_a_circle(fabric: Fabric) -> list[float]:
    rank, size = fabric.world.rank, fabric.world.size
    pairs = {low: fabric.group([low, (low + 1) % size]) for low in sorted([rank, (rank - 1) % size])}
    left, right = torch.full((50_000,), float(rank)), torch.full((50_000,), float(rank))
    works = [pairs[(rank - 1) % size].mean_(left), pairs[rank].mean_(right)]
    for work in works:  # everyone first waits for the left one, who does not wait for it
        work.wait()
    return [left[-1].item(), right[-1].item()]


def test_ranks_that_wait_in_a_circle_come_through() -> None:
    expected = [[1.5, 0.5], [0.5, 1.5], [1.5, 2.5], [2.5, 1.5]]
    assert on_ranks(4, wait_in_a_circle, fabric="shared") == expected


def serve_and_train(fabric: Fabric) -> None:
    """A thread of rank 0 answers rank 3 while all ranks average."""
    rank, message, pair = fabric.world.rank, torch.zeros(20_000), None
    if rank in (0, 3):
        pair = fabric.group([0, 3])

    def serve(pair: Fabric) -> None:
        for _ in range(20):
            pair.broadcast_(message, source=1).wait()
            message.add_(1)
            pair.broadcast_(message, source=0).wait()

    thread = threading.Thread(target=serve, args=(pair,))
    if rank == 0:
        thread.start()
    block = fabric.empty(100_000).fill_(rank)
    for _ in range(20):
        fabric.mean_(block).wait()
        if pair is not None and rank == 3:
            pair.broadcast_(message, source=1).wait()
            pair.broadcast_(message, source=0).wait()
    if rank == 0:
        thread.join()
    assert block.eq(1.5).all()
    if pair is not None:
        assert message.eq(20.0).all()
    fabric.gather(None)


def test_a_thread_may_talk_in_one_group_while_the_rank_does_in_another() -> None:
    on_ranks(4, serve_and_train, fabric="shared")


def share_one_block(fabric: Fabric) -> list[float]:
    assert isinstance(fabric, SharedFabric)
    block = fabric.common(fabric.world.size + 1)
    block[fabric.world.rank] = 1.0
    fabric.gather(None)
    return list(block.tolist())


def test_a_common_block_is_one_memory() -> None:
    assert on_ranks(4, share_one_block, fabric="shared") == [[1.0, 1.0, 1.0, 1.0, 0.0]] * 4


def come_and_go(fabric: Fabric) -> tuple[int, int]:
    """How many more shared mappings a rank has after many blocks, and how many megabytes."""
    gc.collect()  # what earlier calls left in this process
    before = Path("/proc/self/maps").read_text().count("memfd:deepex")
    for _ in range(12):
        fabric.mean_(fabric.empty(2_000_000)).wait()
    fabric.gather(None)
    mappings = Path("/proc/self/maps").read_text().count("memfd:deepex") - before
    rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
    kilobytes = next(int(line.split()[1]) for line in rollup if line.startswith("Pss_Shmem"))
    fabric.gather(None)
    return mappings, kilobytes // 1000


def test_blocks_that_are_dropped_give_their_memory_back() -> None:
    for mappings, megabytes in on_ranks(4, come_and_go, fabric="shared"):
        assert mappings <= 8  # a block of each peer, and their headers at most
        assert megabytes < 30  # of 96 that each rank had


def disagree(fabric: Fabric) -> list[str]:
    rank, said = fabric.world.rank, []
    first = rank == 0
    mistakes: Sequence[Callable[[], object]] = (
        lambda: fabric.mean_(torch.zeros(10 if first else 11)).wait(),
        lambda: fabric.mean_(fabric.empty(900_000 if first else 800_000)).wait(),
        lambda: fabric.mean_(torch.zeros(10, dtype=torch.float64 if first else torch.float32)).wait(),
        lambda: fabric.broadcast_(torch.zeros(10), source=int(first)).wait(),
        lambda: fabric.gather(rank) if first else fabric.mean_(torch.zeros(10)).wait(),
    )
    for mistake in mistakes:
        with pytest.raises(TrainingError) as caught:
            mistake()
        said.append(str(caught.value).partition(": ")[2])
        assert fabric.gather(rank) == [0, 1, 2, 3]
    with pytest.raises(TypeError, match="floating"):
        fabric.mean_(torch.zeros(3, dtype=torch.int32))
    with pytest.raises(ValueError, match="not contiguous"):
        fabric.mean_(torch.zeros(3, 4).t())
    return said


def test_ranks_that_call_different_things_are_told_so() -> None:
    said = on_ranks(4, disagree, fabric="shared")
    assert said == [said[0]] * 4
    assert "rank 0: all-reduce of 10 float32; rank 1: all-reduce of 11 float32" in said[0][0]
    assert "rank 0: all-reduce of 900000 float32; rank 1: all-reduce of 800000 float32" in said[0][1]
    assert "rank 0: all-reduce of 10 float64; rank 1: all-reduce of 10 float32" in said[0][2]
    assert "rank 0: broadcast from 1 of 10 float32; rank 1: broadcast from 0 of 10 float32" in said[0][3]
    assert "rank 0: gather; rank 1: all-reduce of 10 float32" in said[0][4]


def stand_on_two_hosts(fabric: Fabric) -> tuple[str, list[int]]:
    assert fabric.rendezvous is not None
    with pytest.raises(ConfigError) as caught:
        SharedFabric(fabric.rendezvous)
    node = inside_node(fabric)
    assert node.name == "shared"
    return str(caught.value), node.gather(fabric.world.rank)


def test_it_is_for_one_host() -> None:
    told = on_ranks(4, stand_on_two_hosts, ranks_per_host=2)
    assert all("2 hosts (n1, n2)" in text and "--fabric torch" in text for text, _ in told)
    assert [members for _, members in told] == [[0, 1], [0, 1], [2, 3], [2, 3]]


def be_somebody_else(fabric: Fabric) -> tuple[str, str]:
    """What `shared` says, and by what ranks talk where they did not ask for it: all of them, or those of a node."""
    assert fabric.rendezvous is not None
    if fabric.world.rank == 1:
        os.seteuid(65534)
    try:
        with pytest.raises(ConfigError) as caught:
            SharedFabric(fabric.rendezvous)
        other = FABRICS["auto"](fabric.rendezvous) if isinstance(fabric, SharedFabric) else inside_node(fabric)
    finally:
        os.seteuid(os.getuid())
    tensor = torch.full((3,), float(fabric.world.rank))
    other.mean_(tensor).wait()
    assert tensor.tolist() == [1.5] * 3
    return str(caught.value), other.name


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("fabric", ["shared", "torch"])
def test_ranks_that_cannot_see_each_other_are_told_so_or_talk_by_the_network(fabric: FabricName) -> None:
    for text, chosen in on_ranks(4, be_somebody_else, fabric=fabric):
        assert "rank 1 of 4" in text
        assert "can't open the memory of its peers" in text
        assert chosen == "torch"


def test_peers_that_are_stopped_and_killed_are_named() -> None:
    """Rank 0 talks to rank 1, which is stopped, and then to rank 2, which is killed."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    before = set(os.listdir("/dev/shm"))  # noqa: PTH208  # names are what is compared
    ranks = [
        subprocess.Popen(
            [PYTHON, "-m", __name__, str(rank), str(store.port)],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        listening = ranks[0].stdout
        assert listening is not None
        for victim, how in ((1, signal.SIGSTOP), (2, signal.SIGKILL)):
            tell = ranks[victim].stdin
            assert tell is not None
            print("talk", file=tell, flush=True)
            assert listening.readline() == f"talking to {victim}\n"
            ranks[victim].send_signal(how)
            seconds, _, text = listening.readline().partition(" ")
            assert text.startswith(f"rank 0 of 3 on {World().host}: all-reduce failed: rank {victim} on {World().host}")
            if how == signal.SIGSTOP:
                assert "no sign of life" in text
                assert float(seconds) > TIMEOUT_SECONDS
            else:
                assert f"process {ranks[2].pid} has ended" in text
                assert float(seconds) < 2
        assert ranks[0].wait(timeout=20) == 0
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    new = set(os.listdir("/dev/shm")) - before  # noqa: PTH208
    assert not [name for name in new if "deepex" in name or any(str(rank.pid) in name for rank in ranks)]


def talk_until_lost(rank: int, port: int) -> None:
    world = World(rank=rank, size=3, local_rank=rank, local_size=3, launcher="test")
    rendezvous = Rendezvous(world, address=f"127.0.0.1:{port}", agent_store=True, timeout_seconds=60)
    fabric = SharedFabric(rendezvous)
    block = fabric.empty(1_000_000)
    pairs = {other: fabric.group([0, other]) for other in (1, 2) if rank in (0, other)}
    for other, pair in pairs.items():
        if rank != 0:
            sys.stdin.readline()
        rendezvous.timeout_seconds = 60
        pair.mean_(block).wait()
        rendezvous.timeout_seconds = TIMEOUT_SECONDS
        if rank == 0:
            print(f"talking to {other}", flush=True)
        try:
            while True:
                began = perf_counter()
                pair.mean_(block).wait()
        except PeerError as error:
            print(f"{perf_counter() - began:.3f} {error}", flush=True)


if __name__ == "__main__":
    talk_until_lost(int(sys.argv[1]), int(sys.argv[2]))
