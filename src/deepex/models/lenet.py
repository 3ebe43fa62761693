"""LeNet-5: the small convolutional network for digits, 61,706 weights at 1 x 28 x 28 and ten classes."""

from torch import Tensor, nn

from deepex.models.input_shape import check_classes, check_input, check_shape


class LeNet5(nn.Module):
    """Two 5x5 convolutions with average pooling and three dense layers, tanh between them.

    The first convolution pads by two, which stands for the paper's frame around 28 x 28 digits; all maps of the
    second see all maps of the first.

    Arguments:
        shape: channels, height and width of an image.
        classes: number of classes.

    >>> import torch
    >>> LeNet5(shape=(1, 28, 28), classes=10)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])

    Reference: LeCun et al., Gradient-based learning applied to document recognition, Proc. IEEE 86 (1998).
    """

    layout = "channels_last"

    def __init__(self, *, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        check_shape("LeNet-5", shape, axes="channels x height x width", least=12)
        check_classes("LeNet-5", classes)
        self.shape = shape
        channels, height, width = shape
        self.features = nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=2),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.Tanh(),
            nn.AvgPool2d(2),
        )
        rows, columns = ((side // 2 - 4) // 2 for side in (height, width))
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(16 * rows * columns, 120),
            nn.Tanh(),
            nn.Linear(120, 84),
            nn.Tanh(),
            nn.Linear(84, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Class logits (B x classes) of images (B x C x H x W)."""
        check_input("LeNet-5", images, self.shape)
        logits: Tensor = self.classifier(self.features(images))
        return logits
