"""Two models that learn in turn: a generator of protein contact maps and its discriminator, on any number of ranks.

    python examples/gan.py                                  # one rank
    torchrun --nproc-per-node 2 examples/gan.py             # two
    torchrun --nproc-per-node 2 examples/gan.py local:8 20  # another strategy, more epochs

The data are the frames of molecular dynamics in the package. What is judged is how often each pair of residues
touches: the root-mean-square difference between generated and real frames. Maps of nothing but the mean would have 0,
so the spread of the number of contacts stands beside it: generated over real, which is 1 when both vary alike.
"""

import sys

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import deepex as dx
from deepex.tasks import data_path

SIDE, LATENT = 28, 16


class Generator(nn.Module):
    """Noise to a symmetric map of contact probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(LATENT, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
            nn.Linear(256, SIDE * SIDE),
        )  # fmt: skip

    def forward(self, noise: Tensor) -> Tensor:
        logits = self.layers(noise).view(-1, SIDE, SIDE)
        return torch.sigmoid(logits + logits.transpose(1, 2))


class Discriminator(nn.Sequential):
    """A map to the logit that it is real."""

    def __init__(self) -> None:
        super().__init__(
            nn.Flatten(), nn.Linear(SIDE * SIDE, 256), nn.LeakyReLU(0.2), nn.Dropout(0.3),
            nn.Linear(256, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1),
        )  # fmt: skip


def judge(guess: Tensor, is_real: bool) -> Tensor:
    """How far a discriminator's logits are from the truth."""
    return binary_cross_entropy_with_logits(guess, torch.full_like(guess, 0.9 if is_real else 0.0))


def train(sync: str = "allreduce", epochs: int = 10) -> str:
    """Train both, and return the run's directory."""
    with dx.start(name="gan") as run:
        generator, discriminator = Generator(), Discriminator()
        makes = dx.Replicated(
            generator, torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999)), sync, name="generator"
        )
        tells = dx.Replicated(
            discriminator, torch.optim.Adam(discriminator.parameters(), lr=5e-4, betas=(0.5, 0.999)), sync,
            name="discriminator",
        )  # fmt: skip
        feed = dx.feed(data_path("protein"), batch_size=128)
        frames = dx.feed(data_path("protein"), batch_size=1024, shuffle=False)
        for _ in run.epochs(epochs):
            generator.train()
            for batch in feed:
                real = batch["contact_map"].float()
                made = generator(torch.randn(len(real), LATENT))
                with tells.step() as step:
                    step.backward(judge(discriminator(real), True) + judge(discriminator(made.detach()), False))
                with makes.step() as step:
                    step.backward(judge(discriminator(made), True))
            generator.eval()
            with torch.no_grad():
                real = torch.cat([batch["contact_map"].float() for batch in frames])
                made = generator(torch.randn(2000, LATENT)).round()
            difference = (real.mean(0) - made.mean(0)).square().mean().sqrt()
            run.log(contact_rmse=difference, spread=made.sum((1, 2)).std() / real.sum((1, 2)).std())
        return str(run.path)


if __name__ == "__main__":
    words = dict(enumerate(sys.argv))
    train(words.get(1, "allreduce"), int(words.get(2, 10)))
