"""AlexNet in its one-column form: 61,100,840 weights at 3 x 224 x 224 and a thousand classes."""

from torch import Tensor, nn

from deepex.models.input_shape import check_classes, check_input, check_shape


class AlexNet(nn.Module):
    """Five convolutions and three dense layers, with dropout before the first two of these.

    Parameters stand in the order of the widely shared one-column definition, so weights trained elsewhere load by
    position.

    Arguments:
        shape: channels, height and width of an image.
        classes: number of classes.

    >>> import torch
    >>> AlexNet(shape=(1, 64, 64), classes=4)(torch.zeros(2, 1, 64, 64)).shape
    torch.Size([2, 4])

    Reference: Krizhevsky, One weird trick for parallelizing convolutional neural networks, arXiv:1404.5997 (2014).
    """

    layout = "channels_last"

    def __init__(self, *, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        check_shape("AlexNet", shape, axes="channels x height x width", least=63)
        check_classes("AlexNet", classes)
        self.shape = shape
        self.features = nn.Sequential(
            nn.Conv2d(shape[0], 64, 11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.AdaptiveAvgPool2d(6),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Linear(4096, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Class logits (B x classes) of images (B x C x H x W)."""
        check_input("AlexNet", images, self.shape)
        logits: Tensor = self.classifier(self.features(images))
        return logits
