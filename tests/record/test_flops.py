import torch
from torch import nn

from deepex.record.flops import count_flops, measure_gemm_peak


def test_a_dense_layer_costs_what_it_costs() -> None:
    layer, x = nn.Linear(30, 20), torch.randn(7, 30)
    assert count_flops(lambda: layer(x)) == 2 * 7 * 30 * 20


def test_the_peak_is_a_rate_that_a_processor_can_have() -> None:
    assert 1e8 < measure_gemm_peak(torch.device("cpu"), size=256) < 1e15
