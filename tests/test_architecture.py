"""What docs/architecture.md tells of the tree is so."""

import re
from pathlib import Path

import deepex

PACKAGE = Path(deepex.__file__).parent
PAGE = (PACKAGE.parents[1] / "docs" / "architecture.md").read_text()
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
    for table, path in re.findall(r"\| `([A-Z]+)` in `([^`]+)` \|", PAGE):
        assert re.search(rf"^{table}\b", (PACKAGE / path).read_text(), flags=re.MULTILINE), f"{path} has no {table}"


def test_folders_and_files_stay_small() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    crowded = [
        str(folder)
        for folder in folders
        if len([p for p in folder.glob("*.py") if p.name != "__init__.py"]) > MOST_FILES_OF_A_FOLDER
    ]
    long = [str(path) for path in PACKAGE.rglob("*.py") if len(path.read_text().splitlines()) > MOST_LINES]
    assert (crowded, long) == ([], [])
