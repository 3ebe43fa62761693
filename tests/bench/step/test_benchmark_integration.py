"""The step benchmark as a user calls it, on the tiny network, and what it makes of its rows."""

import json
import math
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from deepex.bench.step.allocator import preload_jemalloc
from deepex.bench.step.benchmark import Row, available_variants, geometric_mean, measure, science_mean, speedups
from deepex.bench.step.expert import list_ways
from deepex.bench.step.table import LEGEND, conclusions, markdown
from deepex.bench.step.variants import VARIANTS
from deepex.bench.step.workloads import SCIENCE, WORKLOADS
from deepex.cli.app import run_command
from tests.conftest import Command
from tests.interpreter import PYTHON

ROW = Row(
    workload="tiny",
    variant="plain",
    kind="peer",
    precision="fp32",
    wall_ms=2.0,
    cpu_ms=4.0,
    spread=0.1,
    share_of_peak=0.5,
    gflops_per_second=10.0,
    turns=3,
)
OURS = replace(ROW, variant="deepex-fp32", kind="ours", wall_ms=1.0)


def test_rows_tables_and_conclusions_of_the_tiny_network(deepex: Command, tmp_path: Path) -> None:
    named = ("plain", "deepex-fp32", "plain-bf16", "deepex-bf16")
    options = [word for name in named for word in ("--variant", name)]
    files = ("--json", "rows.json", "--markdown", "table.md")
    done = deepex("bench", "step", "--workload", "tiny", *options, "--repeats", "2", *files)
    assert done.returncode == 0, done.stderr
    rows = {row["variant"]: row for row in json.loads((tmp_path / "rows.json").read_text())}
    assert tuple(rows) == named
    for name, row in rows.items():
        assert row["workload"] == "tiny"
        assert (row["kind"], row["precision"]) == (VARIANTS[name].kind, VARIANTS[name].precision)
        assert row["wall_ms"] > 0
        assert row["cpu_ms"] > 0
        assert row["share_of_peak"] > 0
        assert row["turns"] == 2
        plain = "plain" if row["precision"] == "fp32" else "plain-bf16"
        assert row["times_best_peer"] == pytest.approx(rows[plain]["wall_ms"] / row["wall_ms"])
        assert row["times_expert"] is None
        assert (row["phases_share"] is None) == (row["kind"] == "peer")
    assert rows["deepex-fp32"]["phases_share"] == pytest.approx(1.0, abs=0.2)
    assert rows["deepex-fp32"]["recording_share"] < 0.2
    assert "tiny network's step costs deepex-fp32" in done.stdout
    assert "tiny network's step costs deepex-bf16" in done.stdout
    table = (tmp_path / "table.md").read_text()
    assert "- processor: " in table
    assert "--variant plain-bf16 " in table
    assert "| deepex-fp32 |" in table
    assert all(sentence in table for sentence in LEGEND)


def test_an_expert_has_jemalloc_and_the_fastest_of_a_few_ways_and_the_row_says_which(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.executable", PYTHON)  # an allocator is preloaded where a process begins
    told: list[str] = []
    plain, expert = measure(["tiny"], ["plain", "expert-fp32"], 1, told.append)
    assert (plain.note, expert.kind) == ("", "expert")
    assert expert.note.startswith(("contiguous, eager", "contiguous, compiled"))
    assert ("without jemalloc" in expert.note) == (not preload_jemalloc())
    for way in list_ways(has_convolutions=False, is_small=True):
        assert any(f"expert-fp32 on tiny: trying {way}" in line for line in told)
    assert f"| {expert.note} |" in markdown([plain, expert], {})


@pytest.mark.parametrize("framework", ["lightning", "fabric", "accelerate"])
def test_frameworks_run_in_both_precisions_where_they_are_installed(framework: str) -> None:
    names, missing = available_variants(["plain", framework, "plain-bf16", f"{framework}-bf16"])
    assert (framework in names) == (VARIANTS[framework].package not in missing)
    rows = measure(["tiny"], names, 1, lambda text: None)
    assert [row.variant for row in rows] == names
    assert all(row.wall_ms > 0 for row in rows)


def test_variants_whose_package_is_missing_are_left_out() -> None:
    names, missing = available_variants()
    assert {"plain", "plain-bf16", "expert-fp32", "expert-bf16", "deepex-fp32", "deepex-bf16"} <= set(names)
    assert all(find_spec(package) is None for package in missing)
    assert not [name for name in names if VARIANTS[name].package in missing]


def test_speedups_are_against_the_best_of_a_kind_in_the_same_precision() -> None:
    rows = [
        ROW,
        replace(ROW, variant="lightning", wall_ms=1.5),
        replace(ROW, variant="plain-bf16", precision="bf16", wall_ms=0.5),
        replace(ROW, variant="expert-fp32", kind="expert", wall_ms=0.9),
        OURS,
        replace(OURS, variant="deepex-bf16", precision="bf16", wall_ms=0.4),
    ]
    assert speedups(rows, "deepex-fp32", "peer") == {"tiny": 1.5}
    assert speedups(rows, "deepex-fp32", "expert") == {"tiny": 0.9}
    assert speedups(rows, "deepex-bf16", "peer") == {"tiny": 1.25}
    assert speedups(rows, "deepex-bf16", "expert") == {}
    assert science_mean(rows, "deepex-fp32", "peer") is None


def test_means_are_geometric_over_the_science_workloads_against_peers_and_against_the_expert() -> None:
    rows = []
    for number, name in enumerate(SCIENCE):
        rows += [
            replace(ROW, workload=name),
            replace(
                ROW, workload=name, variant="expert-fp32", kind="expert", wall_ms=1.0, note="channels last | eager"
            ),
            replace(OURS, workload=name, wall_ms=2 / 2**number),
        ]
    expected = math.prod(2.0**number for number in range(len(SCIENCE))) ** (1 / len(SCIENCE))
    assert science_mean(rows, "deepex-fp32", "peer") == pytest.approx(expected)
    against_peers, against_expert = conclusions(rows)
    assert f"deepex-fp32 is {expected:.2f} times as fast as the best of what people run in fp32" in against_peers
    assert f"{expected / 2:.2f} times as fast as what an expert could write by hand in fp32" in against_expert
    assert "least 0.50" in against_expert
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    table = markdown(rows, {"processor": "x"})
    assert all(WORKLOADS[name].title in table for name in SCIENCE)
    assert "| channels last / eager |" in table  # a bar would begin another cell


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--workload", "tinny"], "unknown workload 'tinny'. Did you mean 'tiny'?"),
        (["--variant", "plane"], "unknown variant 'plane'. Did you mean 'plain'?"),
        (["--repeats", "0"], "--repeats 0. Allowed: whole numbers from 1."),
        (["--workload", "tiny", "--json", "absent/rows.json"], "--json absent/rows.json can't be written"),
        (["--workload", "tiny", "--markdown", "absent/table.md"], "--markdown absent/table.md can't be written"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_measured(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["bench", "step", *words]) == 2
    assert message in capsys.readouterr().err
