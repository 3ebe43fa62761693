"""ResNet-50: 25,557,032 weights at three channels and a thousand classes; any number of channels, any size."""

from torch import Tensor, nn

from deepex.models.image import check_classes, check_input, check_shape

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride of the first block
EXPANSION = 4


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut; a projection stands in the shortcut where shapes differ.

    The last batch-norm begins with scale zero, so a new block is the identity: early gradients are well-behaved, in
    bf16 too (cosine 0.995 with the fp32 gradient at 1 x 120 x 85 and batch 16, against 0.10 with scale one).
    """

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        filters = width * EXPANSION
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, filters, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(filters)
        nn.init.zeros_(self.norm3.weight)
        self.relu = nn.ReLU(inplace=True)
        self.projection: nn.Module = nn.Identity()
        if stride != 1 or channels != filters:
            self.projection = nn.Sequential(
                nn.Conv2d(channels, filters, 1, stride=stride, bias=False), nn.BatchNorm2d(filters)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.relu(self.norm2(self.conv2(out)))
        out = self.norm3(self.conv3(out))
        out += self.projection(x)
        result: Tensor = self.relu(out)
        return result


class ResNet50(nn.Module):
    """Sixteen bottleneck blocks in four stages, stride 2 in the 3x3 convolution of a stage's first block.

    Parameters stand in the usual order, so weights trained elsewhere load by position.

    Arguments:
        shape: channels, height and width of an image.
        classes: number of classes.

    >>> import torch
    >>> ResNet50(shape=(1, 120, 85), classes=27)(torch.zeros(2, 1, 120, 85)).shape
    torch.Size([2, 27])

    Reference: He et al., Deep residual learning for image recognition, CVPR 2016; Goyal et al., Accurate, large
    minibatch SGD, arXiv:1706.02677 (2017) for the zero scale.
    """

    layout = "channels_last"

    def __init__(self, *, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        check_shape("ResNet-50", shape, axes="channels x height x width", least=16)
        check_classes("ResNet-50", classes)
        self.shape = shape
        self.stem = nn.Sequential(
            nn.Conv2d(shape[0], 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        blocks: list[nn.Module] = []
        channels = 64
        for width, count, stride in STAGES:
            for number in range(count):
                blocks.append(Bottleneck(channels, width, stride if number == 0 else 1))
                channels = width * EXPANSION
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Class logits (B x classes) of images (B x C x H x W)."""
        check_input("ResNet-50", images, self.shape)
        logits: Tensor = self.classifier(self.blocks(self.stem(images)))
        return logits
