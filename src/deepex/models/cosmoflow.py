"""CosmoFlow: cosmological parameters from cubes of dark matter, 8,907,556 weights at 4 x 128 x 128 x 128."""

from torch import Tensor, nn

from deepex.models.input_shape import check_classes, check_input, check_shape

FILTERS = (32, 64, 128, 256, 512)
SLOPE = 0.3  # of LeakyReLU


class CosmoFlow(nn.Module):
    """Five 3x3x3 convolutions, each with LeakyReLU and a pooling by two, and three dense layers.

    The output is 1.2 tanh(x), a little wider than the targets' [-1, 1], so that their ends can be reached.

    Arguments:
        shape: channels (redshifts) and three sides, multiples of 32.
        outputs: number of parameters to find.
        dropout: after each hidden dense layer.

    >>> import torch
    >>> CosmoFlow(shape=(4, 32, 32, 32), outputs=4)(torch.zeros(2, 4, 32, 32, 32)).shape
    torch.Size([2, 4])

    Reference: Mathuriya et al., CosmoFlow: using deep learning to learn the universe at scale, SC18; the MLPerf HPC
    definition of the network.
    """

    layout = "channels_last"

    def __init__(self, *, shape: tuple[int, int, int, int], outputs: int = 4, dropout: float = 0.5) -> None:
        super().__init__()
        check_shape("CosmoFlow", shape, axes="channels x depth x height x width", least=32, multiple=32)
        check_classes("CosmoFlow", outputs, word="outputs")
        self.shape = shape
        layers: list[nn.Module] = []
        channels = shape[0]
        for filters in FILTERS:
            layers += [nn.Conv3d(channels, filters, 3, padding=1), nn.LeakyReLU(SLOPE, inplace=True), nn.MaxPool3d(2)]
            channels = filters
        self.features = nn.Sequential(*layers)
        cells = shape[1] * shape[2] * shape[3] // 32**3
        self.regressor = nn.Sequential(
            nn.Flatten(),
            nn.Linear(channels * cells, 128),
            nn.LeakyReLU(SLOPE, inplace=True),
            nn.Dropout(dropout),
            nn.Linear(128, 64),
            nn.LeakyReLU(SLOPE, inplace=True),
            nn.Dropout(dropout),
            nn.Linear(64, outputs),
            nn.Tanh(),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv3d | nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                assert module.bias is not None
                nn.init.zeros_(module.bias)

    def forward(self, cubes: Tensor) -> Tensor:
        """Scaled parameters (B x outputs) of cubes (B x C x D x H x W)."""
        check_input("CosmoFlow", cubes, self.shape)
        scaled: Tensor = 1.2 * self.regressor(self.features(cubes))
        return scaled
