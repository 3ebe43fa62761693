from pathlib import Path

import pytest

from deepex.errors import RunFolderError
from deepex.record.folder import RunFolder


def test_an_existing_directory_is_never_touched(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run").write_text("recipe.toml", "seed = 1")
    with pytest.raises(RunFolderError, match="exists already"):
        RunFolder.create(tmp_path / "run")
    assert (tmp_path / "run" / "recipe.toml").read_text() == "seed = 1"


def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="not a run directory"):
        RunFolder.open(tmp_path)


def test_lines_after_an_epoch_can_be_dropped(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    for epoch in (1, 2, 3):
        folder.append_line("metrics.jsonl", {"epoch": epoch})
    folder.keep_lines("metrics.jsonl", 2)
    assert [row["epoch"] for row in folder.read_lines("metrics.jsonl")] == [1, 2]


def test_a_file_where_a_folder_should_be_is_told_with_the_cure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunFolderError, match=r"can't be written: Not a directory\..*--out"):
        RunFolder.create(tmp_path / "file" / "run")


def test_a_line_that_a_kill_cut_off_is_written_again(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    for epoch in (1, 2):
        folder.append_line("metrics.jsonl", {"epoch": epoch})
    log = folder.path / "metrics.jsonl"
    log.write_text(log.read_text() + '{"epoch": 3, "lo')
    assert [row["epoch"] for row in folder.read_lines("metrics.jsonl")] == [1, 2]
    folder.keep_lines("metrics.jsonl", 2)
    folder.append_line("metrics.jsonl", {"epoch": 3})
    assert [row["epoch"] for row in folder.read_lines("metrics.jsonl")] == [1, 2, 3]
