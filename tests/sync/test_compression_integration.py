"""Every wire on three real ranks, a number by which halves can't be divided without rounding."""

import math

import pytest
import torch
from torch import Tensor, nn

from deepex.fabric import Fabric
from deepex.replica import Layout, Replica
from deepex.sync.allreduce import AllReduce
from deepex.sync.compression import parse_wire
from deepex.sync.sync import Setting
from deepex.sync.wire import Wire
from deepex.testing.ranks import on_ranks

RANKS = 3
WIRES = ("bf16", "fp16", "topk:0.05", "powersgd:2")
ROUNDING = {"bf16": 4 * 2.0**-8, "fp16": 4 * 2.0**-11}  # to 16 bits, by the division, and by two additions


def replica_of(layout: Layout = "channels_last") -> Replica:
    torch.manual_seed(0)
    return Replica(
        nn.Sequential(nn.Conv2d(6, 16, 3), nn.BatchNorm2d(16), nn.Conv2d(16, 8, 3), nn.Linear(30, 40)), layout
    )


def noise(seed: int, numel: int) -> Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed))


def gradients(step: int, numel: int) -> list[Tensor]:
    """Those of all ranks: something that they share, something of each one's own, both for good, and noise."""
    shared, own = noise(0, numel), [noise(1 + rank, numel) for rank in range(RANKS)]
    return [shared + own[rank] + noise(100 + 10 * step + rank, numel) for rank in range(RANKS)]


def prepared(text: str, fabric: Fabric, replica: Replica) -> Wire:
    wire = parse_wire(text, text)
    wire.prepare(replica, fabric)
    return wire


def call(wire: Wire, tensor: Tensor, start: int = 0) -> Tensor:
    """The mean in place of a tensor; waiting twice must not hurt."""
    work = wire.mean_(tensor, start)
    work.wait()
    work.wait()
    return tensor


@pytest.mark.parametrize("text", ["bf16", "fp16"])
def test_halves_average_within_their_rounding_whatever_the_range(text: str) -> None:
    scales = (1.0, 1e6, 1e-7, 1e-25, 1e25, 0.0, 3e-3)

    def rank(fabric: Fabric) -> list[Tensor]:
        replica = replica_of()
        numel, wire = replica.weights.numel(), prepared(text, fabric, replica)
        return [call(wire, scale * gradients(i, numel)[fabric.world.rank]) for i, scale in enumerate(scales)]

    ranks = on_ranks(RANKS, rank)
    for i, scale in enumerate(scales):
        own = [scale * each for each in gradients(i, len(ranks[0][i]))]
        bound = ROUNDING[text] * torch.stack(own).abs().mean(0) + scale * 1e-6
        assert ((ranks[0][i] - torch.stack(own).mean(0)).abs() <= bound).all()
        assert all(torch.equal(ranks[0][i], each[i]) for each in ranks)


def test_topk_adds_the_largest_of_each_rank_and_sends_no_more() -> None:
    def rank(fabric: Fabric) -> tuple[Tensor, Tensor, int]:
        replica = replica_of()
        numel, wire = replica.weights.numel(), prepared("topk:0.05", fabric, replica)
        fabric.meter.take()
        mean = call(wire, gradients(0, numel)[fabric.world.rank])
        return mean, wire.state()["residual"], fabric.meter.num_bytes

    ranks = on_ranks(RANKS, rank)
    numel = len(ranks[0][0])
    count = int(0.05 * numel)
    expected = torch.zeros(numel)
    for own, (mean, residual, num_bytes) in zip(gradients(0, numel), ranks, strict=True):
        places = own.abs().topk(count).indices
        expected[places] += own[places]
        own[places] = 0
        assert torch.equal(residual, own)
        assert torch.equal(mean, ranks[0][0])
        assert num_bytes == RANKS * count * 8
    assert torch.equal(ranks[0][0], expected / RANKS)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_powersgd_reproduces_matrices_of_low_rank_and_vectors(layout: Layout) -> None:
    def low_rank(replica: Replica, number: int) -> Tensor:
        """A gradient of rank 1 for each parameter, written by its view, as backward would."""
        for i, entry in enumerate(replica.entries):
            shape = entry.gradient.shape
            column, row = noise(10 * i + number, shape[0]), noise(5 + i, math.prod(shape[1:]))
            entry.gradient.copy_((column[:, None] * row).view(shape))
        return replica.gradients

    def rank(fabric: Fabric) -> tuple[Tensor, int]:
        replica = replica_of(layout)
        wire = prepared("powersgd:2", fabric, replica)
        fabric.meter.take()
        return call(wire, low_rank(replica, fabric.world.rank)), fabric.meter.num_bytes

    expected = torch.stack([low_rank(replica_of(layout), number).clone() for number in range(RANKS)]).mean(0)
    sizes = [(16, 54), (8, 144), (40, 30)]
    for mean, num_bytes in on_ranks(RANKS, rank):
        torch.testing.assert_close(mean, expected)
        assert num_bytes == 4 * (sum(2 * (rows + columns) for rows, columns in sizes) + 16 + 16 + 16 + 8 + 40)


@pytest.mark.parametrize("text", ["topk:0.05", "powersgd:2"])
def test_what_does_not_travel_comes_later(text: str) -> None:
    calls = 60

    def rank(fabric: Fabric) -> tuple[Tensor, list[float]]:
        replica = replica_of()
        numel, wire = replica.weights.numel(), prepared(text, fabric, replica)
        total, kept = torch.zeros(numel), []
        for step in range(calls):
            total += call(wire, gradients(step, numel)[fabric.world.rank])
            kept.append(float(wire.state()["residual"].norm()))
        fabric.mean_(wire.state()["residual"]).wait()
        return total + wire.state()["residual"], kept

    ranks = on_ranks(RANKS, rank)
    expected = sum(torch.stack(gradients(step, len(ranks[0][0]))).mean(0) for step in range(calls))
    for total, kept in ranks:
        torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-3)
        assert max(kept[40:]) < 1.2 * max(kept[20:40]), "the residual grows without end"
        assert torch.equal(total, ranks[0][0])


@pytest.mark.parametrize("text", WIRES)
def test_a_wire_with_saved_state_goes_on_bit_for_bit(text: str) -> None:
    def rank(fabric: Fabric) -> list[Tensor]:
        replica = replica_of()
        numel, wire = replica.weights.numel(), prepared(text, fabric, replica)
        first, saved, means = wire, {}, []
        for step in range(6):
            if step == 3:
                saved = {key: tensor.clone() for key, tensor in wire.state().items()}
            means.append(call(first, 1e-6 * gradients(step, numel)[fabric.world.rank]))
        second = prepared(text, fabric, replica)
        for key, tensor in second.state().items():
            tensor.copy_(saved[key])
        again = [call(second, 1e-6 * gradients(step, numel)[fabric.world.rank]) for step in range(3, 6)]
        assert all(torch.equal(one, other) for one, other in zip(means[3:], again, strict=True))
        return means

    ranks = on_ranks(RANKS, rank)
    for means in ranks:
        assert all(torch.equal(one, other) for one, other in zip(means, ranks[0], strict=True))


@pytest.mark.parametrize("text", WIRES)
def test_what_is_not_finite_on_one_rank_reaches_all_and_is_not_kept(text: str) -> None:
    """A loss scale drops such a step on all ranks; the next must be whole again."""

    def rank(fabric: Fabric) -> tuple[bool, Tensor]:
        replica = replica_of()
        numel, wire = replica.weights.numel(), prepared(text, fabric, replica)
        own = gradients(0, numel)[fabric.world.rank]
        call(wire, own.clone())
        broken = own.clone()
        if fabric.world.rank == 1:
            broken[numel // 2 :] = torch.inf
        return bool(call(wire, broken).isfinite().all()), call(wire, own.clone())

    ranks = on_ranks(RANKS, rank)
    for finite, mean in ranks:
        assert not finite
        assert mean.isfinite().all()
        assert torch.equal(mean, ranks[0][1])


def test_a_regression_is_learned_nearly_as_well() -> None:
    """By all-reduce in slices of one or two parameters, several of which are under way at once."""
    steps = 80

    def train(fabric: Fabric, wire: Wire) -> float:
        torch.manual_seed(0)
        replica = Replica(nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 4)))
        sync = AllReduce(wire, bucket_bytes=128)
        sync.prepare(Setting(replica=replica, fabric=fabric, moments={}, steps_per_epoch=steps, batch=16))
        teacher = 0.3 * noise(1, 48).view(12, 4)
        for step in range(steps):
            inputs = noise(100 * step + fabric.world.rank, 16 * 12).view(16, 12)
            replica.gradients.zero_()
            (replica.model(inputs) - inputs @ teacher).square().mean().backward()
            sync.mix_gradients(step)
            replica.weights.sub_(replica.gradients, alpha=0.2)
        assert len(set(fabric.gather(replica.weights_sha256()))) == 1
        inputs = noise(7, 512 * 12).view(512, 12)
        with torch.no_grad():
            return float((replica.model(inputs) - inputs @ teacher).square().mean())

    def rank(fabric: Fabric) -> dict[str, float]:
        return {text: train(fabric, parse_wire(text, text)) for text in ("", *WIRES)}

    losses = on_ranks(RANKS, rank)[0]
    assert losses[""] < 0.1
    assert max(losses.values()) < 1.1 * losses[""]
