from typing import Any

import pytest


@pytest.fixture(
    params=[{"decay_vectors": all_of_them, "clip": clip} for all_of_them in (True, False) for clip in (None, 0.05)]
)
def surroundings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What an optimiser works beside: weight decay of all weights or of matrices only, and clipping or none."""
    chosen: dict[str, Any] = request.param
    return chosen
