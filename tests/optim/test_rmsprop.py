from typing import Any

import pytest
import torch

from tests.optim.training import assert_steps_as_torch


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"momentum": 0.0}, {}),
        ({"alpha": 0.95, "epsilon": 1e-6}, {"momentum": 0.9, "alpha": 0.95, "eps": 1e-6}),
    ],
)
def test_one_flat_block_is_updated_as_torch_updates_the_tensors(
    ours: dict[str, Any], theirs: dict[str, Any], surroundings: dict[str, Any]
) -> None:
    assert_steps_as_torch({"name": "rmsprop", **ours}, torch.optim.RMSprop, theirs, **surroundings)
