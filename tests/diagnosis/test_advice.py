"""What is advised, by which strategy a run has; and that gains follow from what was measured."""

import math

import pytest

from deepex.record.rows import Advice
from tests.diagnosis.runs import SLOW_LINK, WEIGHTS_BYTES, carried, changes, judge, row


def test_what_is_set_already_is_not_advised() -> None:
    ranks = [row(sync=5.0, traffic=carried(calls=1, num_bytes=WEIGHTS_BYTES)) for _ in range(4)]
    assert changes(judge(*ranks, link=SLOW_LINK, device="cuda:0"))[0] == "--sync lagged"
    assert changes(judge(*ranks, link=SLOW_LINK))[0] == "--sync local:8"
    assert changes(judge(*ranks, link=SLOW_LINK, device="cuda:0", overlaps=False))[0] == "--sync local:8"
    assert not any("lagged" in change for change in changes(judge(*ranks, link=SLOW_LINK, sync="lagged+bf16")))
    rarer = judge(*ranks, link=SLOW_LINK, sync="local:8,outer=nesterov+bf16", overlaps=False)
    assert changes(rarer)[0] == "--sync local:32,outer=nesterov+bf16"
    assert not any("--sync" in change for change in changes(judge(*ranks, sync="local:epoch+bf16")))
    assert not any("--precision" in change for change in changes(judge(row(), precision="bf16", has_bf16=True)))
    assert changes(judge(row(), has_bf16=True))[0] == "--precision bf16"


def test_messages_behind_computing_come_to_light_when_ranks_sync_less_often() -> None:
    """What allreduce hides, local SGD shows: once in eight steps."""
    open_ranks, hiding = (
        [row(sync=5.0, traffic=carried(calls=4, num_bytes=8 * WEIGHTS_BYTES, hidden=hidden)) for _ in range(2)]
        for hidden in (0.0, 4.0)
    )
    plain, hidden = (judge(*ranks, link=SLOW_LINK, overlaps=False).advice[0] for ranks in (open_ranks, hiding))
    assert plain.change == hidden.change == "--sync local:8"
    assert hidden.gain < plain.gain


def test_messages_that_travel_side_by_side_take_no_more_than_the_link_needs() -> None:
    """Each of four buckets under way counts its own time: 25 ms together, where the link needs 8."""
    message = carried(calls=4, num_bytes=WEIGHTS_BYTES, milliseconds=5.0, hidden=20.0)
    ranks = [row(sync=5.0, traffic=message) for _ in range(2)]
    found = judge(*ranks, link=SLOW_LINK, overlaps=False)
    assert any("wait 4.00 ms a step for them; 4.00 ms more are hidden" in sentence for sentence in found.evidence)
    left = 8 / 8 + 1 / math.sqrt(
        8
    )  # of 4 ms for messages, 4 hidden and 1 for ranks late by turns, of which 1 in 8 is left
    assert found.advice[0].gain == pytest.approx(15.1 / (15.1 - 5 + left), rel=0.001)


def test_more_ranks_bring_less_the_more_they_exchange() -> None:
    quiet = [row(sync=0.5, traffic=carried(calls=1, num_bytes=WEIGHTS_BYTES)) for _ in range(4)]
    busy = [row(sync=1.5, traffic=carried(calls=1, num_bytes=WEIGHTS_BYTES)) for _ in range(4)]
    few, many = (judge(*ranks, link=SLOW_LINK) for ranks in (quiet, busy))
    assert few.bound == many.bound == "computation"
    assert 3 < many.advice[-1].gain < few.advice[-1].gain < 4
    assert any("4 ranks do as much as about 3.8 that never wait" in sentence for sentence in few.evidence)


def advise_sync(sync: str, *, device: str = "cpu", overlaps: bool = False, milliseconds: float = 5.0) -> Advice | None:
    """The other strategy that ranks are advised, which wait as long in each step of 10 ms for 4 MB in one message."""
    ranks = [row(sync=milliseconds, traffic=carried(calls=1, num_bytes=WEIGHTS_BYTES)) for _ in range(4)]
    found = judge(*ranks, link=SLOW_LINK, sync=sync, device=device, overlaps=overlaps)
    return next((advice for advice in found.advice if advice.change.startswith("--sync ")), None)


FEWER = {
    "allreduce": "local:8",
    "local:8": "local:32",
    "lagged": "background:8",
    "background:8": "background:32",
    "hierarchical": "hierarchical(allreduce,local:8)",
    "hierarchical(lagged,allreduce)": "hierarchical(lagged,local:8)",
    "hybrid:2,every=1+bf16": "hybrid:2,every=8+bf16",
    "async": "async,every=8",
}


@pytest.mark.parametrize("sync", FEWER)
def test_every_strategy_that_has_an_interval_is_told_a_longer_one(sync: str) -> None:
    found = advise_sync(sync)
    assert found is not None
    assert found.change == f"--sync {FEWER[sync]}"
    assert "Replicas drift apart" in found.sentence


@pytest.mark.parametrize("sync", ["auto", "local:epoch+bf16", "somebody.elses:strategy"])
def test_a_strategy_without_an_alternative_is_told_none(sync: str) -> None:
    assert advise_sync(sync, device="cuda:0", overlaps=True) is None


def test_a_longer_interval_ends_with_the_epoch() -> None:
    ranks = [row(sync=5.0, steps=30, traffic=carried(calls=1, num_bytes=WEIGHTS_BYTES, steps=30)) for _ in range(2)]
    assert changes(judge(*ranks, sync="local:8"))[0] == "--sync local:epoch"
    assert "--sync background:30" in changes(judge(*ranks, sync="background:10"))


def test_only_messages_between_nodes_are_taken_for_saved() -> None:
    """Half of the 4 ms for messages, of which 7 in 8 are saved; ranks of a node are late by turns as before."""
    two_levels, one_level = advise_sync("hierarchical"), advise_sync("allreduce")
    assert two_levels is not None
    assert one_level is not None
    assert "only between nodes or groups" in two_levels.sentence
    assert "nodes or groups" not in one_level.sentence
    assert two_levels.gain == pytest.approx(15.1 / (15.1 - 0.5 * 5 * 7 / 8), rel=0.001)
    assert two_levels.gain < one_level.gain


def test_messages_between_nodes_are_hidden_by_the_strategy_between_them() -> None:
    found = advise_sync("hierarchical(allreduce,local:2)", device="cuda:0", overlaps=True)
    assert found is not None
    assert found.change == "--sync hierarchical(allreduce,background:2)"
    assert "replicas learn of each other 2 steps later" in found.sentence


def test_bytes_are_halved_where_a_strategy_compresses_them() -> None:
    """Of hybrid those inside groups, here nine in ten; of hierarchical those between nodes, here one in ten."""
    ranks = [row(sync=9.0, traffic=carried(calls=1, num_bytes=8_000_000)) for _ in range(4)]
    inside = judge(*ranks, sync="hybrid:2,every=9", link=SLOW_LINK, has_bf16=True)
    told = {advice.change: advice.sentence for advice in inside.advice}
    assert "half of 7.2 MB a step travel, only inside nodes or groups" in told["--sync hybrid:2,every=9+bf16"]
    between = judge(*ranks, sync="hierarchical(allreduce,local:9)", link=SLOW_LINK, has_bf16=True)
    assert not any("+bf16" in change for change in changes(between))


def test_a_strategy_that_chooses_for_itself_is_said_to() -> None:
    ranks = [row(sync=5.0, traffic=carried(calls=1, num_bytes=WEIGHTS_BYTES)) for _ in range(4)]
    chosen, given = (judge(*ranks, link=SLOW_LINK, sync=sync) for sync in ("auto", "allreduce"))
    assert any("How often they do is the strategy's own choice" in sentence for sentence in chosen.evidence)
    assert not any("own choice" in sentence for sentence in given.evidence)


def test_messages_that_nobody_counted_are_those_that_a_strategy_promises() -> None:
    """All ranks in each fourth step, and those of a node in each."""
    found = judge(row(sync=5.0), row(sync=5.0), sync="hierarchical(allreduce,local:4)")
    assert any("Ranks exchange 5.0 MB a step in 1.2 messages" in sentence for sentence in found.evidence)
