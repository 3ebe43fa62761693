"""Residual networks: ResNet-50 and ResNet-18 as everybody has them, and a small one for images of about 28 x 28.

Any number of channels, any size of images; a `small` stem keeps the resolution of small ones.
"""

from typing import Literal

from torch import Tensor, nn

from deepex.models.input_shape import check_classes, check_input, check_shape

Stem = Literal["large", "small"]
Stages = tuple[tuple[int, int, int], ...]
"""Width, blocks, and stride of the first block, of each stage."""


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut; a projection stands in the shortcut where shapes differ.

    The last batch-norm begins with scale zero, as a bottleneck's.
    """

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        nn.init.zeros_(self.norm2.weight)
        self.relu = nn.ReLU(inplace=True)
        self.projection = _projection(channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        out += self.projection(x)
        result: Tensor = self.relu(out)
        return result


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut; a projection stands in the shortcut where shapes differ.

    The last batch-norm begins with scale zero, so a new block is the identity: early gradients are well-behaved, in
    bf16 too (cosine 0.995 with the fp32 gradient at 1 x 120 x 85 and batch 16, against 0.10 with scale one).
    """

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        filters = width * self.expansion
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, filters, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(filters)
        nn.init.zeros_(self.norm3.weight)
        self.relu = nn.ReLU(inplace=True)
        self.projection = _projection(channels, filters, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.relu(self.norm2(self.conv2(out)))
        out = self.norm3(self.conv3(out))
        out += self.projection(x)
        result: Tensor = self.relu(out)
        return result


class ResNet(nn.Module):
    """Stages of residual blocks between a stem and a classifier; networks below say which.

    Parameters stand in the usual order, so weights trained elsewhere load by position.

    Arguments:
        shape: channels, height and width of an image.
        classes: number of classes.
        stages: width, blocks, and stride of the first block, of each stage.
        block: what stages are made of.
        stem: `large`, a 7x7 convolution and a pooling that halve the image twice; `small`, a 3x3 convolution that
            keeps its size.
        title: what errors call the network.

    Reference: He et al., Deep residual learning for image recognition, CVPR 2016; Goyal et al., Accurate, large
    minibatch SGD, arXiv:1706.02677 (2017) for the zero scale.
    """

    layout = "channels_last"

    def __init__(
        self,
        *,
        shape: tuple[int, int, int],
        classes: int,
        stages: Stages,
        block: type[BasicBlock] | type[Bottleneck],
        stem: Stem,
        title: str,
    ) -> None:
        super().__init__()
        check_shape(title, shape, axes="channels x height x width", least=16)
        check_classes(title, classes)
        self.shape, self.title = shape, title
        channels = stages[0][0]
        self.stem = _stem(shape[0], channels, stem)
        blocks: list[nn.Module] = []
        for width, count, stride in stages:
            for number in range(count):
                blocks.append(block(channels, width, stride if number == 0 else 1))
                channels = width * block.expansion
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Class logits (B x classes) of images (B x C x H x W)."""
        check_input(self.title, images, self.shape)
        logits: Tensor = self.classifier(self.blocks(self.stem(images)))
        return logits


class ResNet50(ResNet):
    """Sixteen bottleneck blocks in four stages, stride 2 in the 3x3 convolution of a stage's first block.

    25,557,032 weights at three channels and a thousand classes.

    >>> import torch
    >>> ResNet50(shape=(1, 120, 85), classes=27)(torch.zeros(2, 1, 120, 85)).shape
    torch.Size([2, 27])
    """

    def __init__(self, *, shape: tuple[int, int, int], classes: int, stem: Stem = "large") -> None:
        stages = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
        super().__init__(shape=shape, classes=classes, stages=stages, block=Bottleneck, stem=stem, title="ResNet-50")


class ResNet18(ResNet):
    """Eight basic blocks in four stages.

    >>> sum(parameter.numel() for parameter in ResNet18(shape=(3, 64, 64), classes=1000).parameters())
    11689512
    """

    def __init__(self, *, shape: tuple[int, int, int], classes: int, stem: Stem = "large") -> None:
        stages = ((64, 2, 1), (128, 2, 2), (256, 2, 2), (512, 2, 2))
        super().__init__(shape=shape, classes=classes, stages=stages, block=BasicBlock, stem=stem, title="ResNet-18")


class ResNet14(ResNet):
    """Six basic blocks in three stages for images of about 28 x 28, with a small stem.

    174,970 weights at one channel and ten classes; ResNet-20 of the paper's section 4.2 with two blocks a stage.

    >>> sum(parameter.numel() for parameter in ResNet14(shape=(1, 28, 28), classes=10).parameters())
    174970
    """

    def __init__(self, *, shape: tuple[int, int, int], classes: int) -> None:
        stages = ((16, 2, 1), (32, 2, 2), (64, 2, 2))
        super().__init__(shape=shape, classes=classes, stages=stages, block=BasicBlock, stem="small", title="ResNet-14")


def _projection(channels: int, filters: int, stride: int) -> nn.Module:
    if stride == 1 and channels == filters:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(channels, filters, 1, stride=stride, bias=False), nn.BatchNorm2d(filters))


def _stem(channels: int, filters: int, stem: Stem) -> nn.Sequential:
    if stem == "small":
        convolution = nn.Conv2d(channels, filters, 3, padding=1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(filters), nn.ReLU(inplace=True))
    return nn.Sequential(
        nn.Conv2d(channels, filters, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(filters),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    )
