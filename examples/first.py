"""The first ten minutes: a data set and a module of one's own, trained on two ranks, and the trained module back."""

import torch
from torch import nn
from torch.utils.data import Dataset

import deepex as dx


class Waves(Dataset):  # type: ignore[type-arg]  # as people write it
    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.rand(2, generator=torch.Generator().manual_seed(index))
        return x, torch.sin(6 * x[:1]) * x[1:]


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(2, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))


if __name__ == "__main__":
    run = dx.run(model=Net, data=Waves(), loss=nn.functional.mse_loss, ranks=2, epochs=15, batch_size=32, lr=0.01)
    print(
        f"at (0.25, 1): {run.model()(torch.tensor([[0.25, 1.0]])).item():.3f}, truth {torch.sin(torch.tensor(1.5)):.3f}"
    )
