"""Blocks of two ranks, both of which are this process."""

import os
import warnings
from pathlib import Path

import pytest
import torch

from deepex.fabric.shared.blocks import Block, SharedBlocks
from deepex.fabric.shared.segment import Location


@pytest.fixture
def ranks() -> tuple[SharedBlocks, SharedBlocks]:
    processes = {0: os.getpid(), 1: os.getpid()}
    return SharedBlocks(processes), SharedBlocks(processes)


def locate(blocks: SharedBlocks, tensor: torch.Tensor) -> Location:
    location = blocks.locate(tensor)
    assert location is not None
    return location


def count_mappings(location: Location) -> int:
    """How often this process maps a file."""
    return sum(line.split()[4] == str(location.inode) for line in Path("/proc/self/maps").read_text().splitlines())


def test_a_tensor_in_a_block_is_found_and_reached_by_a_peer(ranks: tuple[SharedBlocks, SharedBlocks]) -> None:
    own, peer = ranks
    block = own.empty(1000)
    assert (block.dtype, block.shape, block.count_nonzero().item()) == (torch.float32, (1000,), 0)
    part = block[10:20].fill_(2.5)
    location = locate(own, part)
    assert location.start == 40
    view = peer.view(0, location, part.nbytes)
    assert view.view("float32").tolist() == [2.5] * 10
    view.view("float32")[3] = -1
    assert block[9:21].tolist() == [0.0, *[2.5] * 3, -1.0, *[2.5] * 6, 0.0]


def test_what_lies_elsewhere_is_not_in_a_block(ranks: tuple[SharedBlocks, SharedBlocks]) -> None:
    own, peer = ranks
    assert own.locate(torch.zeros(4)) is None
    assert own.locate(peer.empty(4)) is None
    assert own.empty(0).shape == (0,)
    assert own.locate(own.empty(0)) is None


def test_a_dropped_block_frees_its_memory_though_a_peer_maps_it(ranks: tuple[SharedBlocks, SharedBlocks]) -> None:
    own, peer = ranks
    block = own.empty(100_000).fill_(1)
    location, part = locate(own, block), block[7:]
    descriptor = os.open(f"/proc/self/fd/{location.descriptor}", os.O_RDONLY)
    try:
        view = peer.view(0, location, block.nbytes)
        del block
        assert view.any()  # a view is left here
        assert os.fstat(descriptor).st_blocks * 512 >= 400_000
        del part
        assert os.fstat(descriptor).st_blocks == 0
        assert not view.any()  # who still works on it reads zeros, and is not killed
    finally:
        os.close(descriptor)


def test_an_address_is_forgotten_with_its_block() -> None:
    locations: dict[int, Location] = {}
    block = Block(4000, locations)
    assert locations == {block.tensor().data_ptr(): block.location}
    del block
    assert locations == {}


def test_a_peer_s_block_is_mapped_once_and_unmapped_after_it_was_dropped(
    ranks: tuple[SharedBlocks, SharedBlocks],
) -> None:
    own, peer = ranks
    kept, dropped = own.empty(1000).fill_(3), own.empty(1000)
    kept_at, dropped_at = locate(own, kept), locate(own, dropped)
    for location in (kept_at, dropped_at, kept_at._replace(start=400)):
        peer.view(0, location, 40)
    assert (count_mappings(kept_at), count_mappings(dropped_at)) == (2, 2)  # the owner's and the peer's
    del dropped
    assert count_mappings(dropped_at) == 1
    another = own.empty(1000)
    peer.view(0, locate(own, another), 40)
    assert (count_mappings(kept_at), count_mappings(dropped_at)) == (2, 0)
    assert peer.view(0, kept_at, 4).view("float32") == 3


def test_a_block_that_was_dropped_can_t_be_opened(ranks: tuple[SharedBlocks, SharedBlocks]) -> None:
    own, peer = ranks
    block = own.empty(1000)
    location = locate(own, block)
    del block
    with pytest.raises((OSError, LookupError)):
        peer.view(0, location, 4)


def test_a_fork_that_drops_its_copy_leaves_the_block_alone(ranks: tuple[SharedBlocks, SharedBlocks]) -> None:
    own, _ = ranks
    block = own.empty(1000).fill_(4)
    descriptor = locate(own, block).descriptor
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of forks where there are threads
        child = os.fork()
    if child == 0:
        del block
        os._exit(int(Path(f"/proc/self/fd/{descriptor}").exists()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0  # the fork has dropped it
    assert block.eq(4).all()
    assert locate(own, block).descriptor == descriptor
