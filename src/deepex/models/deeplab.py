"""DeepLabv3+ as in DeepCAM: climate segmentation on an Xception encoder, 56,454,720 weights at 16 channels."""

import torch
from torch import Tensor, nn

from deepex.models.input_shape import check_classes, check_input, check_shape

STRIDE = 16  # of the encoder's output
BOTTLENECK, LOW_LEVEL = 256, 48


class SeparableConv(nn.Sequential):
    """A 3x3 convolution of each channel by itself, then a 1x1 convolution across channels; no bias."""

    def __init__(self, channels: int, filters: int, *, stride: int = 1, dilation: int = 1) -> None:
        depthwise = nn.Conv2d(
            channels, channels, 3, stride=stride, padding=dilation, dilation=dilation, groups=channels, bias=False
        )
        super().__init__(depthwise, nn.Conv2d(channels, filters, 1, bias=False))


class XceptionBlock(nn.Module):
    """Separable convolutions beside a shortcut.

    Arguments:
        repetitions: separable convolutions with batch-norm.
        grow_first: whether the first of them changes the number of channels, or the last.
        trailing_stride: stride of one more, bare separable convolution at the end; None leaves it out.
        relu_first: whether the block begins with a ReLU.
    """

    def __init__(
        self,
        channels: int,
        filters: int,
        *,
        repetitions: int,
        grow_first: bool = True,
        trailing_stride: int | None = None,
        relu_first: bool = True,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for number in range(repetitions):
            before = filters if grow_first and number > 0 else channels
            after = filters if grow_first or number == repetitions - 1 else channels
            # The input is also the shortcut's, so the first ReLU must leave it as it is.
            layers += [nn.ReLU(inplace=number > 0), SeparableConv(before, after), nn.BatchNorm2d(after)]
        if trailing_stride is not None:
            layers.append(SeparableConv(filters, filters, stride=trailing_stride))
        self.main = nn.Sequential(*layers[0 if relu_first else 1 :])
        self.shortcut: nn.Module = nn.Identity()
        if channels != filters:
            convolution = nn.Conv2d(channels, filters, 1, stride=trailing_stride or 1, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(filters))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.main(x) + self.shortcut(x)
        return result


class Xception(nn.Module):
    """The encoder: an image to 2048 channels at a sixteenth of its size, and 128 low-level channels at a quarter."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, 32, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(inplace=True),
            nn.Conv2d(32, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
        )
        self.first = XceptionBlock(64, 128, repetitions=2, trailing_stride=2, relu_first=False)
        self.entry = nn.Sequential(
            XceptionBlock(128, 256, repetitions=2, trailing_stride=2),
            XceptionBlock(256, 728, repetitions=2, trailing_stride=2),
        )
        self.middle = nn.Sequential(*(XceptionBlock(728, 728, repetitions=3) for _ in range(16)))
        exit_layers: list[nn.Module] = [XceptionBlock(728, 1024, repetitions=2, grow_first=False, trailing_stride=1)]
        for before, after in ((1024, 1536), (1536, 1536), (1536, 2048)):
            exit_layers += [SeparableConv(before, after, dilation=2), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
        self.exit = nn.Sequential(*exit_layers)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        low_level = self.first(self.stem(images))
        return self.exit(self.middle(self.entry(low_level))), low_level


class Affine(nn.Module):
    """A trainable scale and shift a channel: what is left of batch-norm where each channel has a single value."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale[:, None, None] + self.shift[:, None, None]


class Pyramid(nn.Module):
    """Atrous spatial pyramid pooling: the same features seen at four dilations, and their mean over the image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            _unit(nn.Conv2d(channels, BOTTLENECK, size, padding=padding, dilation=rate, bias=False))
            for size, padding, rate in ((1, 0, 1), (3, 6, 6), (3, 12, 12), (3, 18, 18))
        )
        self.mean = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, BOTTLENECK, 1, bias=False),
            Affine(BOTTLENECK),
            nn.ReLU(inplace=True),
        )
        self.join = _unit(nn.Conv2d(5 * BOTTLENECK, BOTTLENECK, 1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        tiled = self.mean(x).expand(-1, -1, *x.shape[2:])
        joined: Tensor = self.join(torch.cat([*(branch(x) for branch in self.branches), tiled], dim=1))
        return joined


class DeepLab(nn.Module):
    """Xception encoder, pyramid, and a decoder of deconvolutions back to the full resolution.

    Arguments:
        shape: channels, height and width of an image; sides are multiples of 16.
        classes: number of classes of a pixel.

    >>> DeepLab(shape=(16, 32, 48), classes=3)(torch.zeros(2, 16, 32, 48)).shape
    torch.Size([2, 3, 32, 48])

    Reference: Chen et al., Encoder-decoder with atrous separable convolution, ECCV 2018; Kurth et al., Exascale deep
    learning for climate analytics, SC18; the MLPerf HPC definition of the network.
    """

    layout = "channels_last"

    def __init__(self, *, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        check_shape("DeepLabv3+", shape, axes="channels x height x width", least=STRIDE, multiple=STRIDE)
        check_classes("DeepLabv3+", classes)
        self.shape = shape
        self.encoder = Xception(shape[0])
        self.pyramid = Pyramid(2048)
        self.low_level = _unit(nn.Conv2d(128, LOW_LEVEL, 1, bias=False))
        self.enlarge = nn.Sequential(_unit(_double(BOTTLENECK)), _unit(_double(BOTTLENECK)))
        self.decode = nn.Sequential(
            _unit(nn.Conv2d(BOTTLENECK + LOW_LEVEL, 256, 3, padding=1, bias=False)),
            _unit(nn.Conv2d(256, 256, 3, padding=1, bias=False)),
            nn.Conv2d(256, 256, 1),
            _unit(_double(256)),
            _double(classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Class logits of each pixel (B x classes x H x W) of images (B x C x H x W)."""
        check_input("DeepLabv3+", images, self.shape)
        deep, low_level = self.encoder(images)
        joined = torch.cat([self.enlarge(self.pyramid(deep)), self.low_level(low_level)], dim=1)
        logits: Tensor = self.decode(joined)
        return logits


def _unit(convolution: nn.Conv2d | nn.ConvTranspose2d) -> nn.Sequential:
    return nn.Sequential(convolution, nn.BatchNorm2d(convolution.out_channels), nn.ReLU(inplace=True))


def _double(filters: int) -> nn.ConvTranspose2d:
    """Twice the height and width, from 256 channels."""
    return nn.ConvTranspose2d(256, filters, 3, stride=2, padding=1, output_padding=1, bias=False)
