from pathlib import Path

import pytest

from deepex.cli.output.files import check_output, write_output
from deepex.errors import UsageError


def test_a_file_is_left_alone_by_the_check_and_replaced_by_the_writing(tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    path.write_text("old")
    check_output(path, "--out")
    assert path.read_text() == "old"
    write_output(path, "--out", "new")
    assert path.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["machine.toml"]


def test_a_device_is_not_replaced_by_a_file() -> None:
    with pytest.raises(UsageError, match="not a plain file"):
        check_output(Path("/dev/null"), "--out")


def test_a_folder_that_goes_away_meanwhile_is_an_error_with_its_cure(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"No such file or directory\. .*Choose another with --json\."):
        write_output(tmp_path / "gone" / "machine.json", "--json", "{}")
