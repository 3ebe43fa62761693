"""The diffraction data set: every sample a pure function of its number, all classes everywhere, pictures on demand."""

import numpy as np
import pytest
import torch

from deepex.data.source import allocate, read_all, read_field
from deepex.errors import ConfigError
from deepex.science.diffraction.crystals import CRYSTALS, build_crystal
from deepex.tasks.data.atomai import AtomaiData, AtomaiSource, draw_probe
from deepex.testing.source import check_source

pytestmark = pytest.mark.usefixtures("one_thread")


def small(**changes: object) -> AtomaiData:
    """Thin crystals in a small box on a coarse grid: seconds, not minutes."""
    settings: dict[str, object] = {
        "probes_per_crystal": 4,
        "thickness_angstrom": (20.0, 40.0),
        "box_angstrom": 6.0,
        "sampling_angstrom": 0.18,
        "pixel_mrad": 0.5,
    }
    return AtomaiData(**{**settings, **changes})  # type: ignore[arg-type]  # settings of several types by name


def make_source() -> AtomaiSource:
    return small(probes_per_crystal=1, thicknesses=2, box_angstrom=4.0).source()


def test_the_source_keeps_the_contract() -> None:
    check_source(make_source)


def test_the_papers_size_and_its_split() -> None:
    data = AtomaiData()
    assert len(data.source()) == 729_000
    assert data.group == 27_000  # a rank simulates a crystal whole
    few = small(probes_per_crystal=100, thicknesses=3).source()
    validation, label, probe = (read_field(few, name) for name in ("validation", "label", "probe"))
    assert len(few) == 27 * 100 * 3
    assert validation.mean() == pytest.approx(0.1)
    assert (np.bincount(label[validation == 1]) == 30).all()
    assert not set(probe[validation == 1].tolist()) & set(probe[validation == 0].tolist())
    assert (np.bincount(probe) == 3).all()


def test_names_say_what_a_sample_is() -> None:
    source = small(probes_per_crystal=80, thicknesses=2).source()
    assert source.name(0) == "Al/probe00000/t00"
    assert source.name(3) == "Al/probe00001/t01"
    assert source.name(160 + 80) == "Cu/probe00040/t00"


def test_settings_of_a_probe_depend_on_seed_crystal_and_number_alone_and_fill_their_ranges() -> None:
    data = AtomaiData(thicknesses=4)
    draws = [draw_probe(data, "Ni", probe) for probe in range(400)]
    again = draw_probe(AtomaiData(thicknesses=4, probes_per_crystal=40), "Ni", 7)
    assert (again.semi_angle_mrad, again.dose) == (draws[7].semi_angle_mrad, draws[7].dose)
    others = (draw_probe(data, "Fe", 7), draw_probe(AtomaiData(thicknesses=4, seed=1), "Ni", 7), draws[8])
    assert all(other.dose != again.dose for other in others)
    for name in ("semi_angle_mrad", "defocus_angstrom", "dose"):
        values, (low, high) = np.asarray([getattr(draw, name) for draw in draws]), getattr(data, name)
        assert low <= values.min() < low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) < values.max() <= high
    tilt = np.stack([draw.tilt_mrad for draw in draws])
    assert np.hypot(*tilt.T).max() <= 7.5
    assert tilt.std() == pytest.approx(2.75, abs=0.3)  # 3 without the cut
    thickness = np.stack([draw.thickness_angstrom for draw in draws])
    assert (np.diff(thickness) > 0).all()
    assert (np.floor((thickness - 50) / 112.5) == np.arange(4)).all()  # one in each quarter


def test_samples_are_pictures_with_what_they_show() -> None:
    source = small(probes_per_crystal=2).source()
    batch = read_all(source)
    assert batch["image"].shape == (54, 1, 120, 85)
    assert (batch["image"].amax(dim=(1, 2, 3)) == 255).all()
    assert source.spec.fields["label"].classes == CRYSTALS
    middle = batch["image"][:, 0, 50:70, 32:52].float().mean()
    assert middle > 3 * batch["image"][:, 0, :10].float().mean()  # the beam is in the middle
    for label, thickness in zip(batch["label"].tolist(), batch["thickness_angstrom"].tolist(), strict=True):
        cells = thickness / build_crystal(CRYSTALS[label]).edges_angstrom[2]
        assert cells == pytest.approx(round(cells), abs=1e-3)
        assert 20 <= thickness <= 40


def test_a_sample_stays_the_same_when_more_are_made_or_fewer_crystals() -> None:
    few, many = small(probes_per_crystal=2).source(), small(probes_per_crystal=6).source()
    others = small(probes_per_crystal=2, crystals=("Fe", "Cu")).source()
    pictures = []
    for source in (few, many, others):
        index = next(i for i in range(len(source)) if source.name(i) == "Cu/probe00001/t00")
        out = allocate(source.spec, 1)
        source.read([index], out)
        pictures.append(out["image"])
    assert torch.equal(pictures[0], pictures[1])
    assert torch.equal(pictures[0], pictures[2])
    assert others.spec.fields["label"].classes == ("Fe", "Cu")
    assert len(others) == 4


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"crystals": ("Al", "Unobtainium")}, "unknown crystal 'Unobtainium'"),
        ({"crystals": ("Al",)}, "two or more, each named once"),
        ({"crystals": ("Al", "Cu", "Al")}, "two or more, each named once"),
        ({"probes_per_crystal": 0}, "probes_per_crystal = 0"),
        ({"thicknesses": 0}, "thicknesses = 0"),
        ({"seed": -1}, "seed = -1"),
        ({"dose": (-1.0, 10.0)}, "two numbers above 0"),
        ({"semi_angle_mrad": (12.0, 4.0)}, "the smaller one first"),
        ({"semi_angle_mrad": (4.0, 80.0)}, "holds angles up to"),
        ({"thickness_angstrom": (0.0, 500.0)}, "thickness_angstrom = "),
        ({"thickness_angstrom": (1.0, 2.0)}, "whole cells"),
        ({"tilt_sigma_mrad": -1.0}, "max_tilt_mrad"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_simulated(changes: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        small(**changes)


def test_the_file_says_where_it_comes_from() -> None:
    attributes = small().attributes()
    assert attributes["settings"]["box_angstrom"] == 6.0
    assert attributes["microscope"]["kilovolt"] == 200.0
    assert set(attributes["versions"]) == {"abtem", "ase", "deepex", "numpy", "torch"}
    assert AtomaiData().core_seconds < 3600
