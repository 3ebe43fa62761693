from itertools import pairwise

import pytest
import torch

from deepex.errors import ConfigError, DataError
from deepex.models.vgg import VGG16
from deepex.record.flops import count_flops


def make_meta(shape: tuple[int, int, int], *, classes: int) -> VGG16:
    """A network with shapes and no numbers, so that its size costs nothing."""
    with torch.device("meta"):
        return VGG16(shape=shape, classes=classes)


def test_it_is_configuration_d_of_the_paper() -> None:
    model = make_meta((3, 224, 224), classes=1000)
    assert sum(parameter.numel() for parameter in model.parameters()) == 138_357_544
    assert count_flops(lambda: model(torch.zeros(1, 3, 224, 224, device="meta"))) == 2 * 15_470_264_320


def test_parameters_stand_in_the_usual_order() -> None:
    filters = [3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]
    layers = [(after, before, 3, 3) for before, after in pairwise(filters)]
    dense = [(4096, 25088), (4096, 4096), (1000, 4096)]
    weights = [tuple(p.shape) for p in make_meta((3, 224, 224), classes=1000).parameters()]
    assert weights == [shape for weight in [*layers, *dense] for shape in (weight, weight[:1])]


@pytest.mark.parametrize("shape", [(3, 224, 224), (1, 120, 85), (5, 32, 32)])
def test_any_channels_and_sizes_work(shape: tuple[int, int, int]) -> None:
    assert make_meta(shape, classes=27)(torch.zeros(2, *shape, device="meta")).shape == (2, 27)


def test_a_gradient_reaches_every_parameter() -> None:
    model = make_meta((3, 32, 32), classes=10)
    model(torch.zeros(2, 3, 32, 32, device="meta")).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_new_weights_carry_a_signal_through_thirteen_layers() -> None:
    spread = VGG16(shape=(3, 32, 32), classes=1).features(torch.randn(4, 3, 32, 32)).std()
    assert 0.01 < spread < 10  # some is lost at the images' borders; with torch's own weights 1e-5 is left


def test_a_shape_that_is_too_small_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"VGG-16 .* shape \(3, 31, 32\)\. Allowed: .* each side at least 32"):
        make_meta((3, 31, 32), classes=10)


def test_no_class_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"VGG-16 was asked for 0 classes\. Allowed: whole numbers from 1"):
        make_meta((3, 32, 32), classes=0)


def test_a_batch_of_another_shape_is_refused() -> None:
    with pytest.raises(DataError, match=r"shape \(2, 3, 64, 64\), and takes samples of shape \(3, 32, 32\)"):
        make_meta((3, 32, 32), classes=10)(torch.zeros(2, 3, 64, 64, device="meta"))
