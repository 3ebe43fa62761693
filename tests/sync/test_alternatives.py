import pytest

from deepex.sync import STRATEGIES, find_traits, parse
from deepex.sync.alternatives import FIRST, halve_bytes, hide_messages, sync_every

EVERY_8 = {
    "allreduce": "local:8",
    "allreduce,bucket=1+bf16": "local:8+bf16",
    "lagged": "background:8",
    "local:2,outer=nesterov+topk:0.01": "local:8,outer=nesterov+topk:0.01",
    "background:2": "background:8",
    "hierarchical": "hierarchical(allreduce,local:8)",
    "hierarchical+bf16": "hierarchical(allreduce,local:8)+bf16",
    "hierarchical(lagged,local:2+fp16)": "hierarchical(lagged,local:8+fp16)",
    "hierarchical(allreduce,lagged)": "hierarchical(allreduce,background:8)",
    "hybrid:2": "hybrid:2,every=8",
    "hybrid:2,every=2,place=own": "hybrid:2,every=8,place=own",
    "async": "async,every=8",
    "auto": None,
    "somebody.elses:strategy": None,
}
ONCE_AN_EPOCH = {
    "allreduce+bf16": "local:epoch+bf16",
    "local:8,outer=nesterov": "local:epoch,outer=nesterov",
    "hierarchical(allreduce,local:8)": "hierarchical(allreduce,local:epoch)",
    "lagged": None,
    "background:8": None,
    "hybrid:2": None,
    "async": None,
    "auto": None,
}
HIDING = {
    "allreduce+bf16": "lagged+bf16",
    "local:8": "background:8",
    "hierarchical": "hierarchical(allreduce,lagged)",
    "hierarchical(allreduce,local:8)+bf16": "hierarchical(allreduce,background:8)+bf16",
    "local:epoch": None,
    "lagged": None,
    "background:8": None,
    "hybrid:2": None,
    "async": None,
    "auto": None,
}
HALF = {
    "allreduce,bucket=1": "allreduce,bucket=1+bf16",
    "hierarchical": "hierarchical+bf16",
    "hybrid:2": "hybrid:2+bf16",
    "local:8+topk:0.01": None,
    "hierarchical(allreduce,local:8+bf16)": None,
    "async": None,
    "auto": None,
}


@pytest.mark.parametrize("text", EVERY_8)
def test_the_same_with_fewer_syncs(text: str) -> None:
    assert sync_every(text, 8) == EVERY_8[text]


@pytest.mark.parametrize("text", ONCE_AN_EPOCH)
def test_the_same_with_one_sync_an_epoch(text: str) -> None:
    assert sync_every(text, None) == ONCE_AN_EPOCH[text]


@pytest.mark.parametrize("text", HIDING)
def test_the_same_with_hidden_messages(text: str) -> None:
    assert hide_messages(text) == HIDING[text]


@pytest.mark.parametrize("text", HALF)
def test_the_same_with_half_the_bytes(text: str) -> None:
    assert halve_bytes(text) == HALF[text]


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_answer_is_a_strategy_that_does_what_was_asked(name: str) -> None:
    text = STRATEGIES[name].example
    for steps in (1, 8, 100):
        rarer = sync_every(text, steps)
        assert rarer is None or find_traits(rarer).interval == steps
    hiding, half = hide_messages(text), halve_bytes(text)
    assert hiding is None or find_traits(hiding).hides_messages
    assert half is None or parse(half).traits.interval == find_traits(text).interval


def test_the_first_strategy_on_several_ranks_syncs_now_and_then() -> None:
    assert (find_traits(FIRST).interval or 0) > 1
