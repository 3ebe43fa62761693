"""Counters of energy are added up as Linux lays them out, and where they can't be read nothing is told."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepex.fabric import SoloFabric
from deepex.record.counters import Counters
from deepex.record.energy import Energy
from deepex.world import World

RANGE = 65_532_610_987
ZONES = {
    "intel-rapl:0": "package-0",
    "intel-rapl:0:0": "core",
    "intel-rapl:0:1": "dram",
    "intel-rapl:1": "package-1",
    "intel-rapl:1:0": "uncore",
    "intel-rapl:2": "psys",
    "intel-rapl-mmio:0": "package-0",
}


@pytest.fixture
def root() -> Iterator[Path]:
    """Two packages, one with memory that has a counter, and what else stands beside them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        (path / "intel-rapl").mkdir()
        for zone, name in ZONES.items():
            (path / zone).mkdir()
            (path / zone / "name").write_text(f"{name}\n")
            (path / zone / "max_energy_range_uj").write_text(f"{RANGE}\n")
            count(path, zone, 1_000_000)
        yield path


def count(root: Path, zone: str, microjoules: int) -> None:
    (root / zone / "energy_uj").write_text(f"{microjoules}\n")


def test_packages_and_memory_are_added_up(root: Path) -> None:
    energy = Energy(root)
    assert energy.take() == 0.0
    for zone in ZONES:
        count(root, zone, 3_000_000)
    assert energy.take() == 6.0
    assert energy.take() == 0.0
    energy.close()


def test_a_full_counter_begins_again(root: Path) -> None:
    count(root, "intel-rapl:0", RANGE - 250_000)
    energy = Energy(root)
    count(root, "intel-rapl:0", 1_500_000)
    assert energy.take() == 1.75
    energy.close()


def test_a_counter_that_vanishes_tells_nothing_from_there_on(root: Path) -> None:
    energy = Energy(root)
    (root / "intel-rapl:1" / "energy_uj").rename(root / "elsewhere")
    assert energy.take() is None
    (root / "elsewhere").rename(root / "intel-rapl:1" / "energy_uj")
    assert energy.take() is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_counters_that_only_root_may_read_tell_nothing(root: Path) -> None:
    (root / "intel-rapl:0:1" / "energy_uj").chmod(0o400)
    os.seteuid(65534)
    try:
        assert Energy(root).take() is None
    finally:
        os.seteuid(os.getuid())


def test_a_node_without_packages_tells_nothing(root: Path) -> None:
    for zone in ("intel-rapl:0", "intel-rapl:1"):
        (root / zone / "name").write_text("psys\n")
    assert Energy(root).take() is None


def test_only_the_first_rank_of_a_node_reads() -> None:
    second = World(rank=1, size=2, local_rank=1, local_size=2)
    taken = [Counters(SoloFabric(world), whole_epoch=False).take() for world in (World(), second)]
    assert [each.machine is not None for each in taken] == [True, False]
    assert taken[0].energy_joules is None  # a part of an epoch is not told as the whole
