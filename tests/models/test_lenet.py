import pytest
import torch

from deepex.errors import ConfigError, DataError
from deepex.models.lenet import LeNet5
from deepex.record.flops import count_flops


def test_it_is_the_network_of_the_paper() -> None:
    model = LeNet5(shape=(1, 28, 28), classes=10)
    assert sum(parameter.numel() for parameter in model.parameters()) == 61_706
    convolutions = 28 * 28 * 25 * 6 + 10 * 10 * 25 * 6 * 16
    dense = 400 * 120 + 120 * 84 + 84 * 10
    assert count_flops(lambda: model(torch.zeros(1, 1, 28, 28))) == 2 * (convolutions + dense)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 120, 85), (2, 12, 12)])
def test_any_channels_and_sizes_work(shape: tuple[int, int, int]) -> None:
    assert LeNet5(shape=shape, classes=27)(torch.zeros(2, *shape)).shape == (2, 27)


def test_a_gradient_reaches_every_parameter() -> None:
    model = LeNet5(shape=(1, 28, 28), classes=10)
    model(torch.randn(4, 1, 28, 28)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


def test_a_shape_that_is_too_small_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"LeNet-5 .* shape \(1, 28, 11\)\. Allowed: .* each side at least 12"):
        LeNet5(shape=(1, 28, 11), classes=10)


def test_no_class_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"LeNet-5 was asked for 0 classes\. Allowed: whole numbers from 1"):
        LeNet5(shape=(1, 28, 28), classes=0)


def test_a_batch_of_another_shape_is_refused() -> None:
    with pytest.raises(DataError, match=r"shape \(4, 1, 32, 32\), and takes samples of shape \(1, 28, 28\)"):
        LeNet5(shape=(1, 28, 28), classes=10)(torch.zeros(4, 1, 32, 32))
