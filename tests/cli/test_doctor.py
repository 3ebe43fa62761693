"""Wrong usage of `deepex doctor`: told at once, with the cure, and nothing is left behind."""

from pathlib import Path

import pytest

from deepex.cli.app import run_command


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "nowhere/machine.toml"], "--out nowhere/machine.toml can't be written: No such file or directory."),
        (["--out", "mine"], "--out mine is a folder. Allowed: a file, new or to be replaced."),
        (["--out", "mine/note/machine.toml"], "Not a directory. Allowed: a file in a folder that exists"),
        (["--out", "/proc/machine.toml"], "Choose another with --out."),
        (["--out", "m" * 300], "File name too long"),
        (["--json", "nowhere/machine.json"], "--json nowhere/machine.json can't be written"),
        (["--json", "machine.toml"], "--out and --json are the same file"),
        (["--data", "nowhere"], "--data nowhere can't be read: No such file or directory. Allowed: a folder"),
        (["--data", "mine/note"], "--data mine/note can't be read: Not a directory. Allowed: a folder that exists."),
        (["--data", "d" * 300], "File name too long"),
        (["--frobnicate"], "No such option"),
    ],
)
def test_wrong_usage_says_the_cure_exits_2_and_leaves_nothing(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note").write_text("keep me")
    monkeypatch.chdir(tmp_path)
    assert run_command(["doctor", *words]) == 2
    told = capsys.readouterr().err
    assert said in " ".join(told.split())
    assert "measuring" not in told
    assert "Traceback" not in told
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine", "note"]


def test_several_ranks_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    variables = {"PMI_RANK": "0", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "4"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert run_command(["doctor"]) == 2
    assert "mpi started 4 ranks" in capsys.readouterr().err
