"""The sync benchmark on small sizes: as a user calls it, what its ranks do, and what it makes of its rows."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from deepex.bench.sync.benchmark import measure, read_rows, to_json
from deepex.bench.sync.fabrics import FabricsPlan, available_engines, measure_fabrics
from deepex.bench.sync.learning import LearningPlan, compare, measure_learning
from deepex.bench.sync.rank_pool import local_network, start_pool
from deepex.bench.sync.rows import Results, Row
from deepex.bench.sync.steps import (
    ALONE_DEEPEX,
    ALONE_PLAIN,
    DDP,
    SLOWED,
    cluster_plan,
    local_plan,
    measure_steps,
)
from deepex.bench.sync.table import conclusions, markdown
from deepex.cli.app import run_command
from deepex.errors import TrainingError, UsageError

STEP = Row(part="steps", network="cluster", name=DDP, ranks=4, wall_ms=1000.0, samples_per_second=100.0, ratio=1.0)


def quiet(text: str) -> None:
    """Say nothing."""


def remember(kept: list[str]) -> Results:
    def save(rows: Sequence[Row]) -> None:
        kept.append(to_json(rows))

    return Results(save)


def test_engines_take_turns_and_copies_are_their_measure(tmp_path: Path) -> None:
    engines = [name for name in available_engines() if name in ("Gloo", "MPI", "deepex shared")]
    plan = FabricsPlan(engines=engines, ranks=(2,), megabytes=(1,), rounds=2)
    kept: list[str] = []
    results = remember(kept)
    measure_fabrics(plan, tmp_path, results, quiet)
    rows = {row.name: row for row in results.of("fabrics", "local")}
    assert set(rows) == {*engines, "copy"}
    assert all(row.error is None and row.turns == 2 for row in rows.values())
    speeds = {name: row.gigabytes_per_second or 0.0 for name, row in rows.items()}
    shared = rows["deepex shared"]
    assert shared.ratio == pytest.approx(speeds["deepex shared"] / speeds["Gloo"])
    assert shared.share_of_copy == pytest.approx(2 * 2 * speeds["deepex shared"] / speeds["copy"])
    assert rows["Gloo"].share_of_copy is None
    assert json.loads(kept[-1])[0]["megabytes"] == 1


def test_steps_are_compared_with_ddp_and_a_variant_that_fails_is_noted(tmp_path: Path) -> None:
    plan = local_plan(quick=True)
    chosen = [variant for variant in plan.variants if variant.name in (DDP, "local:epoch")]
    plan = replace(plan, variants=[*chosen, replace(chosen[1], name="broken", sync="hybrid:5")])
    results = remember([])
    measure_steps(plan, local_network(2), tmp_path, results, quiet)
    rows = {row.name: row for row in results.of("steps", "local")}
    ddp, own = rows[DDP], rows["local:epoch"]
    assert ddp.wall_ms is not None
    assert own.wall_ms is not None
    assert own.ratio == pytest.approx(ddp.wall_ms / own.wall_ms)
    assert ddp.samples_per_second is not None
    assert ddp.samples_per_second > 0
    assert own.sync_share is not None
    assert 0 < own.sync_share < 1
    assert "hybrid:5" in (rows["broken"].error or "")
    assert rows["broken"].wall_ms is None


def test_runs_are_told_by_their_records_and_not_repeated(tmp_path: Path) -> None:
    before = Row(part="learning", network="local", name="local:epoch", ranks=2, seed=0)
    results = Results(lambda rows: None, [before, replace(before, name="allreduce", error="stopped")])
    plan = LearningPlan(strategies=("allreduce", "local:epoch"), epochs=1)
    said: list[str] = []
    measure_learning(plan, local_network(2), tmp_path, results, said.append)
    assert said == ["learning, local, seed 0: allreduce", "learning, local, seed 0: local:epoch: done before"]
    row, other = results.of("learning", "local")
    assert other == before
    assert row.error is None
    assert (row.ranks, row.epochs, row.target_reached, row.metric) == (2, 1, False, "rmse")
    assert row.curve == [(1, row.seconds, row.value)]


def test_a_rank_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    spec = {"part": "steps", "trainer": "plain", "network": "absent"}
    pool = start_pool("tried", local_network(1), tmp_path / "pool", spec)
    with pytest.raises(TrainingError, match="tried was not ready: KeyError: 'absent'"), pool:
        pass


def test_plans_have_all_that_is_compared() -> None:
    local, cluster = ({variant.name for variant in plan().variants} for plan in (local_plan, cluster_plan))
    both = {ALONE_PLAIN, ALONE_DEEPEX, DDP, "DDP, bucket views", "allreduce", "allreduce+bf16", "lagged", "local:epoch"}
    assert both | {"local:8", "background:8", "hybrid:2", "async"} <= local
    assert both | {"local:16", "background:16", "hybrid:2", SLOWED, "hierarchical(allreduce,local:16)"} <= cluster


def test_finished_parts_are_not_measured_again(tmp_path: Path) -> None:
    done = replace(STEP, network="local", is_finished=True)
    (tmp_path / "rows.json").write_text(to_json([done, replace(STEP, name="half done")]))
    results = Results(lambda rows: None, read_rows(tmp_path / "rows.json"))
    said: list[str] = []
    measure(["steps"], local_network(2), results, said.append, lambda part: None)
    assert said == ["steps, local: done before"]
    assert [row.name for row in results.rows] == [DDP], "what was not finished is forgotten"
    (tmp_path / "rows.json").write_text('[{"workload": "tiny"}]')
    with pytest.raises(UsageError, match="holds no rows of this benchmark"):
        read_rows(tmp_path / "rows.json")


def test_conclusions_name_each_figure_its_target_and_whether_it_was_met() -> None:
    rows = [
        STEP,
        replace(STEP, name=ALONE_DEEPEX, wall_ms=200.0),
        replace(STEP, name="allreduce", ratio=0.97),
        replace(STEP, name="allreduce+bf16", ratio=1.7),
        replace(STEP, name="lagged", wall_ms=1010.0, sync_ms=1000.0),
        replace(STEP, name="local:epoch", sync_share=0.04),
        replace(STEP, name="local:16", samples_per_second=600.0),
        replace(STEP, name="hybrid:2", first_group_samples_per_second=50.0),
        replace(STEP, name=SLOWED, first_group_samples_per_second=51.0, error="tired"),
    ]
    told = "\n".join(conclusions(rows))
    for words in (
        "allreduce against DDP, wall time of a step: 0.97 × (target ≥ 0.98 ×: NOT met)",
        "allreduce+bf16 against DDP, wall time of a step: 1.70 × (target ≥ 1.6 ×: met)",
        "hidden: 95 % (target ≥ 80 %: met)",
        "in sync: 4.0 % (target < 5 %: met)",
        "local:16 against DDP, samples/s: 6.00 × (target ≥ 5 ×: met)",
        "against beside a healthy one: 1.02 × (target ≥ 0.95 ×: met)",
        "(steps, cluster): tired",
    ):
        assert words in told
    runs = [replace(STEP, part="learning", seconds_to_target=40.0, name="allreduce", target_reached=True)]
    runs += [replace(runs[0], name="auto", seconds_to_target=10.0, choices=[{"sync": "local:8"}, {"sync": "local:8"}])]
    runs += [replace(STEP, part="learning", name="async")]
    told = markdown(compare(runs), {"processor": "x"})
    assert "auto is the fastest, 4.00 × allreduce" in told
    assert "not to its target: async" in told
    assert "| local:8 |" in told
    assert "- processor: x" in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--part", "fabric"], "unknown part 'fabric'. Did you mean 'fabrics'?"),
        (["--network", "global"], "unknown network 'global'."),
        (["--seeds", "0"], "--seeds 0. Allowed: whole numbers from 1."),
        (["--resume"], "--resume without a file to go on with. Name it with --json FILE."),
    ],
)
def test_wrong_usage_is_told_before_anything_is_measured(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["bench", "sync", *words]) == 2
    assert message in capsys.readouterr().err
