"""What version 0.1 left behind: a run and a study that it really made, read by the commands of today."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import Command

FILES = Path(__file__).parents[1] / "files" / "version_0_1"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Copies in the folder that commands are called in."""
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_a_run_has_its_page_without_pictures_and_keeps_its_record(deepex: Command, old: Path) -> None:
    before = {path: path.read_bytes() for path in (old / "run").rglob("*.json*")}
    done = deepex("report", "run")
    assert done.returncode == 0, done.stderr
    page = (old / "run/report.html").read_text()
    assert "There are no pictures: the run left none. It was made by deepex 0.1.0." in page
    assert "reconstruction" in page  # a part of the loss
    assert {path: path.read_bytes() for path in before} == before


def test_a_run_can_be_watched_and_its_recipe_run_again(deepex: Command, old: Path, chains: Path) -> None:
    seen = deepex("watch", "run", "--once")
    assert seen.returncode == 0, seen.stderr
    assert "● complete" in seen.stdout
    small = (f"task.file={chains}", "data.batch=16", "world.ranks=1", "stop.epochs=1")
    again = deepex("run", "run/recipe.toml", *small, "--quiet", "--no-page", "--out", "again")
    assert again.returncode == 0, again.stderr


def test_a_study_has_its_page_and_nothing_is_run_again(deepex: Command, old: Path) -> None:
    before = {path: path.read_bytes() for path in (old / "study").rglob("*") if path.is_file()}
    done = deepex("report", "study")
    assert done.returncode == 0, done.stderr
    assert (old / "study/report.html").stat().st_size > 1e6
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("what", ["run", "study"])
def test_a_page_can_stand_elsewhere_and_then_nothing_changes(deepex: Command, old: Path, what: str) -> None:
    before = {path: path.read_bytes() for path in (old / what).rglob("*") if path.is_file()}
    done = deepex("report", what, "--out", "mine.html")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "page: mine.html\n"
    assert (old / "mine.html").stat().st_size > 1e6
    assert list((old / "mine.figures").glob("*.csv"))
    assert {path: path.read_bytes() for path in (old / what).rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("content", ["", '{"task": "pro', "[1, 2]", b"\xff\xfe\x00"])
@pytest.mark.parametrize("file", ["run/summary.json", "run/record.json", "study/cells.json"])
def test_a_damaged_file_is_named_with_a_cure(deepex: Command, old: Path, file: str, content: str | bytes) -> None:
    (old / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    done = deepex("report", file.partition("/")[0])
    assert done.returncode == 2
    assert f"{file} is damaged: " in done.stderr
    assert "Bring it back from a copy, or run it again: deepex run" in done.stderr or "Delete it: " in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_files_are_named_with_a_cure(deepex: Command, old: Path) -> None:
    shutil.rmtree(old / "run/phases")
    done = deepex("report", "run")
    assert done.returncode == 2
    assert "run/phases has no rank's times. " in done.stderr
    (old / "run/record.json").unlink()
    done = deepex("report", "run")
    assert done.returncode == 2
    assert "run/record.json is missing. " in done.stderr
    (old / "study/study.toml").write_text("# nothing\n")
    done = deepex("report", "study")
    assert done.returncode == 2
    assert "study/study.toml is damaged: " in done.stderr


def test_a_run_of_a_later_version_is_refused_with_its_version(deepex: Command, old: Path) -> None:
    record = old / "run/record.json"
    record.write_text(record.read_text().replace('"deepex": "0.1.0"', '"deepex": "12.0.0"'))
    done = deepex("report", "run")
    assert done.returncode == 2
    assert re.search(r"run was made by deepex 12.0.0, and this is \S+. Read it with that version", done.stderr)


def test_a_file_that_is_not_understood_is_named_with_its_version(deepex: Command, old: Path) -> None:
    summary = json.loads((old / "run/summary.json").read_text())
    (old / "run/summary.json").write_text(json.dumps({**summary, "seconds": "long"}))
    done = deepex("report", "run")
    assert done.returncode == 2
    assert "run/summary.json is not what this version of deepex writes: 'seconds' is 'long'" in done.stderr
    assert "made by deepex 0.1.0" in done.stderr


def test_a_task_of_one_s_own_has_its_page_and_is_not_loaded(deepex: Command, old: Path) -> None:
    (old / "run/task.pkl").write_bytes(b"cos\nsystem\n(S'touch loaded'\ntR.")
    recipe = old / "run/recipe.toml"
    recipe.write_text(recipe.read_text().replace('name = "protein"', 'name = "mine"'))
    done = deepex("report", "run")
    assert done.returncode == 0, done.stderr
    again = deepex("run", "run/recipe.toml", "--out", "again")
    assert again.returncode == 2
    assert "run/task.pkl is a task of your own as deepex 0.1 kept it" in again.stderr
    assert not (old / "loaded").exists()
