"""The packaged data set is what it says it is, and the task learns its science."""

import numpy as np
import pytest

from deepex.data.source import read_all
from deepex.errors import ConfigError
from deepex.tasks.protein import Protein, linear_probe, packaged_file, recipe


def test_the_packaged_data_set_is_small_whole_and_split_by_trajectory() -> None:
    task = Protein()
    source, splits = task.source, task.data()
    assert packaged_file().stat().st_size <= 4_000_000
    assert len(source) >= 15_000
    trajectories = source.attributes["trajectories"]
    assert len(trajectories) >= 12
    assert len({t["start"] for t in trajectories}) >= 4
    assert {t["temperature_kelvin"] for t in trajectories if t["start"] == "folded"} >= {300.0, 450.0}
    seen = [set(read_all(split)["trajectory"].tolist()) for split in (splits.train, splits.validation)]
    assert not seen[0] & seen[1]
    assert len(seen[0] | seen[1]) == len(trajectories)
    assert all(len(splits_part) > 0 for splits_part in (splits.train, splits.validation))


def test_every_frame_is_a_possible_contact_map_with_its_order_parameters() -> None:
    frames = read_all(Protein().source)
    maps = frames["contact_map"]
    assert maps.shape[1:] == (28, 28)
    assert (maps == maps.transpose(1, 2)).all()
    neighbours = maps.diagonal(offset=1, dim1=1, dim2=2)
    assert neighbours.all()  # C-alpha atoms of neighbours are 3.8 angstrom apart
    native, deviation = frames["native_fraction"].numpy(), frames["rmsd"].numpy()
    assert 0 <= native.min() < 0.1
    assert 0.9 < native.max() <= 1
    assert np.corrcoef(native, deviation)[0, 1] < -0.8  # what is far from the folded structure has lost its contacts
    assert frames["radius_of_gyration"].min() > 8


def test_the_target_asks_for_more_than_a_straight_line_can_do() -> None:
    """The way in which the target was chosen: three numbers a map must beat five principal components."""
    splits = Protein().data()
    train, validation = (read_all(s)["contact_map"].flatten(1).numpy() for s in (splits.train, splits.validation))
    mean = train.mean(axis=0)
    _, vectors = np.linalg.eigh(np.cov((train - mean).T))
    errors = {}
    for count in (0, 3, 5):
        components = vectors[:, vectors.shape[1] - count :]
        rebuilt = mean + (validation - mean) @ components @ components.T
        errors[count] = float(np.sqrt(np.square(validation - rebuilt).mean()))
    assert errors[0] > errors[3] > errors[5]
    assert recipe().target.reached(0.99 * errors[5])


def test_a_probe_finds_a_line_and_nothing_else() -> None:
    generator = np.random.default_rng(0)
    points = generator.normal(size=(400, 3)).astype(np.float32)
    line, noise = points @ np.asarray([1, 2, 3], dtype=np.float32), generator.normal(size=400).astype(np.float32)
    assert linear_probe(points[:200], line[:200], points[200:], line[200:]) > 0.999
    assert linear_probe(points[:200], noise[:200], points[200:], noise[200:]) < 0.1


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"task\.latent = 0"):
        Protein(latent=0)
