import pytest
import torch
from torch import nn

from deepex.errors import ConfigError, DataError
from deepex.models.deeplab import DeepLab, XceptionBlock
from deepex.record.flops import count_flops


def make_meta(shape: tuple[int, int, int], *, classes: int) -> DeepLab:
    """A network with shapes and no numbers, so that its size costs nothing."""
    with torch.device("meta"):
        return DeepLab(shape=shape, classes=classes)


def test_it_is_the_network_of_mlperf_hpc() -> None:
    model = make_meta((16, 768, 1152), classes=3)
    assert sum(parameter.numel() for parameter in model.parameters()) == 56_454_720
    assert model(torch.zeros(1, 16, 768, 1152, device="meta")).shape == (1, 3, 768, 1152)


def test_a_step_costs_three_forwards_but_for_the_gradient_of_the_images() -> None:
    model, images = make_meta((16, 64, 96), classes=3), torch.zeros(2, 16, 64, 96, device="meta")
    first_layer = 2 * (2 * 32 * 48 * 32 * 16 * 9)
    forward = count_flops(lambda: model(images))
    assert count_flops(lambda: model(images).sum().backward()) == 3 * forward - first_layer


@pytest.mark.parametrize("shape", [(16, 64, 96), (1, 128, 80), (3, 16, 16)])
def test_every_pixel_has_logits_for_any_channels_and_sizes(shape: tuple[int, int, int]) -> None:
    logits = make_meta(shape, classes=5)(torch.zeros(2, *shape, device="meta"))
    assert logits.shape == (2, 5, *shape[1:])


def test_a_gradient_reaches_every_parameter_and_pixels_differ() -> None:
    model = DeepLab(shape=(2, 32, 48), classes=3)
    logits = model(torch.randn(2, 2, 32, 48))
    assert (logits.std(dim=(2, 3)) > 0).all()
    logits.square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


def test_a_block_leaves_its_input_as_it_was() -> None:
    block, x = XceptionBlock(6, 6, repetitions=3), torch.randn(2, 6, 8, 8)
    before = x.clone()
    block(x)
    assert torch.equal(x, before)
    assert isinstance(block.shortcut, nn.Identity)


@pytest.mark.parametrize("shape", [(16, 768, 1150), (16, 8, 16), (0, 32, 32), (32, 32)])
def test_a_shape_that_does_not_halve_four_times_is_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError, match="each side at least 16 and a multiple of 16") as error:
        make_meta(shape, classes=3)
    assert str(shape) in str(error.value)


def test_no_class_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"DeepLabv3\+ was asked for 0 classes\. Allowed: whole numbers from 1"):
        make_meta((16, 32, 32), classes=0)


def test_a_batch_of_another_shape_is_refused() -> None:
    with pytest.raises(DataError, match=r"shape \(1, 3, 32, 32\), and takes samples of shape \(16, 32, 32\)"):
        make_meta((16, 32, 32), classes=3)(torch.zeros(1, 3, 32, 32, device="meta"))
