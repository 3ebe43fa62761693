"""A slot as its owner has it and as a peer maps it, both in this process."""

import os

import pytest
import torch

from deepex.fabric.shared.barrier import COUNTER_WORDS
from deepex.fabric.shared.peer_slot import (
    BROADCAST,
    DTYPES,
    GATHER,
    MEAN,
    WINDOW_BYTES,
    CallHeader,
    PeerSlot,
)
from deepex.fabric.shared.segment import Location, open_peer


@pytest.fixture
def slots() -> tuple[PeerSlot, PeerSlot]:
    """The owner's, and the peer's view of it."""
    segment = PeerSlot.segment()
    return PeerSlot(segment), PeerSlot(open_peer(os.getpid(), segment.location))


def header(numel: int) -> CallHeader:
    return CallHeader.of(MEAN, torch.zeros(numel), 0, Location(2**40 + numel, 17, 64 * numel))


def test_a_peer_sees_the_counter_the_header_and_the_window(slots: tuple[PeerSlot, PeerSlot]) -> None:
    own, peer = slots
    own.counter[0] = 5
    own.write(header(12), 5)
    own.window(5)[:3] = [1, 2, 3]
    assert peer.counter[0] == 5
    assert peer.read(5) == header(12)
    assert peer.window(5)[:4].tolist() == [1, 2, 3, 0]


def test_a_header_and_a_window_stay_until_the_arrival_after_the_next(slots: tuple[PeerSlot, PeerSlot]) -> None:
    own, late = slots
    for count in range(1, 9):
        own.write(header(count), count)
        own.window(count)[:] = count
        own.write(header(count + 1), count + 1)  # one ahead of the peer, which still reads
        own.window(count + 1)[:] = count + 1
        assert late.read(count) == header(count)
        assert (late.window(count) == count).all()
        assert late.read(count + 1) == header(count + 1)
        assert (late.window(count + 1) == count + 1).all()


def test_nothing_in_a_slot_overlaps(slots: tuple[PeerSlot, PeerSlot]) -> None:
    own, peer = slots
    for turn in range(2):
        own.window(turn)[:] = 0xFF
        assert len(own.window(turn)) == WINDOW_BYTES
    for word in range(COUNTER_WORDS):
        own.counter[word] = -word
    for turn in range(2):
        own.write(header(turn), turn)
    assert list(peer.counter) == [-word for word in range(COUNTER_WORDS)]
    for turn in range(2):
        assert peer.read(turn) == header(turn)
        assert (peer.window(turn) == 0xFF).all()


def test_a_header_says_what_must_agree_and_where_the_tensor_lies() -> None:
    tensor, location = torch.zeros(3, 4, dtype=torch.bfloat16), Location(7, 8, 9)
    sent = CallHeader.of(BROADCAST, tensor, 2, location)
    assert (DTYPES[sent.dtype], sent.numel, sent.source, sent.location) == (torch.bfloat16, 12, 2, location)
    assert str(sent) == "broadcast from 2 of 12 bfloat16"
    assert sent.signature == CallHeader.of(BROADCAST, tensor, 2, None).signature
    assert sent.signature != CallHeader.of(BROADCAST, tensor, 1, location).signature
    assert sent.signature != CallHeader.of(BROADCAST, tensor.half(), 2, location).signature
    assert sent.signature != CallHeader.of(MEAN, tensor, 2, location).signature
    assert str(CallHeader.of(MEAN, tensor, 0, None)) == "all-reduce of 12 bfloat16"
    short, long = CallHeader(GATHER, 0, 1, 0, 0, 0, 0), CallHeader(GATHER, 0, 100, 0, 0, 0, 0)
    assert short.signature == long.signature  # ranks gather values of different length
    assert str(long) == "gather"
