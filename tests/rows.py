"""Rows of the record for tests: complete, with what a test is about in place of the rest."""

from typing import Any

from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.record.provenance import Hardware, Repository, RunRecord
from deepex.record.rows import EpochRow, RankRow, Summary
from deepex.record.study_rows import Curve, RunFacts, RunState

PHASES = dict.fromkeys(STEP_PHASES + BESIDE_PHASES, 0.1)


def rank_row(**more: Any) -> RankRow:
    """A rank's epoch."""
    given = {"epoch": 1, "seconds": 2.0, "losses": {"loss": 0.5}, "steps": 4, "step_wall_seconds": 2.0, **more}
    return RankRow(**{"phase_seconds": PHASES, **given})


def epoch_row(**more: Any) -> EpochRow:
    """An epoch of all ranks."""
    counts: dict[str, Any] = {"epoch": 1, "steps": 4, "batch": 8, "samples": 32, "learning_rate": 0.001}
    times = {"seconds": 2.0, "samples_per_second": 1000.0, "step_wall_seconds": 2.0, "sync_hidden_seconds": 0.0}
    learned = {"losses": {"loss": 0.5}, "metric": "rmse", "value": 0.2, "phase_seconds": PHASES}
    return EpochRow(**{**counts, **times, **learned, **more})


def summary(**more: Any) -> Summary:
    """The outcome of a run."""
    what: dict[str, Any] = {
        "task": "line",
        "sync": "allreduce",
        "precision": "fp32",
        "fabric": "shared",
        "metric": "rmse",
    }
    counts = {"ranks": 2, "threads": 1, "epochs": 1, "value": 0.2, "target": 0.1, "target_reached": False}
    times = {"seconds": 2.0, "samples_per_second": 1000.0, "sync_hidden_seconds": 0.0, "step_wall_seconds": 2.0}
    rates = {"gflops_per_second": 1.0, "share_of_peak": 0.5, "peak_memory_gib": 0.1, "weights_sha256": "0" * 64}
    return Summary(**{**what, **counts, **times, **rates, "phase_seconds": PHASES, **more})


def run_record(**more: Any) -> RunRecord:
    """The record of a run of nothing, nowhere."""
    hardware = Hardware(
        host="n1", system="Linux", processor="A Processor", instructions="AVX2", cores=2, memory_gib=8.0, accelerators=0
    )
    given: dict[str, Any] = {"started": "2026-01-31T12:00:00+00:00", "command": "deepex run line", "seed": 0}
    known = {"code": Repository(), "project": Repository(), "versions": {}, "hardware": hardware, "scheduler": {}}
    return RunRecord(**{**given, **known, "data_sha256": "", **more})


def run_state(**more: Any) -> RunState:
    """How far a run of a study is."""
    return RunState(**{"name": "a_seed0", "cell": "a", "ranks": 1, "seed": 0, "state": "left", **more})


def run_facts(**more: Any) -> RunFacts:
    """A finished run of a study."""
    counts: dict[str, Any] = {"seed": 0, "ranks": 1, "epochs": 30, "samples": 1000, "cores": 1.0}
    rates = dict.fromkeys(("epoch_seconds", "samples_per_second", "gflops_per_second", "share_of_peak", "value"), 1.0)
    learned = {"epochs_to": (None, None), "seconds_to": (None, None), "curve": Curve()}
    known = {"name": "run", "phase_seconds": PHASES, "shares_cores": False}
    return RunFacts(**{**counts, **rates, **learned, **known, **more})
