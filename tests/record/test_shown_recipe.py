"""What pages and views show of a recipe, read without a task being built."""

from dataclasses import replace
from pathlib import Path

import pytest

from deepex.config import to_toml
from deepex.errors import ConfigError, RunFolderError
from deepex.record.folder import RunFolder
from deepex.record.shown_recipe import ShownRecipe, read_shown_recipe
from deepex.tasks.protein import recipe


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "recipe.toml").write_text(to_toml(recipe()))
    return RunFolder(tmp_path)


def test_it_says_what_the_recipe_says(folder: RunFolder) -> None:
    shown, whole = read_shown_recipe(folder), recipe()
    assert (shown.task, shown.code, shown.sync, shown.precision) == ("protein", "", whole.sync, whole.precision)
    assert (shown.num_epochs, shown.num_ranks, shown.batch) == (whole.stop.epochs, whole.world.ranks, whole.data.batch)
    assert (shown.optimiser, shown.learning_rate) == (whole.optimiser.name, whole.optimiser.learning_rate)


def test_code_of_a_user_s_own_is_not_needed_and_its_folder_is_not_shown(folder: RunFolder) -> None:
    text = to_toml(recipe()).replace('sync = "allreduce"', 'sync = "/gone/my code/mine.py:Gossip:4+bf16"')
    text = text.replace('name = "protein"', 'name = "kepler"').replace('code = ""', 'code = "/gone/kepler.py:Kepler"')
    shown = ShownRecipe.parse(text, folder)
    assert (shown.task, shown.code) == ("kepler", "/gone/kepler.py:Kepler")
    assert shown.sync == "mine.py:Gossip:4+bf16"


def test_recipes_of_older_versions_are_shown_without_what_they_have_not(folder: RunFolder) -> None:
    lines = [line for line in to_toml(replace(recipe(), layout="contiguous")).splitlines() if "code" not in line]
    shown = ShownRecipe.parse("\n".join(line for line in lines if not line.startswith("layout")), folder)
    assert (shown.code, shown.layout) == ("", "auto")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("sync =", "synk =", "its recipe.toml has no sync"),
        ("epochs = ", "epoks = ", "its recipe.toml has no epochs"),
        ("ranks = 1", 'ranks = "many"', "its recipe.toml does not hold together: "),
    ],
)
def test_a_file_that_is_no_run_s_recipe_is_told(folder: RunFolder, old: str, new: str, said: str) -> None:
    folder.recipe.write_text(folder.recipe.read_text().replace(old, new))
    with pytest.raises(RunFolderError) as raised:
        read_shown_recipe(folder)
    assert said in str(raised.value)


def test_a_file_that_can_not_be_read_is_named(folder: RunFolder) -> None:
    folder.recipe.write_bytes(b"\xff\xfe")
    with pytest.raises(RunFolderError, match=r"recipe\.toml can't be read: .*Bring it back from a copy"):
        read_shown_recipe(folder)
    folder.recipe.write_text("sync = [")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        read_shown_recipe(folder)
