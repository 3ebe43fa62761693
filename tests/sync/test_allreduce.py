"""How a gradient block is cut into slices that leave during backward."""

from itertools import pairwise

import pytest
from torch import nn

from deepex.replica import Replica
from deepex.sync.allreduce import cut


@pytest.mark.parametrize("num_bytes", [1, 400, 1000, 10**9])
def test_slices_cover_the_block_in_order_and_are_as_long_as_asked_but_no_longer_than_needed(num_bytes: int) -> None:
    replica = Replica(nn.Sequential(*(nn.Linear(10, 10) for _ in range(5))))
    slices = cut(replica.entries, num_bytes)
    lengths = {entry.stop: 4 * (entry.stop - entry.start) for entry in replica.entries}
    assert (slices[0].start, slices[-1].stop) == (replica.entries[0].start, replica.entries[-1].stop)
    assert all(before.stop == after.start for before, after in pairwise(slices))
    assert sum(each.parameters for each in slices) == len(replica.entries)
    assert all(each.missing == each.parameters for each in slices)
    for each in slices[:-1]:
        assert 4 * (each.stop - each.start) >= num_bytes
        assert 4 * (each.stop - each.start) - lengths[each.stop] < num_bytes
