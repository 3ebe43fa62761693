from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from deepex.fabric.shared.average import CACHE_BYTES, LINE_BYTES, Bytes, average, share

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
NUMELS = (1, 7, 4097, CACHE_BYTES // 4 + 5)  # the last one in several pieces, whatever the type


def noise(rank: int, numel: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(7 * rank + numel)).to(dtype)


def as_bytes(tensors: Sequence[Tensor]) -> list[Bytes]:
    return [tensor.view(torch.uint8).numpy() for tensor in tensors]


def sum_in_order(ranks: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    total = ranks[0].to(dtype, copy=True)
    for each in ranks[1:]:
        total += each.to(dtype)
    return total


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("numel", NUMELS)
def test_a_mean_is_as_exact_as_its_type_can_be_and_the_same_in_all_places(
    size: int, dtype: torch.dtype, numel: int
) -> None:
    ranks = [noise(rank, numel, dtype) for rank in range(size)]
    doubles = torch.stack([each.double() for each in ranks])
    exact, total = doubles.mean(0), doubles.abs().sum(0)
    in_place, elsewhere = [each.clone() for each in ranks], [torch.empty_like(each) for each in ranks[:2]]
    average(as_bytes(in_place), as_bytes(in_place), dtype)
    average(as_bytes(ranks), as_bytes(elsewhere), dtype)
    wide, own = torch.float64 if dtype == torch.float64 else torch.float32, torch.finfo(dtype)
    allowed = total * torch.finfo(wide).eps + (exact.abs() + own.smallest_normal) * own.eps
    assert ((in_place[0].double() - exact).abs() <= allowed).all()
    assert torch.equal(in_place[0], (sum_in_order(ranks, wide) / size).to(dtype))  # rounded once, at the end
    for each in (*in_place, *elsewhere):
        assert torch.equal(each, in_place[0])
    for rank, each in enumerate(ranks):
        assert torch.equal(each, noise(rank, numel, dtype))  # what is not among the results stays


def test_it_adds_in_the_order_of_ranks() -> None:
    """1 + 1e8 - 1e8 is 0 in float32, and 1e8 - 1e8 + 1 is 1."""
    for values, expected in (((1.0, 1e8, -1e8), 0.0), ((1e8, -1e8, 1.0), 1 / 3)):
        ranks = [torch.tensor([value]) for value in values]
        average(as_bytes(ranks), as_bytes(ranks[:1]), torch.float32)
        assert ranks[0].item() == torch.tensor(expected).item()


def test_16_bits_are_added_in_32_and_rounded_once() -> None:
    ranks = [torch.tensor([value], dtype=torch.bfloat16) for value in (256.0, 1.0, 1.0, 254.0)]
    average(as_bytes(ranks), as_bytes(ranks), torch.bfloat16)
    assert ranks[0].item() == 128.0  # in bfloat16, 256 + 1 + 1 would be 256
    half = [torch.tensor([60000.0], dtype=torch.float16) for _ in range(2)]
    average(as_bytes(half), as_bytes(half), torch.float16)
    assert half[1].item() == torch.tensor(60000.0).half().item()  # and 120,000 too large for float16


def test_infinity_and_nan_pass_through() -> None:
    ranks = [torch.tensor([torch.inf, torch.inf, torch.nan, 3e38]), torch.tensor([1.0, -torch.inf, 0.0, 3e38])]
    average(as_bytes(ranks), as_bytes(ranks[:1]), torch.float32)
    assert str(ranks[0].tolist()) == "[inf, nan, nan, inf]"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64])
@pytest.mark.parametrize("num_bytes", [0, 1, 63, 64, 65, 1000, 4096, 2**20 + 12])
def test_shares_cover_all_bytes_once_in_whole_cache_lines(num_bytes: int, size: int) -> None:
    shares = [share(num_bytes, rank, size) for rank in range(size)]
    assert shares[0].start == 0
    for before, after in pairwise(shares):
        assert before.stop == after.start
        assert after.start % LINE_BYTES == 0 or after.start == num_bytes
    assert shares[-1].stop == num_bytes
    longest = max(part.stop - part.start for part in shares)
    assert longest <= num_bytes / size + LINE_BYTES
