"""One real examination of this machine, as a user starts it."""

import json
import tomllib
from pathlib import Path

from tests.conftest import Command

SIZES = [4 * 2**10, 64 * 2**10, 2**20, 8 * 2**20, 64 * 2**20]


def test_the_doctor_measures_prints_and_writes_this_machine(deepex: Command, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "machine.toml").write_text("an earlier one")
    done = deepex("doctor", "--data", "data", "--json", "machine.json", variables={"OMP_NUM_THREADS": "1000"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "machine: machine.toml"
    assert "measuring matrix products in fp32" in done.stderr
    assert "OMP_NUM_THREADS asks for 1000 threads" in " ".join(done.stdout.split())

    machine = tomllib.loads((tmp_path / "machine.toml").read_text())
    same = json.loads((tmp_path / "machine.json").read_text())
    assert set(machine) == set(same)
    assert machine["gemm"] == same["gemm"]
    cores = machine["processor"]["usable_cores"]
    rows = [(rate["dtype"], rate["threads"]) for rate in machine["gemm"]]
    assert rows == [(dtype, threads) for dtype in ("fp32", "bf16") for threads in sorted({1, cores})]
    assert all(0 < rate["median_gflops"] <= rate["best_gflops"] for rate in machine["gemm"])
    assert all(0 < rate["median_gb_per_second"] <= rate["best_gb_per_second"] for rate in machine["copy"])
    (torch,) = (fabric for fabric in machine["fabrics"] if fabric["name"] == "torch")
    assert torch["reason"] == "none"
    assert [row["bytes"] for row in torch["times"]] == SIZES
    assert all(row["median_seconds"] > 0 and row["gb_per_second"] > 0 for row in torch["times"])
    assert machine["data_folder"]["path"] == str(tmp_path / "data")
    for folder in (machine["data_folder"], machine["temporary_folder"]):
        assert all(folder[f"{what}_mb_per_second"] > 0 for what in ("read", "cached", "write"))
    assert "too_many_threads" in {warning["name"] for warning in machine["warnings"]}
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["data", "machine.json", "machine.toml"]
