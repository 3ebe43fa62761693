import pytest

from deepex.bench.step.layers import layer_table, watch_layers
from deepex.bench.step.workloads import WORKLOADS
from deepex.cli.app import run_command


def test_operators_of_a_step_are_timed_and_counted() -> None:
    layers, peak = watch_layers(WORKLOADS["tiny"], "fp32", steps=2)
    assert peak > 1e8
    assert sum(layer.share_of_step for layer in layers) == pytest.approx(1.0)
    products = [layer for layer in layers if layer.operator in ("addmm", "mm")]
    # Three layers: a product each in the forward, two in the backward but for the first, whose input needs none.
    assert sum(layer.calls for layer in products) == 3 + 5
    (forward,) = (layer for layer in products if layer.shapes == "64, 32×64, 64×64")
    assert forward.gflops_per_second * forward.ms == pytest.approx(2 * 32 * 64 * 64 / 1e6, rel=1e-6)
    assert [layer.lost_ms for layer in layers] == sorted((layer.lost_ms for layer in layers), reverse=True)
    assert layer_table(layers, top=3).row_count == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--workload", "tinny"], "Did you mean 'tiny'?"),
        (["--precision", "fp8"], "unknown precision 'fp8'"),
        (["--top", "0"], "Allowed: whole numbers from 1."),
    ],
)
def test_wrong_usage_lists_what_is_allowed(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["bench", "layers", *words]) == 2
    assert message in capsys.readouterr().err
