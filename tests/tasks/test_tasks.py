"""The table of tasks: what every line of it promises."""

import typing
from pathlib import Path

import pytest
import torch
from torch import nn

from deepex.config import merge, override, to_tree
from deepex.errors import UsageError
from deepex.tasks import TASKS, TASKS_WITH_MAKERS, data_maker, data_path, default_recipe, is_built_in
from deepex.tasks.data.make import write_pictures
from deepex.tasks.own import task


def sizes_of(name: str) -> tuple[str, ...]:
    return typing.get_args(typing.get_type_hints(type(default_recipe(name).task))["size"])


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_a_recipe_for_each_of_its_sizes_that_comes_back_from_its_own_text(name: str) -> None:
    for size in sizes_of(name):
        recipe = default_recipe(name, size)
        assert (recipe.task.name, to_tree(recipe.task)["size"]) == (name, size)
        assert merge(default_recipe(name), to_tree(recipe)) == recipe
        assert is_built_in(recipe.task)


@pytest.mark.parametrize("name", TASKS)
def test_the_first_line_of_a_recipe_s_docstring_says_what_the_task_is(name: str) -> None:
    assert (TASKS[name].recipe.__doc__ or "").splitlines()[0].endswith(".")


@pytest.mark.parametrize("name", TASKS_WITH_MAKERS)
def test_a_maker_knows_the_sizes_of_its_task_and_takes_settings(name: str) -> None:
    for size in sizes_of(name):
        maker = data_maker(name, size)
        assert override(maker, []) == maker


def test_what_has_no_data_to_make_is_answered_with_what_has() -> None:
    makers = ", ".join(sorted(TASKS_WITH_MAKERS))
    with pytest.raises(UsageError, match=rf"unknown data set 'fashion'.* Allowed: {makers}"):
        data_maker("fashion", "small")


def test_frames_of_a_trajectory_are_no_pictures(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="contact maps are no pictures"):
        write_pictures(data_maker("protein", "small"), tmp_path)


def test_data_that_is_there_is_found_by_the_task_s_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert data_path("cosmoflow") is None
    assert data_path("nothing") is None
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cosmoflow_small.h5").touch()
    assert data_path("cosmoflow") == Path("data/cosmoflow_small.h5")


def test_a_task_of_the_user_s_own_is_not_of_the_table_whatever_it_is_called() -> None:
    own = task(
        name="protein",
        model=lambda: nn.Linear(1, 1),
        data={"x": torch.zeros(4, 1)},
        loss=lambda model, batch: model(batch["x"]).mean(),
        target=0.0,
    )
    assert not is_built_in(own)
