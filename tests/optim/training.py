"""A small network, the same batches for every optimiser, and a comparison with torch's own."""

from typing import Any

import torch
from torch import nn

from deepex.optim import Optimiser, OptimiserConfig
from deepex.replica import Replica

RATE, DECAY = 0.02, 0.05


def make_network() -> nn.Module:
    """A bias before batch-norm has no gradient but rounding, which Adam would make as large as any: there is none."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(64, 8),
        nn.Tanh(),
        nn.Linear(8, 1),
    )


def train(
    model: nn.Module, replica: Replica | None, optimiser: Any, clip: float | None = None, steps: int = 10
) -> None:
    """The same batches for ours and theirs."""
    noise = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(16, 1, 6, 6, generator=noise)
        if replica is None:
            optimiser.zero_grad()
        else:
            replica.gradients.zero_()
        (model(x) - x.mean((1, 2, 3))[:, None]).square().mean().backward()
        if replica is None and clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimiser.step()


def assert_steps_as_torch(
    ours: dict[str, Any],
    reference: type[torch.optim.Optimizer],
    theirs: dict[str, Any],
    *,
    decay_vectors: bool,
    clip: float | None,
) -> None:
    """Ten steps on one flat block change the weights as ten of torch's change the tensors."""
    plain, replica = make_network(), Replica(make_network(), "channels_last")
    config = OptimiserConfig(
        learning_rate=RATE, weight_decay=DECAY, decay_vectors=decay_vectors, clip_norm=clip, **ours
    )
    matrices = [p for p in plain.parameters() if p.dim() >= 2]
    vectors = [p for p in plain.parameters() if p.dim() < 2]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": DECAY if decay_vectors else 0.0}]
    build: Any = reference
    train(plain, None, build(groups, lr=RATE, weight_decay=DECAY, **theirs), clip)
    train(replica.model, replica, Optimiser(config, replica), clip)
    for mine, other in zip(replica.model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=5e-5)
