"""The fabric with threads as ranks: all of it but that they are processes of their own."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from torch._C._distributed_c10d import TCPStore

from deepex.errors import PeerError, TrainingError
from deepex.fabric import Rendezvous, SharedFabric
from deepex.world import World
from tests.fabric.conftest import SECONDS, V, on_threads


@dataclass
class Ranks:
    """Ranks that have met, and do something together as often as asked."""

    fabrics: list[SharedFabric]

    def do(self, function: Callable[[SharedFabric], V]) -> list[V]:
        return on_threads(len(self.fabrics), lambda rank: function(self.fabrics[rank]))


@pytest.fixture(scope="module")
def ranks(server: TCPStore) -> Iterator[Ranks]:
    """Three of them."""
    address, worlds = f"127.0.0.1:{server.port}", [World(rank=rank, size=3, host="n") for rank in range(3)]
    rendezvous = [Rendezvous(world, address=address, agent_store=True, timeout_seconds=SECONDS) for world in worlds]
    yield Ranks(on_threads(3, lambda rank: SharedFabric(rendezvous[rank])))
    for each in rendezvous:
        each.heartbeat.leave("the tests are over", is_cause=False)


@pytest.mark.parametrize("numel", [5, 5000, 600_001])
@pytest.mark.parametrize("is_shared", [True, False], ids=["in blocks", "anywhere"])
def test_a_mean_is_that_of_all_ranks(ranks: Ranks, numel: int, is_shared: bool) -> None:
    def average(fabric: SharedFabric) -> torch.Tensor:
        tensor = fabric.empty(numel) if is_shared else torch.empty(numel)
        tensor.copy_(torch.arange(numel) * (1 + fabric.world.rank))
        fabric.mean_(tensor).wait()
        return tensor.clone()

    for mean in ranks.do(average):
        assert torch.equal(mean, 2.0 * torch.arange(numel))


@pytest.mark.parametrize("is_shared", [True, False], ids=["in blocks", "anywhere"])
def test_a_broadcast_brings_the_source_s_tensor(ranks: Ranks, is_shared: bool) -> None:
    def send(fabric: SharedFabric) -> torch.Tensor:
        tensor = fabric.empty(600_001) if is_shared else torch.empty(600_001)
        fabric.broadcast_(tensor.fill_(fabric.world.rank), source=1).wait()
        return tensor.clone()

    assert all(tensor.eq(1).all() for tensor in ranks.do(send))


def test_a_gather_brings_values_of_any_length(ranks: Ranks) -> None:
    values = ["short", "x" * 5_000_000, None]
    assert ranks.do(lambda fabric: fabric.gather(values[fabric.world.rank])) == [values] * 3


def test_several_collectives_under_way_keep_their_order(ranks: Ranks) -> None:
    def talk(fabric: SharedFabric) -> list[float]:
        fabric.traffic.take()
        tensors = [torch.full((1 + 10_000 * number,), float(fabric.world.rank * number)) for number in range(4)]
        works = [fabric.mean_(tensor) for tensor in tensors]
        for work in reversed(works):
            work.wait()
        return [tensor[-1].item() for tensor in tensors]

    assert ranks.do(talk) == [[0.0, 1.0, 2.0, 3.0]] * 3
    assert [fabric.traffic.take().calls for fabric in ranks.fabrics] == [4] * 3


def test_a_group_has_its_own_order_and_shares_blocks_and_traffic(ranks: Ranks) -> None:
    def use_group(fabric: SharedFabric) -> tuple[object, ...]:
        if fabric.world.rank == 1:
            return ()
        fabric.traffic.take()
        group = fabric.group([2, 0])
        block = fabric.empty(50_000).fill_(fabric.world.rank)
        group.mean_(block).wait()
        return group.world.rank, group.ranks, group.gather(fabric.world.rank), block[-1].item(), fabric.traffic.calls

    assert ranks.do(use_group) == [(1, [2, 0], [2, 0], 1.0, 1), (), (0, [2, 0], [2, 0], 1.0, 1)]


def test_a_common_block_is_one_memory(ranks: Ranks) -> None:
    def write(fabric: SharedFabric) -> list[float]:
        block = fabric.common(4)
        block[fabric.world.rank] = 1 + fabric.world.rank
        fabric.gather(None)
        return list(block.tolist())

    assert ranks.do(write) == [[1.0, 2.0, 3.0, 0.0]] * 3


def test_after_different_calls_all_are_told_and_can_go_on(ranks: Ranks) -> None:
    def differ(fabric: SharedFabric) -> str:
        with pytest.raises(TrainingError) as caught:
            fabric.mean_(torch.zeros(10 + fabric.world.rank)).wait()
        return str(caught.value).partition(": ")[2]

    [said] = set(ranks.do(differ))
    assert said.startswith(
        "ranks called different collectives: rank 0: all-reduce of 10 float32; rank 1: all-reduce of"
    )
    assert ranks.do(lambda fabric: fabric.gather(fabric.world.rank)) == [[0, 1, 2]] * 3


def test_the_error_of_an_earlier_collective_comes_up_where_either_is_waited_for(ranks: Ranks) -> None:
    def differ(fabric: SharedFabric) -> float:
        tensor = torch.full((3,), float(fabric.world.rank))
        wrong, right = fabric.mean_(torch.zeros(10 + fabric.world.rank)), fabric.mean_(tensor)
        for work in (right, wrong):
            with pytest.raises(TrainingError, match="different collectives"):
                work.wait()
        right.wait()
        return tensor[0].item()

    assert ranks.do(differ) == [1.0] * 3


def test_who_waits_for_one_that_has_left_is_told_so_each_time(ranks: Ranks) -> None:
    def part(fabric: SharedFabric) -> list[str]:
        group, errors = fabric.group([1, 2, 0]), list[str]()
        if fabric.world.rank == 2:
            group.close()
            return errors
        for _ in range(2):
            with pytest.raises(PeerError) as caught:
                group.gather(None)
            errors.append(str(caught.value))
        return errors

    for errors in ranks.do(part)[:2]:
        assert "gather failed: rank 2 on n has left" in errors[0]
        assert errors[1] == errors[0]


def test_a_rank_that_closes_a_group_has_not_left_the_others(ranks: Ranks) -> None:
    def close_group(fabric: SharedFabric) -> list[int]:
        group = fabric.group([0, 1, 2])
        group.close()
        return fabric.gather(fabric.world.rank)

    assert ranks.do(close_group) == [[0, 1, 2]] * 3
