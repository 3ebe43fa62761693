"""All networks of the table: small, by their public names, one after the other."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from deepex import models

Case = tuple[Callable[[], nn.Module], tuple[int, ...], tuple[int, ...], int]
# How it is built, the shape of a batch, the shape of what comes out, and how many weights it has.
CASES: dict[str, Case] = {
    "AlexNet": (lambda: models.AlexNet(shape=(1, 64, 64), classes=3), (2, 1, 64, 64), (2, 3), 57_000_643),
    "CVAE": (lambda: models.CVAE(side=12, latent=3, size="small"), (2, 12, 12), (2, 12, 12), 84_999),
    "CosmoFlow": (lambda: models.CosmoFlow(shape=(2, 32, 32, 32)), (2, 2, 32, 32, 32), (2, 4), 4_777_060),
    "DeepLab": (lambda: models.DeepLab(shape=(3, 32, 32), classes=3), (2, 3, 32, 32), (2, 3, 32, 32), 56_450_976),
    "LeNet5": (lambda: models.LeNet5(shape=(1, 28, 28), classes=10), (2, 1, 28, 28), (2, 10), 61_706),
    "ResNet14": (lambda: models.ResNet14(shape=(1, 28, 28), classes=10), (2, 1, 28, 28), (2, 10), 174_970),
    "ResNet18": (lambda: models.ResNet18(shape=(3, 32, 32), classes=1000), (2, 3, 32, 32), (2, 1000), 11_689_512),
    "ResNet50": (lambda: models.ResNet50(shape=(3, 32, 32), classes=1000), (2, 3, 32, 32), (2, 1000), 25_557_032),
    "VGG16": (lambda: models.VGG16(shape=(3, 32, 32), classes=10), (2, 3, 32, 32), (2, 10), 134_301_514),
}


@pytest.mark.parametrize("name", CASES)
def test_each_network_is_built_and_gives_finite_numbers_of_the_right_shape(name: str) -> None:
    build, batch, outcome, num_weights = CASES[name]
    network = build().eval()
    assert type(network) is getattr(models, name)
    assert sum(parameter.numel() for parameter in network.parameters()) == num_weights
    with torch.no_grad():
        found = network(torch.rand(batch))
    first: Tensor = found[0] if isinstance(found, tuple) else found
    assert first.shape == outcome
    assert first.isfinite().all()
