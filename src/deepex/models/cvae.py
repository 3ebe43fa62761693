"""The convolutional variational autoencoder of contact maps, in the DeepEx paper's size and a small one."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The encoder's convolutions as (filters, stride), and the width of the dense layer."""

    convolutions: tuple[tuple[int, int], ...]
    dense: int


SHAPES = {
    # Three 3x3 convolutions of 128 filters at full resolution: 100352 x 128 dense weights for a 28 x 28 map.
    "paper": Shape(convolutions=((128, 1), (128, 1), (128, 1)), dense=128),
    # Two strided convolutions: 1/100 of the arithmetic, for two cores and a minute.
    "small": Shape(convolutions=((16, 2), (32, 2)), dense=128),
}

DROPOUT = 0.3  # without it, frames of unseen trajectories are rebuilt worse, by 0.001 to 0.006 in RMSE (docs/log.md)


class CVAE(nn.Module):
    """Encode a square contact map to a few normal variables and decode them to contact logits.

    x -> q(z|x) = N(mean, exp(log_variance)) -> p(x|z), each layer of the decoder mirroring one of the encoder's.

    Arguments:
        side: rows and columns of a map.
        latent: number of latent variables.
        size: a key of `SHAPES`.

    >>> model = CVAE(side=28, latent=3, size="small")
    >>> model(torch.zeros(2, 28, 28))[0].shape
    torch.Size([2, 28, 28])

    Reference: Bhowmik et al., Deep clustering of protein folding simulations, BMC Bioinformatics 19 (2018).
    """

    layout = "channels_last"

    def __init__(self, *, side: int, latent: int, size: str) -> None:
        super().__init__()
        shape = SHAPES[size]
        down: list[nn.Module] = []
        up: list[nn.Module] = []
        channels = 1
        for filters, stride in shape.convolutions:
            down += [nn.Conv2d(channels, filters, 3, stride=stride, padding=1), nn.ReLU()]
            # What a stride rounds away from an odd or even side, the mirrored layer puts back.
            missing = (side - 1) % stride
            back = nn.ConvTranspose2d(filters, channels, 3, stride=stride, padding=1, output_padding=missing)
            up = [back, nn.ReLU(), *up]
            channels, side = filters, (side - 1) // stride + 1
        features = channels * side * side
        dense = (nn.Flatten(), nn.Linear(features, shape.dense), nn.ReLU(), nn.Dropout(DROPOUT))
        self.encode_maps = nn.Sequential(*down, *dense)
        self.mean = nn.Linear(shape.dense, latent)
        self.log_variance = nn.Linear(shape.dense, latent)
        self.decode_latent = nn.Sequential(
            nn.Linear(latent, shape.dense),
            nn.ReLU(),
            nn.Linear(shape.dense, features),
            nn.ReLU(),
            nn.Unflatten(1, (channels, side, side)),
            *up[:-1],  # the last layer gives logits
        )

    def encode(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance of the latent variables (B x latent) of maps (B x side x side)."""
        hidden = self.encode_maps(maps.unsqueeze(1))
        return self.mean(hidden), self.log_variance(hidden)

    def decode(self, latent: Tensor) -> Tensor:
        """Contact logits (B x side x side)."""
        logits: Tensor = self.decode_latent(latent)
        return logits.squeeze(1)

    def forward(self, maps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, mean and log variance; the latent variables are drawn while training, the mean otherwise."""
        mean, log_variance = self.encode(maps)
        latent = mean
        if self.training:
            latent = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return self.decode(latent), mean, log_variance
