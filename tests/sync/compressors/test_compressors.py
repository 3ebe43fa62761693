import pytest
import torch
from torch import nn

from deepex.errors import ConfigError
from deepex.fabric import SoloFabric
from deepex.replica import Replica
from deepex.sync.compressors.compressor import Uncompressed
from deepex.sync.compressors.parse import COMPRESSIONS, parse_compressor
from deepex.sync.compressors.topk import SMALL, largest
from deepex.world import World


def test_the_written_form_names_a_compressor() -> None:
    compressors = [parse_compressor(text, "local:8") for text in ("", "bf16", "fp16", "topk:0.01", "powersgd:4")]
    assert isinstance(compressors[0], Uncompressed)
    assert [compressor.name for compressor in compressors] == ["", "bf16", "fp16", "topk:0.01", "powersgd:4"]
    assert [compressor.exact for compressor in compressors] == [True, False, False, False, False]
    assert [compressor.delays for compressor in compressors] == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("zip", "unknown compression 'zip'. Allowed: bf16, fp16, powersgd:R, topk:F."),
        ("bf61", "Did you mean 'bf16'?"),
        ("bf16:2", "bf16 takes no argument. Write +bf16."),
        ("topk", "above 0 and below 1. Write +topk:0.01."),
        ("topk:0", "above 0 and below 1"),
        ("topk:1.5", "above 0 and below 1"),
        ("topk:nan", "above 0 and below 1"),
        ("topk:many", "above 0 and below 1"),
        ("powersgd", "a whole number from 1. Write +powersgd:4."),
        ("powersgd:0", "a whole number from 1"),
        ("powersgd:2.5", "a whole number from 1"),
    ],
)
def test_a_wrong_form_says_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_compressor(text, f"local:8+{text}")
    assert str(raised.value).startswith(f"sync 'local:8+{text}': ")
    assert said in str(raised.value)


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_a_line_of_the_table_is_whole(name: str) -> None:
    compression = COMPRESSIONS[name]
    assert compression.form.partition(":")[0] == name
    assert parse_compressor(compression.example, "").name == compression.example


@pytest.mark.parametrize("text", [compression.example for compression in COMPRESSIONS.values()])
def test_a_rank_that_is_alone_keeps_nothing(text: str) -> None:
    compressor = parse_compressor(text, text)
    assert compressor.state() == {}  # some strategies don't even prepare it there
    compressor.prepare(Replica(nn.Linear(9, 9)), SoloFabric(World()))
    assert compressor.state() == {}


@pytest.mark.parametrize("nonzeros", [4 * SMALL, 5000, 1000, 0])
@pytest.mark.parametrize("numel", [1000, 4 * SMALL])
def test_the_largest_are_the_largest(numel: int, nonzeros: int) -> None:
    noise = torch.Generator().manual_seed(0)
    numbers = torch.randn(numel, generator=noise) * torch.randn(numel, generator=noise).exp()
    numbers[torch.randperm(numel, generator=noise)[nonzeros:]] = 0
    count = numel // 100
    places = largest(numbers, count)
    assert len(set(places.tolist())) == count
    assert torch.equal(numbers[places].abs().sort().values, numbers.abs().topk(count).values.flip(0))


def test_the_largest_hold_what_is_not_finite() -> None:
    numbers = torch.randn(4 * SMALL, generator=torch.Generator().manual_seed(0))
    numbers[[5, SMALL, 3 * SMALL]] = torch.tensor([torch.nan, -torch.inf, torch.inf])
    assert set(largest(numbers, 3).tolist()) == {5, SMALL, 3 * SMALL}
    numbers[::2] = torch.nan  # the sample's threshold is one of them
    assert numbers[largest(numbers, 3)].isnan().all()
