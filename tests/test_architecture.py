"""What docs/architecture.md tells of the tree is so."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import deepex
from deepex import models
from deepex.data.sources import READERS
from deepex.launch.detect import LAUNCHERS
from deepex.optim.config import OPTIMISERS
from deepex.sync import STRATEGIES
from deepex.tasks import TASKS

PACKAGE = Path(deepex.__file__).parent
DOCS, TESTS = PACKAGE.parents[1] / "docs", Path(__file__).parent
PAGE = (DOCS / "architecture.md").read_text()
MOST_FILES_OF_A_WALK, MOST_FILES_OF_A_FOLDER, MOST_LINES = 40, 15, 400


def test_the_way_of_a_sample_passes_at_most_forty_files_and_each_once() -> None:
    walk = re.findall(r"^(\d+)\. `([^`]+)`", PAGE, flags=re.MULTILINE)
    assert [int(number) for number, _ in walk] == list(range(1, len(walk) + 1))
    paths = [path for _, path in walk]
    assert len(set(paths)) == len(paths) <= MOST_FILES_OF_A_WALK
    assert [path for path in paths if not (PACKAGE / path).is_file()] == []


def test_every_folder_has_its_line() -> None:
    told = set(re.findall(r"`([a-z_/]+/)`", PAGE))
    missing = []
    for folder in sorted({path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE}):
        name = f"{folder.relative_to(PACKAGE)}/"
        holds_modules = any(path.name != "__init__.py" for path in folder.glob("*.py"))
        if holds_modules and name not in told and f"{folder.name}/" not in told:
            missing.append(name)
    assert missing == []


def test_the_tables_that_parts_are_added_to_are_there() -> None:
    for table, path in re.findall(r"\| `([A-Z]+|__all__)` in `([^`]+)` \|", PAGE):
        assert re.search(rf"^{table}\b", (PACKAGE / path).read_text(), flags=re.MULTILINE), f"{path} has no {table}"


def test_every_entry_of_a_table_has_a_test_of_its_own() -> None:
    parts: list[Callable[..., object]] = [*OPTIMISERS.values(), *LAUNCHERS, *(entry.recipe for entry in TASKS.values())]
    modules = {part.__module__ for part in parts} | {getattr(models, name).__module__ for name in models.__all__}
    names = [module.split(".")[1:] for module in sorted(modules)]
    missing = [name for *folders, name in names if not TESTS.joinpath(*folders, f"test_{name}.py").is_file()]
    assert missing == []


@pytest.mark.parametrize(
    ("table", "page"),
    [(STRATEGIES, "sync.md"), (OPTIMISERS, "training.md"), (READERS, "data.md"), (TASKS, "science/README.md")],
)
def test_every_entry_of_a_table_is_told_in_its_page(table: Mapping[str, object], page: str) -> None:
    text = (DOCS / page).read_text()
    assert [name for name in table if not re.search(rf"\b{name}\b", text)] == []


def test_folders_and_files_stay_small() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    crowded = [
        str(folder)
        for folder in folders
        if len([p for p in folder.glob("*.py") if p.name != "__init__.py"]) > MOST_FILES_OF_A_FOLDER
    ]
    long = [str(path) for path in PACKAGE.rglob("*.py") if len(path.read_text().splitlines()) > MOST_LINES]
    assert (crowded, long) == ([], [])
