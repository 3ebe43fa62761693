"""VGG-16, without batch-norm: 138,357,544 weights at 3 x 224 x 224 and a thousand classes."""

from torch import Tensor, nn

from deepex.models.input_shape import check_classes, check_input, check_shape

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # filters, convolutions; each stage halves the image


class VGG16(nn.Module):
    """Thirteen 3x3 convolutions in five stages and three dense layers (configuration D of the paper).

    Parameters stand in the usual order, so weights trained elsewhere load by position.

    Arguments:
        shape: channels, height and width of an image.
        classes: number of classes.

    >>> sum(p.numel() for p in VGG16(shape=(3, 32, 32), classes=10).features.parameters())
    14714688

    Reference: Simonyan and Zisserman, Very deep convolutional networks for large-scale image recognition, ICLR 2015.
    """

    layout = "channels_last"

    def __init__(self, *, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        check_shape("VGG-16", shape, axes="channels x height x width", least=32)
        check_classes("VGG-16", classes)
        self.shape = shape
        layers: list[nn.Module] = []
        channels = shape[0]
        for filters, convolutions in STAGES:
            for _ in range(convolutions):
                layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU(inplace=True)]
                channels = filters
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(7))
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(4096, classes),
        )
        self._initialise()

    def forward(self, images: Tensor) -> Tensor:
        """Class logits (B x classes) of images (B x C x H x W)."""
        check_input("VGG-16", images, self.shape)
        logits: Tensor = self.classifier(self.features(images))
        return logits

    def _initialise(self) -> None:
        """Thirteen layers without batch-norm only learn from weights that keep the variance."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.01)
            else:
                continue
            assert module.bias is not None
            nn.init.zeros_(module.bias)
