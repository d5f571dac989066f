"""A real browser: headless Chromium, driven by selenium; tests are skipped where there is none."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage")


class Browser:
    """One window; `open` shows a page in a size and a scheme of colours."""

    def __init__(self, driver: object) -> None:
        self.driver = driver

    def open(self, page: Path, *, width: int = 1280, scheme: str = "light") -> None:
        self.command(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
        )
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        self.driver.get(page.as_uri())  # type: ignore[attr-defined]

    def command(self, name: str, **words: object) -> dict[str, object]:
        return self.driver.execute_cdp_cmd(name, words)  # type: ignore[attr-defined, no-any-return]

    def run(self, script: str, *words: object) -> object:
        """What a function body returns in the page."""
        return self.driver.execute_script(script, *words)  # type: ignore[attr-defined]

    def press(self, selector: str) -> None:
        self.run("document.querySelector(arguments[0]).click()", selector)

    def keys(self, selector: str, text: str) -> None:
        self.driver.find_element("css selector", selector).send_keys(text)  # type: ignore[attr-defined]

    def complaints(self) -> list[str]:
        """What the console was told since the last call."""
        return [each["message"] for each in self.driver.get_log("browser")]  # type: ignore[attr-defined]

    def nameless(self) -> list[str]:
        """Roles in the accessibility tree that a reader could not name."""
        nodes = self.command("Accessibility.getFullAXTree")["nodes"]
        assert isinstance(nodes, list)
        wanted = ("button", "image", "img", "canvas", "link", "heading")
        return [
            json.dumps(node)[:300]
            for node in nodes
            if not node["ignored"]
            and node["role"]["value"] in wanted
            and not node.get("name", {}).get("value", "").strip()
        ]


@contextmanager
def chromium(downloads: Path) -> Iterator[Browser]:
    """A browser that saves into that folder."""
    webdriver = pytest.importorskip("selenium.webdriver")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("chromium and chromedriver are not installed")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={downloads / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(
        options=options, service=Service(DRIVER, env={**os.environ, "TMPDIR": str(downloads)})
    )
    try:
        found = Browser(driver)
        found.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))
        yield found
    finally:
        driver.quit()
