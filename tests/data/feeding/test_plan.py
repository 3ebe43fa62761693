from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepex.data.feeding.plan import DataConfig, Plan, SequentialPlan, class_weights
from deepex.errors import ConfigError

Shuffle = Literal["global", "local"]
sizes = st.sampled_from([1, 2, 3, 8])
shuffles: st.SearchStrategy[Shuffle] = st.sampled_from(["global", "local"])


@given(sizes, st.integers(1, 7), st.integers(0, 3), st.integers(56, 400), shuffles)
def test_padded_every_sample_comes_exactly_once_before_the_padding(
    size: int, batch: int, epoch: int, count: int, shuffle: Shuffle
) -> None:
    ranks = [
        Plan(num_samples=count, batch=batch, seed=1, shuffle=shuffle, last="pad", rank=rank, size=size)
        for rank in range(size)
    ]
    rows = np.stack([plan.indices(epoch) for plan in ranks], axis=1)
    assert rows.shape == (-(-count // (batch * size)), size, batch)
    if shuffle == "global":
        once = rows.ravel()[:count]
    else:
        once = np.concatenate([plan.indices(epoch).ravel()[: len(plan.owned())] for plan in ranks])
    assert sorted(once) == list(range(count))


@given(sizes, st.integers(1, 7), st.integers(0, 3), st.integers(56, 400), shuffles)
def test_dropped_no_sample_comes_twice_and_less_than_a_step_is_left_out(
    size: int, batch: int, epoch: int, count: int, shuffle: Shuffle
) -> None:
    ranks = [
        Plan(num_samples=count, batch=batch, seed=1, shuffle=shuffle, rank=rank, size=size) for rank in range(size)
    ]
    seen = np.concatenate([plan.indices(epoch).ravel() for plan in ranks])
    assert len(set(seen)) == len(seen) == ranks[0].steps_per_epoch * batch * size
    assert count - len(seen) < batch * size
    assert set(seen) <= set(range(count))


@given(st.integers(0, 5), st.integers(0, 5))
def test_global_order_does_not_depend_on_the_number_of_ranks(seed: int, epoch: int) -> None:
    orders = []
    for size in (1, 2, 3, 8):
        plans = [Plan(num_samples=120, batch=24 // size, seed=seed, rank=rank, size=size) for rank in range(size)]
        orders.append(np.stack([plan.indices(epoch) for plan in plans], axis=1).ravel())
    assert all(np.array_equal(order, orders[0]) for order in orders)


def test_epochs_differ_and_repeat_for_the_same_seed() -> None:
    plan = Plan(num_samples=64, batch=8, seed=3)
    assert not np.array_equal(plan.indices(0), plan.indices(1))
    assert np.array_equal(plan.indices(1), Plan(num_samples=64, batch=8, seed=3).indices(1))


def test_ranks_keep_their_shares_in_local_shuffling_and_share_all_samples() -> None:
    plans = [Plan(num_samples=67, batch=8, seed=3, shuffle="local", rank=rank, size=2) for rank in range(2)]
    for plan in plans:
        assert set(plan.indices(0).ravel()) | set(plan.indices(5).ravel()) <= set(plan.owned())
    assert sorted(np.concatenate([plan.owned() for plan in plans])) == list(range(67))
    seen = {int(sample) for epoch in range(20) for sample in plans[0].indices(epoch).ravel()}
    assert seen == set(plans[0].owned())  # what one epoch leaves out, another brings


@pytest.mark.parametrize("shuffle", ["global", "local"])
def test_rare_classes_come_as_often_as_others_if_balanced(shuffle: Shuffle) -> None:
    labels = np.array([0] * 900 + [1] * 90 + [2] * 10)
    weights = class_weights(labels)
    plans = [Plan(num_samples=1000, batch=50, shuffle=shuffle, weights=weights, rank=rank, size=2) for rank in range(2)]
    drawn = np.concatenate([plan.indices(0).ravel() for plan in plans])
    share = np.bincount(labels[drawn], minlength=3) / len(drawn)
    assert share == pytest.approx([1 / 3] * 3, abs=0.03 if shuffle == "global" else 0.15)
    assert not np.array_equal(plans[0].indices(0), plans[0].indices(1))


@pytest.mark.parametrize(
    ("count", "batch", "size", "cure"),
    [(10, 8, 2, "data.batch=5 or less"), (3, 1, 4, "at most 3 ranks")],
)
def test_more_ranks_than_samples_are_refused_with_the_cure(count: int, batch: int, size: int, cure: str) -> None:
    with pytest.raises(ConfigError, match=cure):
        Plan(num_samples=count, batch=batch, size=size)


def test_wrong_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.batch = 0"):
        DataConfig(batch=0)
    with pytest.raises(ConfigError, match=r"data\.memory_gib = -1"):
        DataConfig(memory_gib=-1)


@given(sizes, st.integers(1, 7), st.integers(1, 60))
def test_in_order_each_batch_is_one_rank_s_whatever_the_number_of_ranks(size: int, batch: int, count: int) -> None:
    ranks = [SequentialPlan(num_samples=count, batch=batch, rank=rank, size=size) for rank in range(size)]
    dealt = sorted((each.tolist() for plan in ranks for each in plan.indices(0)), key=lambda each: each[0])
    assert dealt == [list(range(first, min(first + batch, count))) for first in range(0, count, batch)]
    assert sorted(np.concatenate([plan.owned() for plan in ranks]).tolist()) == list(range(count))
    assert [plan.steps_per_epoch for plan in ranks] == [len(plan.indices(1)) for plan in ranks]


def test_after_the_last_batch_in_order_nothing_is_sure_to_follow() -> None:
    in_order = SequentialPlan(num_samples=10, batch=4)
    assert [in_order.following(0, step) for step in range(3)] == [(0, 1), (0, 2), None]
    training = Plan(num_samples=10, batch=4)
    assert [training.following(3, step) for step in range(2)] == [(3, 1), (4, 0)]
