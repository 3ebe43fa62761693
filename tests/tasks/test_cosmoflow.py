"""CosmoFlow on universes made on the spot: from boxes to batches, a run, its baseline and its page."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from deepex.api import build_recipe
from deepex.data import DataConfig, Preparer
from deepex.data.packing.pack import pack
from deepex.data.source import ArraySource, read_all
from deepex.errors import DataError
from deepex.launch.start import start
from deepex.optim import ScheduleConfig
from deepex.report import write_report
from deepex.science.cosmology.universe import PARAMETERS, RANGES
from deepex.tasks.cosmoflow import Cosmoflow, recipe
from deepex.tasks.data.cosmoflow import CosmoflowData
from deepex.tasks.data.make import make_data
from deepex.train.recipe import StopConfig


@pytest.fixture(scope="module")
def universes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """18 boxes of one cube each; two are held back."""
    path = tmp_path_factory.mktemp("cosmoflow") / "universes.h5"
    make_data(CosmoflowData(boxes=18, cube=32, box=32), path)
    return path


def test_a_run_is_judged_in_physical_units_beside_its_baseline(universes: Path, tmp_path: Path) -> None:
    chosen = replace(
        recipe(),
        task=Cosmoflow(file=str(universes), standardise=True),
        data=DataConfig(batch=4),
        schedule=ScheduleConfig(),
        stop=StopConfig(epochs=2, target=0.0),
    )
    folder = start(chosen, tmp_path / "run", "quiet")
    page = write_report(folder).read_text()
    summary = folder.read_json("summary.json")
    assert np.mean([summary["beside"][f"mae_{name}"] for name in PARAMETERS]) == pytest.approx(summary["value"])
    for name, (low, high) in RANGES.items():
        error = summary["findings"][f"mae_{name}"]
        assert error == pytest.approx(summary["beside"][f"mae_{name}"] * (high - low) / 2, rel=1e-4)
        assert 0 < summary["findings"][f"baseline_mae_{name}"] < high - low
    assert page.count('id="scatter-') == 4
    assert "z=1.5" in page
    assert "that of a ridge regression" in page


def test_cubes_become_logarithms_and_are_turned_only_in_training(universes: Path) -> None:
    splits = Cosmoflow(file=str(universes)).data()
    counts = read_all(splits.train)["counts"]
    prepared = Preparer(splits.train, splits.preparation)
    assert torch.allclose(read_all(prepared)["counts"], counts.float().log1p())
    out = {name: torch.empty_like(tensor) for name, tensor in read_all(prepared, limit=4).items()}
    prepared.read(range(4), out, draw_for=(0, 1))
    assert not torch.equal(out["counts"], counts[:4].float().log1p())
    assert torch.allclose(out["counts"].sum(dim=(2, 3, 4)), counts[:4].float().log1p().sum(dim=(2, 3, 4)), rtol=1e-4)
    assert not Cosmoflow(file=str(universes), symmetries=False).data().preparation.augment


def test_standardised_logarithms_have_mean_0_and_deviation_1_at_each_redshift(universes: Path) -> None:
    splits = Cosmoflow(file=str(universes), standardise=True).data()
    counts = read_all(Preparer(splits.train, splits.preparation))["counts"]
    deviation, mean = torch.std_mean(counts, dim=(0, 2, 3, 4))
    assert mean.tolist() == pytest.approx([0] * 4, abs=1e-3)
    assert deviation.tolist() == pytest.approx([1] * 4, abs=1e-3)


def test_stored_cubes_are_told_as_those_that_a_run_prepares(universes: Path) -> None:
    task = Cosmoflow(file=str(universes), standardise=True)
    splits, model = task.data(), task.model().eval()
    prepared = read_all(Preparer(splits.validation, splits.preparation))["counts"]
    with torch.no_grad():
        expected = model(prepared).numpy()
    assert np.allclose(task.predict(model, read_all(splits.validation)["counts"].numpy()), expected, atol=1e-6)


def test_boxes_are_never_on_both_sides(universes: Path) -> None:
    splits = Cosmoflow(file=str(universes)).data()
    train, validation = (set(read_all(part)["box"].tolist()) for part in (splits.train, splits.validation))
    assert (len(train), len(validation), train & validation) == (16, 2, set())


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    pack(ArraySource({"x": torch.zeros(4, 2)}), tmp_path / "x.h5")
    with pytest.raises(DataError, match="deepex data make cosmoflow"):
        Cosmoflow(file=str(tmp_path / "x.h5")).data()


def test_a_run_goes_on_past_its_target_unless_told_where_to_stop() -> None:
    assert not build_recipe("cosmoflow").stop.at_target
    assert build_recipe("cosmoflow", until=0.35).stop.at_target


def test_the_benchmark_s_rules_hold_at_its_own_size() -> None:
    paper = recipe("paper")
    rates = [paper.learning_rate(epoch) / paper.optimiser.learning_rate for epoch in (4, 31, 32, 64)]
    assert rates == [1, 1, 0.25, 0.125]
    assert (paper.target.threshold, paper.optimiser.momentum, paper.stop.epochs) == (0.124, 0.9, 128)
