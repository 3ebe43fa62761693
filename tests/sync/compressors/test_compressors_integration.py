"""Every compressor on three real ranks, a number by which halves can't be divided without rounding."""

import math

import torch
from torch import Tensor, nn

from deepex.fabric import Fabric
from deepex.replica import Layout, Replica
from deepex.sync.allreduce import AllReduce
from deepex.sync.compressors.compressor import Compressor
from deepex.sync.compressors.parse import COMPRESSIONS, parse_compressor
from deepex.sync.sync import SyncContext
from deepex.testing.ranks import on_ranks

RANKS = 3
COMPRESSED = [compression.example for compression in COMPRESSIONS.values()]
DELAYING = [text for text in COMPRESSED if parse_compressor(text, text).delays]
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


def prepared(text: str, fabric: Fabric, replica: Replica) -> Compressor:
    compressor = parse_compressor(text, text)
    compressor.prepare(replica, fabric)
    return compressor


def call(compressor: Compressor, tensor: Tensor, start: int = 0) -> Tensor:
    """The mean in place of a tensor; waiting twice must not hurt."""
    work = compressor.mean_(tensor, start)
    work.wait()
    work.wait()
    return tensor


def test_halves_average_within_their_rounding_whatever_the_range() -> None:
    scales = (1.0, 1e6, 1e-7, 1e-25, 1e25, 0.0, 3e-3)

    def rank(fabric: Fabric) -> dict[str, list[Tensor]]:
        replica = replica_of()
        numel, compressors = replica.weights.numel(), {text: prepared(text, fabric, replica) for text in ROUNDING}
        return {
            text: [call(compressor, scale * gradients(i, numel)[fabric.world.rank]) for i, scale in enumerate(scales)]
            for text, compressor in compressors.items()
        }

    ranks = on_ranks(RANKS, rank)
    for text, rounding in ROUNDING.items():
        for i, scale in enumerate(scales):
            mean = ranks[0][text][i]
            own = scale * torch.stack(gradients(i, len(mean)))
            bound = rounding * own.abs().mean(0) + scale * 1e-6
            assert ((mean - own.mean(0)).abs() <= bound).all(), f"{text} of numbers around {scale:g}"
            assert all(torch.equal(mean, each[text][i]) for each in ranks), f"{text} differs between ranks"


def test_topk_adds_the_largest_of_each_rank_and_sends_no_more() -> None:
    def rank(fabric: Fabric) -> tuple[Tensor, Tensor, int]:
        replica = replica_of()
        numel, compressor = replica.weights.numel(), prepared("topk:0.05", fabric, replica)
        fabric.traffic.take()
        mean = call(compressor, gradients(0, numel)[fabric.world.rank])
        return mean, compressor.state()["residual"], fabric.traffic.num_bytes

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


def test_powersgd_reproduces_matrices_of_low_rank_and_vectors() -> None:
    layouts: tuple[Layout, ...] = ("contiguous", "channels_last")

    def low_rank(replica: Replica, number: int) -> Tensor:
        """A gradient of rank 1 for each parameter, written by its view, as backward would."""
        for i, entry in enumerate(replica.entries):
            shape = entry.gradient.shape
            column, row = noise(10 * i + number, shape[0]), noise(5 + i, math.prod(shape[1:]))
            entry.gradient.copy_((column[:, None] * row).view(shape))
        return replica.gradients

    def rank(fabric: Fabric) -> dict[Layout, tuple[Tensor, int]]:
        found = {}
        for layout in layouts:
            replica = replica_of(layout)
            compressor = prepared("powersgd:2", fabric, replica)
            fabric.traffic.take()
            found[layout] = call(compressor, low_rank(replica, fabric.world.rank)), fabric.traffic.num_bytes
        return found

    sizes = [(16, 54), (8, 144), (40, 30)]
    vectors = 16 + 16 + 16 + 8 + 40
    for found in on_ranks(RANKS, rank):
        for layout in layouts:
            own = torch.stack([low_rank(replica_of(layout), number).clone() for number in range(RANKS)])
            mean, num_bytes = found[layout]
            torch.testing.assert_close(mean, own.mean(0))
            assert num_bytes == 4 * (sum(2 * (rows + columns) for rows, columns in sizes) + vectors)


def test_what_does_not_travel_comes_later() -> None:
    calls = 60

    def run(fabric: Fabric, text: str) -> tuple[Tensor, list[float]]:
        """The sum of all that came out and of what is still kept, and how much was kept after each call."""
        replica = replica_of()
        numel, compressor = replica.weights.numel(), prepared(text, fabric, replica)
        total, kept = torch.zeros(numel), []
        for step in range(calls):
            total += call(compressor, gradients(step, numel)[fabric.world.rank])
            kept.append(float(compressor.state()["residual"].norm()))
        fabric.mean_(compressor.state()["residual"]).wait()
        return total + compressor.state()["residual"], kept

    ranks = on_ranks(RANKS, lambda fabric: {text: run(fabric, text) for text in DELAYING})
    for text in DELAYING:
        first = ranks[0][text][0]
        expected = sum(torch.stack(gradients(step, len(first))).mean(0) for step in range(calls))
        for total, kept in (each[text] for each in ranks):
            torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-3)
            assert max(kept[40:]) < 1.2 * max(kept[20:40]), f"the residual of {text} grows without end"
            assert torch.equal(total, first), f"{text} differs between ranks"


def test_a_compressor_with_saved_state_goes_on_bit_for_bit() -> None:
    def run(fabric: Fabric, text: str) -> tuple[list[Tensor], list[Tensor]]:
        """Six calls, and the last three of them once more, by a new compressor with the state of the old one."""

        def wide(step: int) -> Tensor:
            """Numbers that grow from call to call, and of which some vanish in fp16, as the call before has it."""
            return 3.0**step * gradients(step, numel)[fabric.world.rank].pow(9)

        replica = replica_of()
        numel, compressor, means = replica.weights.numel(), prepared(text, fabric, replica), []
        saved: dict[str, Tensor] = {}
        for step in range(6):
            if step == 3:
                saved = {key: tensor.clone() for key, tensor in compressor.state().items()}
            means.append(call(compressor, wide(step)))
        other = prepared(text, fabric, replica)
        for key, tensor in other.state().items():
            tensor.copy_(saved[key])
        return means, [call(other, wide(step)) for step in range(3, 6)]

    ranks = on_ranks(RANKS, lambda fabric: {text: run(fabric, text) for text in COMPRESSED})
    for text in COMPRESSED:
        first = ranks[0][text][0]
        for means, again in (each[text] for each in ranks):
            assert all(map(torch.equal, means[3:], again)), f"{text} does not go on as it would have"
            assert all(map(torch.equal, means, first)), f"{text} differs between ranks"


def test_what_is_not_finite_on_one_rank_reaches_all_and_is_not_kept() -> None:
    """A loss scale drops such a step on all ranks; the next must be whole again."""

    def run(fabric: Fabric, text: str) -> tuple[Tensor, Tensor]:
        replica = replica_of()
        numel, compressor = replica.weights.numel(), prepared(text, fabric, replica)
        own = gradients(0, numel)[fabric.world.rank]
        call(compressor, own.clone())
        broken = own.clone()
        if fabric.world.rank == 1:
            broken[numel // 2 :] = torch.inf
        return call(compressor, broken), call(compressor, own.clone())

    ranks = on_ranks(RANKS, lambda fabric: {text: run(fabric, text) for text in COMPRESSED})
    for text in COMPRESSED:
        for broken, whole in (each[text] for each in ranks):
            assert not broken.isfinite().all(), f"{text} hides an infinity from another rank"
            assert whole.isfinite().all(), f"{text} keeps an infinity"
            assert torch.equal(whole, ranks[0][text][1]), f"{text} differs between ranks"


def test_a_regression_is_learned_nearly_as_well() -> None:
    """By all-reduce in slices of one or two parameters, several of which are under way at once."""
    steps = 80

    def train(fabric: Fabric, compressor: Compressor) -> float:
        torch.manual_seed(0)
        replica = Replica(nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 4)))
        sync = AllReduce(compressor, bucket_bytes=128)
        sync.prepare(SyncContext(replica=replica, fabric=fabric, moments={}, steps_per_epoch=steps, batch=16))
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
        return {text: train(fabric, parse_compressor(text, text)) for text in ("", *COMPRESSED)}

    losses = on_ranks(RANKS, rank)[0]
    assert losses[""] < 0.1
    assert max(losses.values()) < 1.1 * losses[""]
