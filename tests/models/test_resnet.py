import pytest
import torch
from torch import nn

from deepex.errors import ConfigError, DataError
from deepex.models.resnet import BasicBlock, Bottleneck, ResNet14, ResNet18, ResNet50
from deepex.record.flops import count_flops


def make_meta(shape: tuple[int, int, int], *, classes: int) -> ResNet50:
    """A network with shapes and no numbers, so that its size costs nothing."""
    with torch.device("meta"):
        return ResNet50(shape=shape, classes=classes)


def test_it_is_the_network_that_everyone_calls_resnet_50() -> None:
    model = make_meta((3, 224, 224), classes=1000)
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_557_032
    assert count_flops(lambda: model(torch.zeros(1, 3, 224, 224, device="meta"))) == 2 * 4_089_184_256


def test_a_step_costs_three_forwards_but_for_the_gradient_of_the_images() -> None:
    model, images = make_meta((3, 224, 224), classes=1000), torch.zeros(2, 3, 224, 224, device="meta")
    forward, first_layer = 4_089_184_256, 112 * 112 * 64 * 3 * 49
    step = count_flops(lambda: model(images).sum().backward())
    assert step == 2 * 2 * (3 * forward - first_layer)  # two a multiply-add, two images


def test_parameters_stand_in_the_usual_order() -> None:
    expected: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    channels = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for number in range(blocks):
            expected += [(width, channels, 1, 1), (width,), (width,)]
            expected += [(width, width, 3, 3), (width,), (width,)]
            expected += [(4 * width, width, 1, 1), (4 * width,), (4 * width,)]
            if number == 0:
                expected += [(4 * width, channels, 1, 1), (4 * width,), (4 * width,)]
            channels = 4 * width
    expected += [(1000, 2048), (1000,)]
    assert [tuple(p.shape) for p in make_meta((3, 224, 224), classes=1000).parameters()] == expected


def test_the_last_scale_of_every_block_begins_at_zero() -> None:
    blocks = [m for m in ResNet50(shape=(1, 16, 16), classes=3).modules() if isinstance(m, Bottleneck)]
    assert len(blocks) == 16
    assert not any(block.norm3.weight.any() for block in blocks)
    assert all(bool((block.norm1.weight == 1).all() and (block.norm2.weight == 1).all()) for block in blocks)


@pytest.mark.parametrize(("kind", "width"), [(Bottleneck, 64), (BasicBlock, 256)])
def test_a_new_block_is_the_identity(kind: type[Bottleneck] | type[BasicBlock], width: int) -> None:
    block, x = kind(256, width, 1), torch.randn(2, 256, 5, 5)
    assert torch.equal(block(x), x.relu())


@pytest.mark.parametrize("kind", [Bottleneck, BasicBlock])
@pytest.mark.parametrize(("channels", "stride"), [(32, 1), (64, 2)])
def test_a_new_block_that_changes_the_shape_is_its_projection(
    kind: type[Bottleneck] | type[BasicBlock], channels: int, stride: int
) -> None:
    block, x = kind(channels, 64, stride), torch.randn(2, channels, 6, 6)
    assert torch.equal(block(x), block.projection(x).relu())


def test_it_is_the_network_that_everyone_calls_resnet_18() -> None:
    with torch.device("meta"):
        model = ResNet18(shape=(3, 224, 224), classes=1000)
    assert sum(parameter.numel() for parameter in model.parameters()) == 11_689_512
    assert count_flops(lambda: model(torch.zeros(1, 3, 224, 224, device="meta"))) == 2 * 1_814_073_344


def test_a_small_stem_keeps_the_size_of_the_image() -> None:
    images = torch.zeros(2, 1, 28, 28, device="meta")
    with torch.device("meta"):
        large, small = (ResNet50(shape=(1, 28, 28), classes=10, stem=stem) for stem in ("large", "small"))
    assert small.stem(images).shape == (2, 64, 28, 28)
    assert large.stem(images).shape == (2, 64, 7, 7)
    assert small(images).shape == large(images).shape == (2, 10)
    less = (7 * 7 - 3 * 3) * 64
    assert sum(p.numel() for p in large.parameters()) - sum(p.numel() for p in small.parameters()) == less


def test_a_small_network_for_small_images_learns() -> None:
    torch.manual_seed(0)
    model = ResNet14(shape=(1, 28, 28), classes=2)
    images, labels = torch.randn(32, 1, 28, 28), torch.arange(32) % 2
    images[labels == 1, :, :14] += 1
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(25):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()
    assert loss.item() < 0.1
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


@pytest.mark.parametrize("shape", [(3, 224, 224), (1, 120, 85), (5, 16, 16)])
def test_any_channels_and_sizes_work(shape: tuple[int, int, int]) -> None:
    assert make_meta(shape, classes=27)(torch.zeros(2, *shape, device="meta")).shape == (2, 27)


def test_a_gradient_reaches_every_parameter() -> None:
    model = ResNet50(shape=(1, 16, 16), classes=3)
    for module in model.modules():
        if isinstance(module, Bottleneck):
            nn.init.ones_(module.norm3.weight)  # a new block passes everything by its convolutions
    model(torch.randn(4, 1, 16, 16)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


def test_a_shape_that_is_too_small_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"ResNet-50 .* shape \(3, 16, 15\)\. Allowed: .* each side at least 16"):
        make_meta((3, 16, 15), classes=10)


def test_a_shape_without_channels_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"shape \(224, 224\)\. Allowed: channels x height x width"):
        make_meta((224, 224), classes=10)  # type: ignore[arg-type]  # the mistake in question


def test_no_class_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"ResNet-50 was asked for 0 classes\. Allowed: whole numbers from 1"):
        make_meta((3, 32, 32), classes=0)


@pytest.mark.parametrize("given", [(2, 1, 32, 32), (2, 3, 32, 33), (3, 32, 32)])
def test_a_batch_of_another_shape_is_refused(given: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"takes samples of shape \(3, 32, 32\)\. Build it for") as error:
        make_meta((3, 32, 32), classes=10)(torch.zeros(given, device="meta"))
    assert str(given) in str(error.value)
