"""AtomAI on a few patterns made on the spot: a run, its two errors, its pictures, and what is refused."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from deepex.data import ArraySource, DataConfig, Subset
from deepex.data.packing.pack import pack
from deepex.data.packing.packed import PackedSource
from deepex.data.source import read_field
from deepex.errors import DataError
from deepex.launch.start import start
from deepex.report import write_report
from deepex.science.diffraction.crystals import CRYSTALS
from deepex.tasks.atomai import Atomai, recipe
from deepex.tasks.data.atomai import AtomaiData
from deepex.tasks.data.make import make_data
from deepex.train.recipe import StopConfig

THIN = AtomaiData(
    probes_per_crystal=10, thickness_angstrom=(20.0, 40.0), box_angstrom=6.0, sampling_angstrom=0.18, pixel_mrad=0.5
)


@pytest.fixture(scope="module")
def patterns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thin crystals on a coarse grid: seconds, not minutes."""
    path = tmp_path_factory.mktemp("atomai") / "patterns.h5"
    make_data(THIN, path)
    return path


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_a_run_has_both_errors_its_cut_off_and_pictures(patterns: Path, tmp_path: Path) -> None:
    whole = PackedSource(patterns)
    few = np.flatnonzero(np.isin(whole.column("probe") % 10, (0, 9)))  # of each crystal, one to learn and one held back
    pack(Subset(whole, few), tmp_path / "few.h5")
    chosen = replace(
        recipe(),
        task=Atomai(file=str(tmp_path / "few.h5")),
        data=DataConfig(batch=9),
        stop=StopConfig(epochs=1, target=0.0),
    )
    folder = start(chosen, tmp_path / "run", "quiet")
    page = write_report(folder).read_text()
    summary = folder.read_json("summary.json")
    assert summary["metric"] == "error"
    assert 0 < summary["beside"]["top5_error"] <= summary["value"] <= 1
    assert summary["cutoffs"] == [{"value": 0.2, "epochs": None, "seconds": None}]
    assert page.count('<img src="data:image/png') == 10
    assert "SrTiO3" in page
    assert 'id="matrix-' in page


def test_every_crystal_is_on_both_sides_and_no_probe(patterns: Path) -> None:
    task = Atomai(file=str(patterns))
    splits = task.data()
    train, validation = (read_field(part, "label") for part in (splits.train, splits.validation))
    assert set(train) == set(validation) == set(range(len(CRYSTALS)))
    assert (len(train), len(validation)) == (243, 27)
    assert not set(read_field(splits.train, "probe")) & set(read_field(splits.validation, "probe"))
    convert = splits.preparation.convert["image"]
    assert convert.shift[0] == pytest.approx(float(task.source.column("image").mean()), rel=1e-4)


def test_a_set_of_too_few_probes_to_hold_one_back_is_refused(patterns: Path, tmp_path: Path) -> None:
    whole = PackedSource(patterns)
    pack(Subset(whole, np.flatnonzero(whole.column("probe") % 10 < 4)), tmp_path / "few.h5")
    with pytest.raises(DataError, match=r"'atomai' has 108 samples to train on and 0 to validate with\. Needed"):
        start(replace(recipe(), task=Atomai(file=str(tmp_path / "few.h5"))), tmp_path / "run", "quiet")
    assert not (tmp_path / "run").exists()


def test_a_file_without_patterns_is_refused(tmp_path: Path) -> None:
    pack(ArraySource({"image": np.zeros((4, 1, 8, 8), np.uint8)}), tmp_path / "x.h5")
    with pytest.raises(DataError, match="has no label and no validation"):
        Atomai(file=str(tmp_path / "x.h5")).data()
