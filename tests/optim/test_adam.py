from typing import Any

import pytest
import torch

from tests.optim.training import assert_steps_as_torch


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"betas": (0.8, 0.99)}, {"betas": (0.8, 0.99)}),
    ],
)
def test_one_flat_block_is_updated_as_torch_updates_the_tensors(
    ours: dict[str, Any], theirs: dict[str, Any], surroundings: dict[str, Any]
) -> None:
    assert_steps_as_torch({"name": "adam", **ours}, torch.optim.Adam, theirs, **surroundings)
