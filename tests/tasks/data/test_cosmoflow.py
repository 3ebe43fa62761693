"""The cubes of CosmoFlow as a source of samples."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from deepex.data.source import allocate, read_all, read_field
from deepex.errors import ConfigError, DataError
from deepex.science.cosmology.particle_mesh import Box, simulate
from deepex.science.cosmology.universe import draw
from deepex.tasks.data.cosmoflow import CosmoflowData
from deepex.testing.source import check_source

SMALL = CosmoflowData(boxes=9, cube=16, box=32, cell_mpc=4.0, seed=5)


def test_it_keeps_the_promises_of_a_source() -> None:
    check_source(CosmoflowData(boxes=9, cube=24, box=24, cell_mpc=4.0).source)


def test_cubes_of_a_box_are_the_box() -> None:
    source = SMALL.source()
    assert len(source) == 72
    assert SMALL.group == 8
    out = allocate(source.spec, 8)
    source.read(range(16, 24), out)
    universe = draw(seed=5, number=2)
    whole = simulate(universe, Box(cells=32, cell_mpc=4.0), seed=(5, 2))
    together = out["counts"].view(2, 2, 2, 4, 16, 16, 16).permute(3, 0, 4, 1, 5, 2, 6).reshape(4, 32, 32, 32)
    assert torch.equal(together, whole)
    assert int(out["counts"].sum(dtype=torch.int64)) == 4 * 32**3
    assert (out["box"] == 2).all()
    assert torch.allclose(out["parameters"], torch.from_numpy(universe.values).float().expand(8, 4))
    assert torch.allclose(out["target"], torch.from_numpy(universe.scaled).float().expand(8, 4))
    assert source.name(19) == "box00002/cube3"


def test_power_is_that_of_the_cube_alone() -> None:
    source = SMALL.source()
    out = allocate(source.spec, 1)
    source.read([3], out)
    counts = out["counts"][0, 3].double()
    contrast = counts / counts.mean() - 1.0
    waves = torch.fft.fftn(contrast).abs().square()
    # The first bin holds the six waves that fit once along an axis.
    six = [waves[1, 0, 0], waves[-1, 0, 0], waves[0, 1, 0], waves[0, -1, 0], waves[0, 0, 1], waves[0, 0, -1]]
    expected = float(torch.stack(six).mean()) * 4.0**3 / 16**3
    assert float(out["power"][0, 3, 0]) == pytest.approx(expected, rel=1e-4)
    # Structure grows, on scales that a cube sees well.
    assert float(out["power"][0, 3, 4]) > float(out["power"][0, 0, 4])


def test_a_box_is_in_training_or_in_validation() -> None:
    source = CosmoflowData(boxes=30, cube=32, box=64).source()
    validation, box = read_field(source, "validation"), read_field(source, "box")
    assert sorted(set(box[validation == 1].tolist())) == [8, 17, 26]
    assert not set(box[validation == 1].tolist()) & set(box[validation == 0].tolist())


def test_labels_are_read_without_simulating() -> None:
    source = CosmoflowData(boxes=2000, cube=128, box=256, cell_mpc=2.0).source()  # hours, if it simulated
    target = read_field(source, "target")
    assert target.shape == (16_000, 4)
    assert np.abs(target).max() <= 1.0
    assert np.abs(target.mean(axis=0)).max() < 0.02


def test_what_is_said_of_it_can_be_written_as_json() -> None:
    attributes = SMALL.attributes()
    assert json.loads(json.dumps(attributes)) == attributes
    assert attributes["settings"]["cell_mpc"] == 4.0
    assert 0.5 < CosmoflowData(boxes=9, cube=32, box=64).core_seconds / 9 < 2.0
    assert 5.0 < CosmoflowData(boxes=9, cube=64, box=128, cell_mpc=2.0).core_seconds / 9 < 20.0


def test_another_seed_gives_other_universes() -> None:
    first, other = (
        read_all(CosmoflowData(boxes=9, cube=24, box=24, cell_mpc=4.0, seed=seed).source(), limit=2) for seed in (0, 1)
    )
    assert not torch.equal(first["counts"], other["counts"])
    assert not torch.equal(first["parameters"], other["parameters"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"boxes": 3}, "boxes = 3.*9"),
        ({"boxes": 9, "seed": -1}, "seed = -1"),
        ({"boxes": 9, "cube": 64, "box": 32}, "cubes of 64 cells from a box of 32"),
        ({"boxes": 9, "cube": 48, "box": 64}, "cubes of 48 cells from a box of 64"),
        ({"boxes": 9, "cube": 33, "box": 66}, "cubes of 33 cells"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CosmoflowData(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cube": 32, "box": 96, "cell_mpc": 9.0}, "Nyquist"),
        ({"cube": 32, "box": 32, "cell_mpc": 2.0}, "64 Mpc/h wide"),
        ({"cube": 22, "box": 66, "cell_mpc": 3.0}, "66 cells a side"),
        ({"cube": 8, "box": 64, "cell_mpc": 3.0}, "fewer bins"),
    ],
)
def test_boxes_that_cannot_be_right_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        CosmoflowData(boxes=9, **settings)
