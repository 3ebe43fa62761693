"""Sixteen-bit products through fp32 kernels: the numbers of 16 bits. Installed in a process of their own."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from deepex.kernels.half_precision import widen


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
def test_operands_are_widened_and_results_rounded(narrow: torch.dtype) -> None:
    a, b = torch.randn(2, 64, 64).to(narrow)
    product = widen(torch.mm)(a, b)
    assert product.dtype == narrow
    assert torch.equal(product, (a.float() @ b.float()).to(narrow))
    wide = torch.randn(4, 4)
    assert widen(torch.mm)(wide, wide).dtype == torch.float32


def test_absent_results_stay_absent() -> None:
    def two(x: Tensor) -> tuple[Tensor | None, Tensor]:
        return None, x

    first, second = widen(two)(torch.ones(2, dtype=torch.bfloat16))
    assert first is None
    assert second.dtype == torch.bfloat16


PROGRAM = """
import torch
from torch import nn
from deepex.kernels import install_convolution, install_half_precision

def gradients():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.ConvTranspose2d(16, 8, 3), nn.Flatten(), nn.Linear(800, 5))
    x = torch.randn(6, 3, 10, 10)
    with torch.autocast("cpu", torch.bfloat16):
        loss = (model(x).float() - 1).square().mean()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])

def seconds(dtype):
    from time import perf_counter
    a = torch.randn(512, 512).to(dtype)
    a @ a
    start = perf_counter()
    a @ a
    return perf_counter() - start

before, slow = gradients(), seconds(torch.bfloat16)
install_convolution()
installed = install_half_precision()
after = gradients()
cosine = torch.nn.functional.cosine_similarity(before, after, dim=0).item()
assert cosine > 0.999, cosine
a, b, c = torch.randn(3, 8, 8).bfloat16()
for settings in ({}, {"alpha": 2.0}, {"beta": 0.5}, {"beta": 0.5, "alpha": 3.0}):
    exact = torch.addmm(a.double(), b.double(), c.double(), **settings)
    assert torch.allclose(torch.addmm(a, b, c, **settings).double(), exact, rtol=0.01, atol=0.05), settings
def lstm(precision):
    torch.manual_seed(0)
    model, x = nn.LSTM(6, 8, num_layers=2, batch_first=True), torch.randn(3, 10, 6)
    with torch.autocast("cpu", precision, enabled=precision != torch.float32):
        loss = model(x)[0].float().square().mean()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])

cosine = torch.nn.functional.cosine_similarity(lstm(torch.float32), lstm(torch.bfloat16), dim=0).item()
assert cosine > 0.999, cosine
assert not installed or seconds(torch.bfloat16) < slow / 3
print("good")
"""


def test_a_network_in_bf16_has_the_gradients_of_torch_s_own_bf16_and_gets_them_sooner() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "good", done.stderr
