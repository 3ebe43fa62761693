import pickle
from multiprocessing.reduction import ForkingPickler

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
def test_arrays_survive_the_way_to_another_process(dtype: torch.dtype) -> None:
    """multiprocessing's pickler moves tensors into shared memory, and would leave arrays on them without ground."""
    values = torch.arange(40).reshape(20, 2).to(dtype)
    source = ArraySource({"x": values.clone()}, names=[f"n{number}" for number in range(20)])
    again = pickle.loads(ForkingPickler.dumps(source))
    for each in (source, again):
        out = {"x": torch.zeros(20, 2, dtype=dtype)}
        each.read(range(20), out)
        assert torch.equal(out["x"], values)
        assert torch.equal(each.tensors["x"], values)
        assert each.name(7) == "n7"
