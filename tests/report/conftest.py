"""A real browser for pages."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --use-angle=swiftshader --enable-unsafe-swiftshader "
    "--hide-scrollbars --window-size=1200,900"
)
ALL_DRAWN = """
    const figures = [...document.querySelectorAll(".figure")];
    const drawn = figure => figure.id.startsWith("points") ? ".gl-container canvas" : ".trace path, .hm image";
    return figures.length > 0 && figures.every(figure => figure.querySelector(drawn(figure)));
"""


@pytest.fixture(scope="package")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    options = ChromeOptions()
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    yield driver
    driver.quit()


@pytest.fixture
def opened(chrome: Chrome) -> Callable[[Path], Chrome]:
    """Open a page from disk and wait until all its figures stand."""

    def open_page(page: Path) -> Chrome:
        chrome.get(page.resolve().as_uri())
        WebDriverWait(chrome, 60).until(lambda driver: driver.execute_script(ALL_DRAWN))
        return chrome

    return open_page
