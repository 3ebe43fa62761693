"""A study on hosts that live on this machine."""

import json
import os
from pathlib import Path

import pytest

from deepex.errors import ConfigError
from deepex.study.cluster_executor import ClusterSpec
from tests.conftest import Command

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making hosts needs root")


def test_ranks_stand_on_hosts_of_their_own(deepex: Command, tmp_path: Path, chains: Path) -> None:
    words = ("--ranks", "2", "--repeats", "1", "--cluster", "hosts=2,mbit=1000,rtt_ms=0", "--out", "study")
    done = deepex("study", "protein", f"task.file={chains}", "data.batch=16", "stop.epochs=1", *words)
    assert done.returncode == 0, done.stderr
    places = json.loads((tmp_path / "study/runs/2r_allreduce_seed0/record.json").read_text())["places"]
    assert [place["host"] for place in places] == ["n1", "n2"]
    assert {place["cores"] for place in places} == {len(os.sched_getaffinity(0)) / 2}
    assert "S_p" in done.stdout
    assert done.stdout.splitlines()[-1] == "page: study/report.html"


def test_ranks_that_hosts_can_not_share_are_refused(deepex: Command, tmp_path: Path) -> None:
    done = deepex("study", "protein", "--ranks", "1,3", "--cluster", "hosts=2")
    assert done.returncode == 2
    assert "3 ranks can't be shared out evenly among 2 hosts. Allowed: up to 2, one a host, or multiples" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_lines_are_checked() -> None:
    with pytest.raises(ConfigError, match="unknown key 'mbits'"):
        ClusterSpec.parse("hosts=2,mbits=3")
