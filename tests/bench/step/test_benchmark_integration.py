"""The step benchmark as a user calls it, on the tiny network, and what it makes of its rows."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from deepex.bench.step.benchmark import Row, geometric_mean, science_mean, speedups
from deepex.bench.step.table import conclusions, markdown
from deepex.bench.step.workloads import SCIENCE, WORKLOADS
from deepex.cli.app import run_command
from tests.conftest import Command

ROW = Row(
    workload="tiny",
    variant="plain",
    wall_ms=2.0,
    cpu_ms=4.0,
    spread=0.1,
    ratio=1.0,
    share_of_peak=0.5,
    gflops_per_second=10.0,
    turns=3,
)


def test_rows_tables_and_conclusions_of_the_tiny_network(deepex: Command, tmp_path: Path) -> None:
    done = deepex(
        "bench", "step", "--workload", "tiny", "--repeats", "2", "--json", "rows.json", "--markdown", "table.md"
    )
    assert done.returncode == 0, done.stderr
    rows = {row["variant"]: row for row in json.loads((tmp_path / "rows.json").read_text())}
    assert {"plain", "deepex-fp32", "deepex-bf16"} <= set(rows)
    for row in rows.values():
        assert row["workload"] == "tiny"
        assert row["wall_ms"] > 0
        assert row["cpu_ms"] > 0
        assert row["ratio"] == pytest.approx(rows["plain"]["wall_ms"] / row["wall_ms"])
        assert row["share_of_peak"] > 0
        assert row["turns"] == 2
    assert rows["deepex-fp32"]["phases_share"] == pytest.approx(1.0, abs=0.2)
    assert rows["deepex-fp32"]["recording_share"] < 0.2
    assert "tiny network's step costs deepex" in done.stdout
    table = (tmp_path / "table.md").read_text()
    assert "- processor: " in table
    assert "| deepex-fp32 |" in table


def test_speedups_are_against_the_best_of_the_others() -> None:
    rows = [ROW, replace(ROW, variant="lightning", wall_ms=1.5), replace(ROW, variant="deepex-fp32", wall_ms=1.0)]
    assert speedups(rows, "deepex-fp32") == {"tiny": 1.5}
    assert science_mean(rows, "deepex-fp32") is None


def test_the_mean_is_geometric_and_over_the_science_workloads() -> None:
    rows = []
    for number, name in enumerate(SCIENCE):
        rows += [replace(ROW, workload=name), replace(ROW, workload=name, variant="deepex-fp32", wall_ms=2 / 2**number)]
    expected = math.prod(2.0**number for number in range(len(SCIENCE))) ** (1 / len(SCIENCE))
    assert science_mean(rows, "deepex-fp32") == pytest.approx(expected)
    assert f"deepex-fp32: {expected:.2f} times as fast" in conclusions(rows)[0]
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert all(WORKLOADS[name].title in markdown(rows, {"processor": "x"}) for name in SCIENCE)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--workload", "tinny"], "unknown workload 'tinny'. Did you mean 'tiny'?"),
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
