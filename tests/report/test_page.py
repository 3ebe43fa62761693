"""The page of a run, in a real browser."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from deepex.launch.start import start
from deepex.record.folder import RunFolder
from deepex.report import write_report
from deepex.tasks.protein import recipe
from deepex.train.recipe import StopConfig

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --use-angle=swiftshader --enable-unsafe-swiftshader"
)
CAMERA = "return JSON.stringify(document.querySelector('[id^=points]')._fullLayout.scene._scene.getCamera().eye)"
COLOURS = "return document.querySelector('[id^=points]').data[0].marker.color.slice(0, 5)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A real run of two epochs, with its page."""
    short = replace(recipe(), stop=StopConfig(epochs=2, target=0.19))
    made = start(short, tmp_path_factory.mktemp("runs") / "run", "quiet")
    write_report(made)
    return made


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1200,2400"]:
        options.add_argument(flag)
    options.binary_location = "/usr/bin/chromium"
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver")) as driver:
        driver.set_page_load_timeout(60)
        yield driver


def open_page(browser: webdriver.Chrome, folder: RunFolder) -> None:
    """Open the page and wait until every figure is drawn."""
    browser.get(folder.page.resolve().as_uri())
    WebDriverWait(browser, 60).until(
        lambda page: page.execute_script(
            "const f = [...document.querySelectorAll('.figure')];"
            "return f.length > 0 && f.every(e => e.querySelector('svg.main-svg, canvas'));"
        )
    )


def test_a_reader_finds_the_outcome_the_phases_and_the_pictures(browser: webdriver.Chrome, folder: RunFolder) -> None:
    open_page(browser, folder)
    text = browser.find_element(By.TAG_NAME, "body").text
    summary = folder.read_json("summary.json")
    assert "reached its target" in text
    assert f"{summary['value']:.4f}" in text
    assert "target < 0.19" in text
    for heading in ("Loss and metric", "Where the time went", "Contact maps", "The latent space", "The record"):
        assert heading in text
    assert summary["weights_sha256"] in text
    assert len(browser.find_elements(By.CSS_SELECTOR, ".pair img")) == 12
    bars = browser.execute_script("return document.getElementById('phases').data.map(bar => [bar.name, bar.x.length])")
    names = ["input", "forward", "backward", "update", "sync", "evaluate", "checkpoint"]
    assert bars == [[name, 1] for name in names]


def test_the_page_asks_for_nothing_from_outside_and_has_no_errors(browser: webdriver.Chrome, folder: RunFolder) -> None:
    open_page(browser, folder)
    fetched = browser.execute_script("return performance.getEntriesByType('resource').map(r => r.name)")
    assert [name for name in fetched if not name.startswith(("data:", "blob:"))] == []
    severe = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert severe == []


def test_the_latent_space_can_be_turned_and_coloured(browser: webdriver.Chrome, folder: RunFolder) -> None:
    open_page(browser, folder)
    cloud = browser.find_element(By.CSS_SELECTOR, "[id^=points]")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", cloud)
    before = browser.execute_script(CAMERA)
    ActionChains(browser).move_to_element(cloud).click_and_hold().move_by_offset(150, 60).release().perform()
    WebDriverWait(browser, 30).until(lambda page: page.execute_script(CAMERA) != before)
    first = browser.execute_script(COLOURS)
    buttons = browser.find_elements(By.CSS_SELECTOR, ".choices button")
    assert len(buttons) == 4
    seen = [first]
    for button in buttons[1:]:
        browser.execute_script("arguments[0].click()", button)
        WebDriverWait(browser, 30).until(lambda page: page.execute_script(COLOURS) != seen[-1])
        seen.append(browser.execute_script(COLOURS))
        assert button.get_attribute("aria-pressed") == "true"
    assert len({str(colours) for colours in seen}) == 4


def test_a_narrow_screen_shows_it_all(browser: webdriver.Chrome, folder: RunFolder) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    )
    open_page(browser, folder)
    widths = browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert widths[0] <= widths[1]


def test_an_unfinished_run_has_a_page_too(folder: RunFolder, tmp_path: Path) -> None:
    unfinished = RunFolder.create(tmp_path / "unfinished")
    for name in ("recipe.toml", "record.json", "metrics.jsonl", "phases/rank00000.jsonl"):
        unfinished.write_text(name, (folder.path / name).read_text())
    text = write_report(unfinished).read_text()
    assert "The run is not complete" in text
    assert "no checkpoint yet" in text
    unfinished.write_text("metrics.jsonl", "")
    assert "its first epoch has not ended" in write_report(unfinished).read_text()
