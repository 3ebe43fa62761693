"""`deepex study` refuses what can't work before anything is written, and says what is allowed."""

from pathlib import Path

import pytest

from deepex import api
from deepex.cli.app import run_command
from deepex.study.folder import StudyFolder
from deepex.tasks import default_recipe

WRONG = {
    "--ranks 1,x": "--ranks has 'x'. Allowed: whole numbers",
    "--ranks 0,1": "Allowed: whole numbers from 1",
    "--ranks 2,2": "each once",
    "--ranks 3 --sync hybrid:2": "3 ranks can't be shared out evenly among 2 groups",
    "--ranks 1,3 --scaling strong": "3 ranks don't divide it. Allowed: 1, 2, 4",
    "--sync alreduce": "Did you mean 'allreduce'",
    "--scaling big": "--scaling big. Allowed: weak, strong or both",
    "--repeats 0": "repeats = 0. Allowed: whole numbers from 1",
    "--cutoffs 0.2": "two different values of rmse",
    "--cutoffs a,b": "--cutoffs has 'a'",
    "--vary data.bach=1,2": "Did you mean 'data.batch'",
    "--vary sync=a,b": "Use --sync",
    "--launcher srun": "Write it as {ranks}",
    "--launcher nosuch-{ranks}": "no program nosuch-{ranks} on the PATH",
    "--launcher srun{ranks} --cluster hosts=2": "a launcher and a cluster. Allowed: one of them",
    "--vary data.batch=1 --vary data.batch=2": "--vary has a key twice",
    "--cutoffs nan,0.2": "two different values",
    "--cutoffs 0.16,0.15": "Give stop.target=0.15 too",
    "--cluster hosts=0": "--cluster hosts=0. Allowed: whole numbers from 1",
    '--launcher "srun{ranks}': "has a quote that is not closed",
    "--cluster host=2": "unknown key 'host'",
    "--cores-per-rank 0": "Allowed: whole numbers from 1",
    "--ranks 100000": "ranks",
    "--json nowhere/x.json": "--json nowhere/x.json can't be written",
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_words_end_with_2_and_leave_nothing(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["study", "protein", *words.split()]) == 2
    assert WRONG[words] in capsys.readouterr().err
    assert not list(tmp_path.glob("**/runs")), "nothing was run"


def test_the_plan_can_be_seen_without_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["study", "protein", "--ranks", "1,2,4", "--scaling", "both", "--repeats", "2", "--plan"]) == 0
    told = capsys.readouterr().out
    assert "5 cells × 2 seeds, 10 runs, judged by rmse at 0.18095 and 0.1645" in told
    assert list(tmp_path.iterdir()) == []


def test_a_study_s_plan_is_fixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = default_recipe("protein")
    StudyFolder.prepare(tmp_path / "study", recipe, api.build_plan(recipe, repeats=1))
    assert run_command(["study", str(tmp_path / "study"), "--ranks", "1,2"]) == 2
    assert "whose plan is fixed" in capsys.readouterr().err


def test_a_page_of_several_needs_studies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["report", str(tmp_path), str(tmp_path), "--out", str(tmp_path / "x.html")]) == 2
    assert "is not a study's directory: it has no study.toml" in capsys.readouterr().err
