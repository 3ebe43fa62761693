"""What a run is said to be bound by, from rows as ranks write them; and that predictions keep to what was measured."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from deepex import sync as strategies
from deepex.diagnosis.causes import account
from deepex.diagnosis.diagnosis import diagnose
from deepex.diagnosis.evidence import Circumstances, Evidence
from deepex.record.rows import Diagnosis, RankRow
from deepex.record.typed_json import from_json, to_json
from tests.diagnosis.runs import MILLISECOND, SLOW_LINK, WEIGHTS_BYTES, carried, changes, judge, row, step_cost


def test_a_rank_that_computes_is_bound_by_computation_and_hears_nothing_of_messages() -> None:
    found = judge(row(compute=10.0))
    assert found.bound == "computation"
    assert "97 % of a step computes, at 60 % of the rate" in found.verdict
    assert changes(found) == ["--ranks 4, on 4 × the cores"]
    assert found.advice[0].gain == pytest.approx(4)
    said = json.dumps(to_json(found))
    assert not any(word in said for word in ("message", "link", "slower ranks"))


def test_little_to_multiply_is_said_where_the_peak_is_far() -> None:
    far = [step_cost(flops_per_step=50_000_000)]
    found = judge(row(compute=10.0, core_wait_seconds=0.0), step_costs=far)
    assert any(
        "5.0 % of the 100 GFLOP/s" in sentence and "most of it moves data" in sentence for sentence in found.evidence
    )
    assert any("or shares its cores" in sentence for sentence in judge(row(compute=10.0), step_costs=far).evidence)


def test_waiting_for_samples_is_input_and_advice_names_what_is_not_set() -> None:
    waiting = row(feed=6.0, compute=10.0)
    found = judge(waiting)
    assert found.bound == "input"
    assert "38 % of a step waits for samples" in found.verdict
    assert changes(found)[0] == "--stage DIR"
    assert found.advice[0].gain == pytest.approx(1.6)
    assert changes(judge(waiting, memory_gib=2.0))[0] == "data.memory_gib=4"
    assert changes(judge(waiting, stage="/local"))[0] == "deepex data pack"
    assert changes(judge(waiting, storage="files"))[0] == "deepex data pack"


def test_what_can_not_be_done_with_objects_of_a_program_or_in_a_loop_is_not_advised() -> None:
    waiting = row(feed=6.0, compute=10.0)
    assert not any("stage" in change or "pack" in change for change in changes(judge(waiting, storage="given")))
    held = judge(waiting, storage="given", memory_gib=2.0, own_loop=True)
    assert changes(held)[0] == "memory_gib=4"
    talking = [row(sync=6.0, traffic=carried(calls=1, num_bytes=4000)) for _ in range(2)]
    assert changes(judge(*talking, own_loop=True, storage="given"))[0].startswith('sync="')
    ranks = [row(sync=5.0), row(sync=5.0), row(feed=5.1)]
    assert "--stage DIR" not in changes(judge(*ranks, hosts=["n1", "n2", "n3"], storage="given"))


def test_many_short_messages_are_latency() -> None:
    link = {"latency_seconds": 5 * MILLISECOND, "bytes_per_second": 1e10}
    ranks = [row(sync=5.0, traffic=carried(calls=1, num_bytes=4000)) for _ in range(4)]
    found = judge(*ranks, link=link)
    assert found.bound == "latency"
    assert "33 % of a step" in found.verdict
    assert found.shares["bandwidth"] < 0.01


def test_long_messages_are_bandwidth() -> None:
    ranks = [row(sync=5.0, traffic=carried(calls=1, num_bytes=WEIGHTS_BYTES)) for _ in range(4)]
    found = judge(*ranks, link=SLOW_LINK)
    assert found.bound == "bandwidth"
    assert found.shares["bandwidth"] == pytest.approx(4 * found.shares["latency"])
    assert any("4.0 MB a step in 1.0 messages" in sentence for sentence in found.evidence)


def test_without_a_measured_link_the_length_of_messages_decides() -> None:
    short = [row(sync=5.0, traffic=carried(calls=4, num_bytes=4000)) for _ in range(2)]
    assert judge(*short).bound == "latency"
    uncounted = [row(sync=5.0) for _ in range(2)]
    assert judge(*uncounted).bound == "bandwidth"  # 4 MB a step, by the strategy


def test_a_slow_rank_is_named_with_its_host_and_its_phase() -> None:
    ranks = [row(compute=10.0, sync=6.0) for _ in range(7)] + [row(compute=15.5, sync=0.5)]
    found = judge(*ranks, hosts=["n1"] * 4 + ["n2"] * 4, link=SLOW_LINK)
    assert found.bound == "imbalance"
    assert "34 % of a step waits for rank 7 on n2, slower in computing" in found.verdict
    assert any(
        "Rank 7 on n2 takes 1.54 ×" in sentence and "as fast as others" in sentence for sentence in found.evidence
    )
    assert found.advice[0].change == "see what else runs on n2 (deepex doctor there)"
    assert found.advice[0].gain == pytest.approx(16.1 / 10.6, rel=0.01)


def test_a_slow_rank_with_slow_cores_is_told_from_one_whose_core_is_shared() -> None:
    ranks = [row(compute=10.0, sync=6.0), row(compute=16.0)]
    slower = judge(*ranks, step_costs=[step_cost(), step_cost(gemm_flops_per_second=6e10)])
    assert any("cores were slower from the start" in sentence for sentence in slower.evidence)
    ranks = [row(compute=10.0, sync=6.0, core_wait_seconds=0.0), row(compute=16.0, core_wait_seconds=0.006 * 400)]
    shared = judge(*ranks)
    assert any("Its cores are shared" in sentence for sentence in shared.evidence)


def test_a_slow_disk_is_an_imbalance_in_samples() -> None:
    ranks = [row(sync=5.0), row(sync=5.0), row(feed=5.1)]
    found = judge(*ranks, hosts=["n1", "n2", "n3"])
    assert found.bound == "imbalance"
    assert "rank 2 on n3, slower in getting samples" in found.verdict
    assert changes(found)[0] == "--stage DIR"


def test_of_many_slow_ranks_a_few_are_named() -> None:
    ranks = [row(sync=8.0) for _ in range(60)] + [row(compute=18.0) for _ in range(40)]
    found = judge(*ranks, hosts=["n1"] * 60 + ["n2"] * 40)
    assert "ranks 60, 61, 62, 63 and 36 more on n2" in found.verdict


def test_ranks_that_are_late_by_turns_wait_longer_than_the_link_explains() -> None:
    ranks = [row(sync=6.0, traffic=carried(calls=1, num_bytes=4000)) for _ in range(4)]
    found = judge(*ranks, link=SLOW_LINK)
    assert found.bound == "imbalance"
    assert "late by turns" in found.verdict
    assert changes(found)[0] == "--sync local:8"


def test_a_small_spread_is_no_reason_to_blame_a_rank() -> None:
    ranks = [*(row(compute=10.0, sync=1.0) for _ in range(7)), row(compute=10.9, sync=0.1)]
    found = judge(*ranks)
    assert found.bound == "computation"
    assert any("the slowest of them, rank 7 on n1, though none takes a tenth longer" in text for text in found.evidence)
    assert not any("doctor" in change for change in changes(found))


def test_a_peak_that_was_measured_on_a_busy_core_is_not_told() -> None:
    found = judge(row(compute=10.0), step_costs=[step_cost(gemm_flops_per_second=1e9)])
    assert found.verdict == "Bound by computation: 97 % of a step computes."


def test_starting_operators_is_the_framework_and_spare_cores_are_used() -> None:
    tiny = row(compute=0.5, feed=0.01, steps=4000)
    measured = step_cost(flops_per_step=1_000_000, dispatch_seconds=0.0004)
    found = judge(tiny, step_costs=[measured], cores=4, weights_bytes=20_000)
    assert found.bound == "framework"
    assert "78 % of a step starts operators" in found.verdict
    assert changes(found) == ["--ranks 4 --sync local:8", "data.batch=128"]
    assert found.advice[1].gain == pytest.approx(2 * 0.51 / (0.4 + 2 * 0.11), rel=0.01)
    assert changes(judge(tiny, step_costs=[measured])) == ["data.batch=128"]


def test_computing_stays_the_bound_until_another_cause_is_comparable() -> None:
    """The headline must not change with a percent of noise."""
    share = {}
    for dispatch in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0):
        found = judge(row(compute=10.0), step_costs=[step_cost(dispatch_seconds=dispatch * MILLISECOND)])
        share[found.shares["framework"]] = found.bound
    assert [bound for _, bound in sorted(share.items())] == ["computation"] * 4 + ["framework"] * 2
    some = judge(row(compute=10.0), step_costs=[step_cost(dispatch_seconds=1.5 * MILLISECOND)])
    assert some.verdict.endswith("starting operators takes 15 %.")
    assert any(text.startswith("Starting a step's operators takes about 1.50 ms") for text in some.evidence)


def test_cores_that_others_use_are_told_from_computing() -> None:
    found = judge(row(compute=20.0, core_wait_seconds=10 * MILLISECOND * 400))
    assert found.bound == "computation"
    assert "on cores that others use" in found.verdict
    assert found.shares["cores"] == pytest.approx(found.shares["computation"], rel=0.05)
    assert changes(found) == ["give each rank cores of its own"]


def test_two_equal_causes_are_both_named() -> None:
    ranks = [row(feed=5.0, sync=5.0, traffic=carried(calls=1, num_bytes=WEIGHTS_BYTES)) for _ in range(2)]
    found = judge(*ranks, link=SLOW_LINK)
    assert found.bound == "input"
    assert "nearly as much by communication (bandwidth)" in found.verdict


def test_few_steps_are_called_thin_evidence() -> None:
    assert judge(row(steps=5)).thin
    assert any("evidence is thin, 5 steps" in sentence for sentence in judge(row(steps=5)).evidence)
    assert judge(row(compute=0.5, steps=400)).thin
    assert not judge(row()).thin


def test_the_first_epoch_is_left_out_and_named_where_it_was_slow() -> None:
    epochs = [row(feed=30.0, epoch=1), *(row(epoch=number) for number in range(2, 6))]
    found = judge(epochs)
    assert found.bound == "computation"
    assert any("first epoch is left out: its steps took 3.96 ×" in sentence for sentence in found.evidence)
    assert judge(epochs[:2]).bound == "input"


def test_ranks_that_do_not_train_and_epochs_without_steps_do_not_count() -> None:
    server = row(compute=0.0, sync=10.0, trains=False)
    found = judge(row(trains=True), row(trains=True), server)
    assert any("2 ranks do as much" in sentence for sentence in found.evidence)
    assert Evidence.gather([[row(steps=0)]], Circumstances()) is None
    assert Evidence.gather([], Circumstances()) is None


def test_ranks_with_other_numbers_of_steps_are_compared_by_the_step() -> None:
    """Where nobody waits, a rank that takes half as many steps, each twice as long, holds up nobody."""
    found = judge(row(compute=10.0, sync=0.2, steps=400), row(compute=20.0, sync=0.2, steps=200), sync="async")
    assert found.bound == "computation"
    assert found.shares["imbalance"] == 0


def test_rows_of_older_runs_are_enough() -> None:
    phases = {"input": 1.0, "forward": 0.4, "sync": 0.2}
    bare = RankRow(epoch=1, seconds=2.0, steps=100, step_wall_seconds=2.0, phase_seconds=phases)
    evidence = Evidence.gather([[bare], [bare]], Circumstances())
    assert evidence is not None
    found = diagnose(evidence)
    assert found.bound == "input"
    assert found.shares["framework"] == pytest.approx(0.2)  # what lies between the phases


def test_a_diagnosis_survives_json() -> None:
    found = judge(row(sync=5.0), row(sync=5.0))
    assert from_json(Diagnosis, json.loads(json.dumps(to_json(found)))) == found


times = some.floats(0.0, 50.0, allow_subnormal=False)
ranks_of_any_kind = some.lists(
    some.builds(
        row,
        feed=times,
        compute=some.floats(0.01, 50.0),
        sync=times,
        steps=some.integers(1, 1000),
        core_wait_seconds=some.none() | some.floats(0.0, 20.0),
        traffic=some.none()
        | some.builds(
            carried, calls=some.floats(0.01, 9.0), num_bytes=some.floats(0.0, 1e8), hidden=some.floats(0.0, 50.0)
        ),
    ),
    min_size=1,
    max_size=9,
)
any_link = some.none() | some.fixed_dictionaries(
    {"latency_seconds": some.floats(1e-6, 1e-2), "bytes_per_second": some.floats(1e6, 1e12)}
)
any_sync = some.sampled_from(
    [*(strategy.example for strategy in strategies.STRATEGIES.values()), "local:epoch", "hierarchical", "lagged+bf16"]
)


@settings(max_examples=150, deadline=None)
@given(ranks=ranks_of_any_kind, link=any_link, sync=any_sync, dispatch=some.floats(0.0, 0.1), overlaps=some.booleans())
def test_causes_add_up_to_the_step_and_no_advice_costs_time(
    ranks: list[RankRow], link: dict[str, float] | None, sync: str, dispatch: float, overlaps: bool
) -> None:
    measured = [step_cost(dispatch_seconds=dispatch, threads=2) for _ in ranks]
    circumstances = Circumstances(batch=32, sync=sync, link=link, overlaps=overlaps, weights_bytes=WEIGHTS_BYTES)
    evidence = Evidence.gather([[rank] for rank in ranks], circumstances, step_costs=measured)
    assert evidence is not None
    parts = account(evidence)
    assert parts.parts.wall == pytest.approx(
        sum(rank.wall_seconds for rank in parts.steady_ranks) / len(parts.steady_ranks)
    )
    found = diagnose(evidence)
    assert math.fsum(found.shares.values()) == pytest.approx(1)
    assert all(-1e-9 <= share <= 1 + 1e-9 for share in found.shares.values())
    assert len(found.advice) <= 2
    assert all(advice.gain >= 1.05 for advice in found.advice)
    for change in changes(found):
        if change.startswith("--sync "):
            strategies.parse(change.removeprefix("--sync "))
