"""The page of a run, opened from disk in a real browser: what a reader would notice."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from deepex.launch.start import start
from deepex.record.folder import RunFolder
from deepex.record.illustration import Illustration, ImageGrid, Matrix, Picture, Scatter, ScatterPanel
from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.report import write_report
from deepex.report.html import Gallery
from deepex.report.run.page import build_page
from deepex.report.run.run_data import read_run
from deepex.tasks.own import OwnTask
from deepex.tasks.protein import Protein, recipe
from deepex.train.recipe import Recipe, StopConfig
from deepex.train.task import Target
from tests.chains import write_chains


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of two epochs with its page."""
    place = tmp_path_factory.mktemp("report")
    write_chains(place / "chains.h5")
    chosen = replace(recipe(), task=Protein(file=str(place / "chains.h5")), stop=StopConfig(epochs=2, target=0.01))
    folder = start(chosen, place / "run", "quiet")
    write_report(folder)
    return folder


@pytest.fixture
def copied(finished: RunFolder, tmp_path: Path) -> RunFolder:
    """The run again, to change."""
    return RunFolder.open(Path(shutil.copytree(finished.path, tmp_path / "copy")))


def read_text(driver: Chrome) -> str:
    return driver.find_element(By.TAG_NAME, "main").text.replace("\u00a0", " ")


def count_bars(driver: Chrome) -> dict[str, int]:
    """Bars drawn in the figure of phases, by phase."""
    found: dict[str, int] = driver.execute_script("""
        const figure = document.getElementById("phases"), count = {};
        for (const trace of figure.querySelectorAll(".barlayer .trace")) {
            const name = trace.__data__[0].trace.name;
            count[name] = trace.querySelectorAll(".point path").length;
        }
        return count;
    """)
    return found


def test_page_draws_every_figure_without_errors(finished: RunFolder, opened: Callable[[Path], Chrome]) -> None:
    driver = opened(finished.page)
    names = {figure.get_attribute("id") for figure in driver.find_elements(By.CLASS_NAME, "figure")}
    assert {"loss-epoch", "loss-seconds", "metric-epoch", "metric-seconds", "phases"} < names
    assert any(name and name.startswith("points") for name in names)
    severe = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert severe == []


def test_page_asks_for_nothing_from_the_network(finished: RunFolder, opened: Callable[[Path], Chrome]) -> None:
    driver = opened(finished.page)
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    urls = [a["request"]["url"] for a in asked if a["documentURL"] == driver.current_url]
    assert driver.current_url in urls
    assert [url for url in urls if url != driver.current_url and not url.startswith(("data:", "blob:"))] == []
    outside = driver.execute_script("""
        return [...document.querySelectorAll("[src], [href]")]
            .map(element => element.getAttribute("src") || element.getAttribute("href"))
            .filter(address => !address.startsWith("data:") && !address.startsWith("#"));
    """)
    assert outside == []


def test_text_tells_outcome_time_and_findings(finished: RunFolder, opened: Callable[[Path], Chrome]) -> None:
    text, summary = read_text(opened(finished.page)), finished.read_json("summary.json")
    assert "did not reach its target" in text
    assert "target < 0.01" in text
    assert f"rmse {summary['value']:.4f}" in text
    assert f"{summary['samples_per_second']:,.0f} samples/s" in text
    assert "of the variance of the fraction of native contacts" in text
    assert finished.read_json("record.json")["data_sha256"] in text
    assert np.isfinite(summary["findings"]["native_fraction_r2"])


def test_target_is_a_dashed_line(finished: RunFolder, opened: Callable[[Path], Chrome]) -> None:
    driver = opened(finished.page)
    for name in ("metric-epoch", "metric-seconds"):
        dashed = driver.find_elements(By.CSS_SELECTOR, f"#{name} .scatterlayer path.js-line[style*='stroke-dasharray']")
        assert len(dashed) == 1


def test_phases_have_a_bar_a_rank(finished: RunFolder, opened: Callable[[Path], Chrome]) -> None:
    assert count_bars(opened(finished.page)) == dict.fromkeys(STEP_PHASES + BESIDE_PHASES, 1)


def test_phases_stay_readable_for_64_ranks(copied: RunFolder, opened: Callable[[Path], Chrome]) -> None:
    log = (copied.path / "phases/rank00000.jsonl").read_text()
    for rank in range(64):
        (copied.path / f"phases/rank{rank:05d}.jsonl").write_text(log)
    write_report(copied)
    driver = opened(copied.page)
    assert count_bars(driver) == dict.fromkeys(STEP_PHASES + BESIDE_PHASES, 64)
    bar = driver.find_element(By.CSS_SELECTOR, "#phases .point path")
    assert bar.rect["height"] > 8


def test_every_kind_of_picture_is_drawn(copied: RunFolder, opened: Callable[[Path], Chrome]) -> None:
    draws = np.random.default_rng(0)
    truth = draws.random(50, dtype=np.float32)
    pictures: list[Picture] = [
        ImageGrid(
            title="Photographs",
            caption="c",
            names=("",),
            images=draws.integers(0, 256, (2, 1, 6, 9, 3), dtype=np.uint8),
            labels=["cat:\n90 % cat", "dog <b>:\n60 % cat"],
            verdicts=[True, False],
        ),
        ImageGrid(
            title="Slabs",
            caption="c",
            names=("a", "b", "c"),
            images=draws.random((1, 3, 8, 8), dtype=np.float32),
            labels=["x"],
        ),
        Matrix(title="Mistakes", caption="c", names=("cat", "dog"), counts=np.array([[3, 1], [0, 4]])),
        Scatter(
            title="Predicted",
            caption="c",
            panels=[ScatterPanel(name=name, true=truth, predicted=1 - truth, note="n") for name in ("h", "n_s")],
        ),
    ]
    shown = Illustration(findings={}, sentence="It shows.", pictures=pictures)
    copied.write_text(copied.page.name, build_page(replace(read_run(copied), illustration=shown), Gallery()))
    driver = opened(copied.page)
    sizes = driver.execute_script("return [...document.images].map(image => [image.naturalWidth, image.naturalHeight])")
    assert sizes == [[9, 6]] * 2 + [[8, 8]] * 3
    verdicts = {kind: driver.find_element(By.CSS_SELECTOR, f".sample.{kind}").text for kind in ("good", "wrong")}
    assert verdicts == {"good": "cat:\n90 % cat", "wrong": "dog <b>:\n60 % cat"}
    assert len(driver.find_elements(By.CSS_SELECTOR, "[id^=scatter] .points path")) == 100
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_another_colouring_changes_the_latent_space(finished: RunFolder, opened: Callable[[Path], Chrome]) -> None:
    driver = opened(finished.page)
    figure = driver.find_element(By.CSS_SELECTOR, "[id^=points]")

    def title() -> str:
        return figure.find_element(By.CSS_SELECTOR, "[class*=cbtitle] text").text

    before, picture = title(), figure.screenshot_as_base64
    assert "fraction of native contacts" in before
    temperature = driver.find_element(By.XPATH, "//button[contains(., 'temperature')]")
    temperature.click()
    WebDriverWait(driver, 30).until(lambda _: title() == "temperature (K): 390 to 390")
    assert temperature.get_attribute("aria-pressed") == "true"
    WebDriverWait(driver, 30).until(lambda _: figure.screenshot_as_base64 != picture)


def test_dragging_turns_the_latent_space(finished: RunFolder, opened: Callable[[Path], Chrome]) -> None:
    driver = opened(finished.page)
    figure = driver.find_element(By.CSS_SELECTOR, "[id^=points]")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", figure)

    def eye() -> Any:
        return driver.execute_script("return arguments[0]._fullLayout.scene._scene.getCamera().eye", figure)

    before = eye()
    ActionChains(driver).move_to_element(figure).click_and_hold().move_by_offset(120, 40).release().perform()
    WebDriverWait(driver, 30).until(lambda _: eye() != before)


def test_narrow_screen_needs_no_sideways_scrolling(finished: RunFolder, opened: Callable[[Path], Chrome]) -> None:
    driver = opened(finished.page)
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        opened(finished.page)
        assert driver.execute_script("return document.documentElement.scrollWidth") == 390
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_run_without_outcome_has_a_page(copied: RunFolder, opened: Callable[[Path], Chrome]) -> None:
    (copied.path / "summary.json").unlink()
    write_report(copied)
    text = read_text(opened(copied.page))
    assert "The run is not complete" in text
    assert "2 of 2" in text
    assert not (copied.path / "summary.json").exists()


def test_run_without_an_epoch_has_a_page(copied: RunFolder) -> None:
    for name in ("summary.json", "metrics.jsonl", "phases/rank00000.jsonl"):
        (copied.path / name).unlink()
    shutil.rmtree(copied.checkpoints)
    page = write_report(copied).read_text()
    assert "its first epoch has not ended" in page
    assert "recipe.toml" in page


def test_a_page_needs_neither_the_data_nor_a_checkpoint_and_changes_no_file_of_the_record(copied: RunFolder) -> None:
    copied.write_text("recipe.toml", copied.recipe.read_text().replace("chains.h5", "gone.h5"))
    shutil.rmtree(copied.checkpoints)

    def record() -> dict[Path, bytes]:
        files = [path for path in copied.path.rglob("*") if path.is_file() and path.parent.name != "figures"]
        return {path: path.read_bytes() for path in files if path != copied.page}

    before, first = record(), copied.page.read_text()
    copied.page.unlink()
    page = write_report(copied).read_text()
    assert "of the variance of the fraction of native contacts" in page
    assert len(page) == pytest.approx(len(first), rel=0.01)
    assert record() == before


def test_a_run_without_its_illustrations_has_a_page_that_says_so(copied: RunFolder) -> None:
    (copied.path / "illustrations/arrays.npz").write_bytes(b"PK")
    assert "There are no pictures: " in write_report(copied).read_text()
    shutil.rmtree(copied.path / "illustrations")
    page = write_report(copied).read_text()
    assert "There are no pictures: the run left none. It was made by deepex" in page
    assert "did not reach its target" in page


def test_a_run_without_target_and_code_has_a_page(line: OwnTask, tmp_path: Path) -> None:
    aimless = replace(line, goal=Target(metric="validation_loss"))
    folder = start(Recipe(task=aimless, stop=StopConfig(epochs=2)), tmp_path / "run", "quiet")
    (tmp_path / "run/objects.pkl").unlink()  # a page loads no code
    page = write_report(folder).read_text()
    assert "From epoch 1 to epoch 2, validation_loss went from" in page
    text = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "It has no target." in text
    assert "the dashed line" not in text


def test_task_without_pictures_tells_how_its_metric_moved(line: OwnTask, tmp_path: Path) -> None:
    folder = start(Recipe(task=line, stop=StopConfig(epochs=2, target=0.0)), tmp_path / "run", "quiet")
    page = write_report(folder).read_text()
    assert "From epoch 1 to epoch 2, validation_loss went from" in page
    assert folder.read_json("summary.json")["findings"] == {}
    assert not (folder.path / "illustrations").exists()


def test_text_of_the_record_is_no_markup(copied: RunFolder, opened: Callable[[Path], Chrome]) -> None:
    mischief = "run </script><img id='mischief'>"
    copied.write_json("record.json", {**copied.read_json("record.json"), "command": mischief})
    write_report(copied)
    driver = opened(copied.page)
    assert mischief in read_text(driver)
    assert driver.find_elements(By.ID, "mischief") == []
