"""What a study varies becomes cells that hold together, or an error before anything is written."""

from pathlib import Path

import pytest

from deepex.api import build_plan
from deepex.config import to_toml
from deepex.errors import ConfigError, UsageError
from deepex.launch.recipes import read_recipe
from deepex.study.folder import StudyFolder
from deepex.study.plan import Varied, digest, judge, make_cells, read_plan
from deepex.tasks import default_recipe
from deepex.train.recipe import Recipe


@pytest.fixture
def protein() -> Recipe:
    return default_recipe("protein")


def names(recipe: Recipe, varied: Varied) -> list[str]:
    return [cell.name for cell in make_cells(recipe, varied)]


def test_one_rank_is_one_cell_whatever_the_strategies(protein: Recipe) -> None:
    varied = Varied(ranks=(2, 1), sync=("allreduce", "local:epoch"), scaling=("weak", "strong"))
    assert names(protein, varied) == [
        "1r_alone",
        "2r_allreduce-weak",
        "2r_local-epoch-weak",
        "2r_allreduce-strong",
        "2r_local-epoch-strong",
    ]


def test_strong_scaling_shares_the_batch(protein: Recipe) -> None:
    cells = make_cells(protein, Varied(ranks=(1, 2, 4), scaling=("strong",)))
    assert [(cell.recipe.data.batch, cell.batch) for cell in cells] == [(128, 128), (64, 128), (32, 128)]
    assert cells[1].words()[-1] == "data.batch=64"


def test_ranks_that_do_not_divide_the_batch_are_refused(protein: Recipe) -> None:
    with pytest.raises(ConfigError, match=r"batch of 128 .* 3 ranks don't divide it. Allowed: 1, 2, 4, 8"):
        make_cells(protein, Varied(ranks=(1, 3), scaling=("strong",)))


def test_ranks_that_a_strategy_can_not_share_out_are_refused(protein: Recipe) -> None:
    with pytest.raises(ConfigError, match="3 ranks can't be shared out evenly among 2 groups"):
        make_cells(protein, Varied(ranks=(3,), sync=("hybrid:2",)))


def test_settings_vary_in_every_combination(protein: Recipe) -> None:
    cells = make_cells(protein, Varied(ranks=(1, 2), settings=("data.batch=32,64", "optimiser.name=sgd,adam")))
    assert len(cells) == 8
    assert {cell.recipe.data.batch for cell in cells} == {32, 64}
    assert {cell.settings for cell in cells if cell.ranks == 2} == {cell.settings for cell in cells if cell.ranks == 1}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("data.bach=1,2", "Did you mean 'data.batch'"),
        ("data.batch=few,many", "Allowed: a whole number"),
        ("data.batch", "key=a,b,c"),
        ("world.ranks=1,2", "Use --ranks"),
        ("data.batch=32,", "key=a,b,c"),
    ],
)
def test_a_wrong_axis_says_what_is_right(protein: Recipe, line: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make_cells(protein, Varied(settings=(line,)))


def test_cutoffs_are_the_task_s_then_the_target(protein: Recipe) -> None:
    assert judge(default_recipe("atomai")).cutoffs == (0.2, 0.1)
    assert judge(protein, (0.17, 0.19)).cutoffs == (0.19, 0.17)
    with pytest.raises(ConfigError, match=r"runs end at rmse < 0.1645. .* Give stop.target=0.15 too"):
        judge(protein, (0.17, 0.15))
    with pytest.raises(ConfigError, match="two different values"):
        judge(protein, (0.17,))


def test_the_plan_reads_back_and_a_different_one_is_another_study(protein: Recipe, tmp_path: Path) -> None:
    plan = build_plan(protein, ranks=(1, 2), vary=("data.batch=32,64",), repeats=2, cores_per_rank=1)
    folder = StudyFolder.prepare(tmp_path / "one", protein, plan)
    assert folder.read() == (protein, plan)
    assert read_recipe(folder.files.recipe) == protein
    other = build_plan(protein, ranks=(1, 2), vary=("data.batch=32,64",), repeats=3, cores_per_rank=1)
    assert digest(protein, plan) != digest(protein, other)
    with pytest.raises(UsageError, match=r"holds another study: varied.seeds is \[0, 1\] there and \[0, 1, 2\] here"):
        StudyFolder.prepare(folder.path, protein, other)
    assert read_plan({}).varied == Varied()
    assert "cutoffs" in to_toml(plan)
