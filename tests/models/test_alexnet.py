import pytest
import torch

from deepex.errors import ConfigError, DataError
from deepex.models.alexnet import AlexNet
from deepex.record.flops import count_flops


def make_meta(shape: tuple[int, int, int], *, classes: int) -> AlexNet:
    """A network with shapes and no numbers, so that its size costs nothing."""
    with torch.device("meta"):
        return AlexNet(shape=shape, classes=classes)


def test_it_is_the_network_of_one_column() -> None:
    model = make_meta((3, 224, 224), classes=1000)
    assert sum(parameter.numel() for parameter in model.parameters()) == 61_100_840
    assert count_flops(lambda: model(torch.zeros(1, 3, 224, 224, device="meta"))) == 2 * 714_188_480


def test_parameters_stand_in_the_usual_order() -> None:
    weights = [tuple(p.shape) for p in make_meta((3, 224, 224), classes=1000).parameters()]
    layers = [(64, 3, 11, 11), (192, 64, 5, 5), (384, 192, 3, 3), (256, 384, 3, 3), (256, 256, 3, 3)]
    dense = [(4096, 9216), (4096, 4096), (1000, 4096)]
    assert weights == [shape for weight in [*layers, *dense] for shape in (weight, weight[:1])]


@pytest.mark.parametrize("shape", [(3, 224, 224), (1, 120, 85), (5, 63, 63)])
def test_any_channels_and_sizes_work(shape: tuple[int, int, int]) -> None:
    assert make_meta(shape, classes=27)(torch.zeros(2, *shape, device="meta")).shape == (2, 27)


def test_a_gradient_reaches_every_parameter() -> None:
    model = make_meta((3, 64, 64), classes=10)
    model(torch.zeros(2, 3, 64, 64, device="meta")).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_shape_that_is_too_small_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"AlexNet .* shape \(3, 62, 64\)\. Allowed: .* each side at least 63"):
        make_meta((3, 62, 64), classes=10)


def test_no_class_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"AlexNet was asked for -1 classes\. Allowed: whole numbers from 1"):
        make_meta((3, 64, 64), classes=-1)


def test_a_batch_of_another_shape_is_refused() -> None:
    with pytest.raises(DataError, match=r"shape \(2, 1, 64, 64\), and takes samples of shape \(3, 64, 64\)"):
        make_meta((3, 64, 64), classes=10)(torch.zeros(2, 1, 64, 64, device="meta"))
