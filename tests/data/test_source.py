import pytest
import torch

from deepex.data import ArraySource
from deepex.errors import DataError


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
