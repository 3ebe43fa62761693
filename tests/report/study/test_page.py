"""The page of a study, opened from disk in a real browser: what a reader would notice.

The runs are written down here rather than trained, so that ranks, seconds and epochs are known.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from deepex import api
from deepex.cli.app import run_command
from deepex.record.folder import RunFolder
from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.record.provenance import Placement, Repository, write_record
from deepex.record.study_rows import write_states
from deepex.record.typed_json import to_json
from deepex.report.terminal.study_view import StudyNews, guess_seconds_left, show_study
from deepex.study.folder import StudyFolder
from deepex.study.outcome import read_outcome
from deepex.study.plan import make_cells
from deepex.study.sweep import PlannedRun
from deepex.tasks import default_recipe
from tests.rows import epoch_row, run_record, run_state, summary

EPOCHS = 20


def write_run(path: Path, run: PlannedRun) -> None:
    """A run's directory: more ranks make epochs shorter and learn slower."""
    ranks = run.cell.ranks
    seconds = (2.0 + 0.02 * run.seed) / ranks + 0.1 * (ranks - 1)
    folder = RunFolder.create(path)
    phases = dict.fromkeys(STEP_PHASES + BESIDE_PHASES, 0.1)
    phases |= {"forward": 0.7 / ranks, "backward": 0.9 / ranks, "sync": 0.1 * (ranks - 1)}
    rows = [
        epoch_row(
            epoch=epoch,
            seconds=epoch * seconds,
            losses={"loss": 9.0 / epoch},
            value=0.155 + 0.1 / epoch * ranks**0.25,
            samples=11904,
            phase_seconds=phases,
            noise_scale=100.0 * epoch if ranks > 1 else None,
        )
        for epoch in range(1, EPOCHS + 1)
    ]
    for row in rows:
        folder.append_line("metrics.jsonl", to_json(row))
    folder.write_text("recipe.toml", "")
    noise = 1500.0 if ranks > 1 else None
    rates = {"samples_per_second": 11904 / seconds, "gflops_per_second": 60.0, "share_of_peak": 0.6}
    folder.write_json("summary.json", to_json(summary(ranks=ranks, noise_scale=noise, **rates)))
    record = run_record(
        code=Repository(commit="0" * 40, clean=True),
        versions={"torch": "2.13.0"},
        launcher="torchrun",
        fabric="shared",
        data_sha256="f" * 64,
        places=tuple(Placement(rank=rank, host="n1", threads=1, cores=1.0) for rank in range(ranks)),
    )
    write_record(folder, record)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five runs, the last with more ranks than cores, and its page."""
    recipe = default_recipe("protein")
    plan = api.build_plan(recipe, ranks=(1, 2, 4), sync=("allreduce", "local:8"), repeats=1, cores_per_rank=1)
    folder = StudyFolder.prepare(tmp_path_factory.mktemp("studies") / "five", recipe, plan)
    runs = [PlannedRun(cell=cell, seed=0, state="done", seconds=9.0) for cell in make_cells(recipe, plan.varied)]
    runs[-1].oversubscribed = True
    for run in runs:
        write_run(folder.runs / run.name, run)
    write_states(folder.files, [run.row for run in runs])
    api.report(folder.path)
    return folder.path


def read_text(driver: Chrome) -> str:
    return driver.find_element(By.TAG_NAME, "main").text.replace("\u00a0", " ")


def test_page_draws_every_figure_without_errors_or_network(study: Path, opened: Callable[[Path], Chrome]) -> None:
    driver = opened(study / "report.html")
    names = {figure.get_attribute("id") for figure in driver.find_elements(By.CLASS_NAME, "figure")}
    assert names == {path.stem for path in (study / "figures").glob("*.csv")}
    assert {"speedup", "learning-speedup", "phases-seconds", "phases-share", "noise"} < names
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if url.startswith("http")] == []


def test_page_is_small(study: Path) -> None:
    assert (study / "report.html").stat().st_size < 6_000_000


def test_first_screen_says_what_was_found(study: Path, opened: Callable[[Path], Chrome]) -> None:
    driver = opened(study / "report.html")
    sentences = driver.find_elements(By.CSS_SELECTOR, ".sentences p")
    assert len(sentences) == 3
    assert "times as fast as 1 rank" in sentences[0].text
    assert "parallel efficiency" in sentences[1].text
    assert "as much noise as signal" in sentences[2].text
    assert sentences[2].rect["y"] < 900


def test_ranks_without_cores_stand_in_red(study: Path, opened: Callable[[Path], Chrome]) -> None:
    driver = opened(study / "report.html")
    warning = driver.find_element(By.CSS_SELECTOR, ".warning")
    assert "More ranks than cores: 4 ranks, local:8." in warning.text
    assert warning.find_element(By.TAG_NAME, "p").value_of_css_property("color") == "rgba(180, 35, 24, 1)"
    shared = driver.find_elements(By.CSS_SELECTOR, "tr.shared")
    assert any("none: cores shared" in row.text for row in shared)


def shown_values(driver: Chrome, name: str) -> list[list[float]]:
    """The numbers of a figure's lines that can be seen."""
    found: list[list[float]] = driver.execute_script(
        "return document.getElementById(arguments[0])._fullData.filter(t => t.visible === true).map(t => [...t.y])",
        name,
    )
    return found


def test_cutoffs_can_be_chosen(study: Path, opened: Callable[[Path], Chrome]) -> None:
    driver = opened(study / "report.html")
    outcome = read_outcome(StudyFolder.open(study))
    before = shown_values(driver, "learning-speedup")
    hardest = [cell.cutoffs[-1].speedup for cell in outcome.cells if cell.series in ("", "allreduce")]
    assert before[0] == pytest.approx([found.value for found in hardest if found])
    easier = driver.find_element(By.XPATH, f"//button[contains(., '{outcome.cutoffs[0]:g}')]")
    easier.click()
    WebDriverWait(driver, 30).until(lambda _: shown_values(driver, "learning-speedup") != before)
    assert easier.get_attribute("aria-pressed") == "true"


def test_axes_can_be_chosen_and_lines_hidden(study: Path, opened: Callable[[Path], Chrome]) -> None:
    driver = opened(study / "report.html")

    def kind() -> Any:
        return driver.execute_script("return document.getElementById('speedup')._fullLayout.xaxis.type")

    assert kind() == "linear"
    driver.find_element(By.XPATH, "//div[@data-for='speedup']//button[contains(., 'logarithmic')]").click()
    WebDriverWait(driver, 30).until(lambda _: kind() == "log")
    lines = len(shown_values(driver, "speedup"))
    driver.find_element(By.CSS_SELECTOR, "#speedup .legendtoggle").click()
    WebDriverWait(driver, 30).until(lambda _: len(shown_values(driver, "speedup")) < lines)


def test_narrow_screen_needs_no_sideways_scrolling(
    study: Path, opened: Callable[[Path], Chrome], chrome: Chrome
) -> None:
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        opened(study / "report.html")
        assert chrome.execute_script("return document.documentElement.scrollWidth") == 390
    finally:
        chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_record_is_enough_to_run_it_again(study: Path, opened: Callable[[Path], Chrome]) -> None:
    text = read_text(opened(study / "report.html"))
    for part in ("algorithm", "software", "data", "hardware", "command", "A Processor", "f" * 64, "0" * 40):
        assert part in text
    assert "--ranks 1,2,4 --sync allreduce,local:8 --scaling weak --repeats 1" in text


def test_watching_a_study_shows_its_table(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["watch", str(study)]) == 0
    told = capsys.readouterr().out
    assert "5 of 5 runs done" in told
    assert told.splitlines()[-1] == f"page: {study / 'report.html'}"
    assert run_command(["watch", str(study), "--tensorboard", "events"]) == 2
    assert "Allowed: a run." in capsys.readouterr().err


def test_the_terminal_shows_the_same_runs(study: Path) -> None:
    lines = StudyNews(study).hear()
    assert len(lines) == 5
    assert lines[0] == "1r_alone_seed0: done, 20 epochs, rmse 0.1600, 9.0 s"
    assert show_study(study)
    left = [run_state(state="done", seconds=30.0), run_state(name="a_seed1", seed=1)]
    assert guess_seconds_left(left) == 30.0
    assert guess_seconds_left(left[1:]) is None
