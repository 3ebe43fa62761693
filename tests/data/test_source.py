import numpy as np
import pytest
import torch

from deepex.data import ArraySource, Feed, Plan, Subset
from deepex.errors import DataError


def test_a_feed_delivers_the_plan_s_samples() -> None:
    source = Subset(ArraySource({"x": torch.arange(100), "y": np.arange(100.0)}), np.arange(50, 100))
    plan = Plan(num_samples=50, batch=8, seed=0, shuffle="global")
    feed = Feed(source, plan, torch.device("cpu"))
    for epoch, step in [(0, 0), (0, 5), (2, 1), (0, 0)]:
        batch = feed.batch(epoch, step)
        assert np.array_equal(batch["x"].numpy(), plan.indices(epoch)[step] + 50)
        assert batch["y"].dtype == torch.float64


def test_a_batch_stays_intact_while_the_next_one_is_read() -> None:
    feed = Feed(
        ArraySource({"x": torch.arange(32)}),
        Plan(num_samples=32, batch=4, seed=0, shuffle="global"),
        torch.device("cpu"),
    )
    first = feed.batch(0, 0)["x"]
    before = first.clone()
    feed.batch(0, 1)
    assert torch.equal(first, before)


def test_arrays_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(DataError, match="'x': 3, 'y': 4"):
        ArraySource({"x": torch.zeros(3), "y": torch.zeros(4)})
    with pytest.raises(DataError, match="at least one"):
        ArraySource({})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.uint8, torch.int64, torch.bool])
def test_arrays_of_any_dtype_are_read_in_any_order(dtype: torch.dtype) -> None:
    values = torch.arange(40).reshape(20, 2).to(dtype)
    source = ArraySource({"x": values})
    out = {"x": torch.zeros(4, 2, dtype=dtype)}
    source.read([19, 0, 7], out)
    assert torch.equal(out["x"][:3], values[[19, 0, 7]])
    assert not out["x"][3].any()
