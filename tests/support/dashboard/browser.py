"""A running dashboard, and headless Chromium."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.support.waiting import wait_until
from webui.access.accounts import Accounts
from weir_base.paths import PROJECT

NAME, PASSWORD = "ada", "correct horse battery"
Found = TypeVar("Found")


@contextmanager
def dashboard(database_url: str, folder: Path, *arguments: str) -> Iterator[str]:
    """``weir web`` on a free port; gives its address. ``NAME`` may log in."""
    accounts = folder / "accounts.json"
    Accounts(accounts).put_person(NAME, PASSWORD)
    command = [sys.executable, "-m", "weir", "web", "--db", database_url, "--listen", "127.0.0.1:0", "--json"]
    command += ["--accounts", str(accounts), *arguments]
    with (
        open(folder / "web.log", "w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=PROJECT) as process,
    ):
        try:
            assert process.stdout
            line = process.stdout.readline()
            assert line, (folder / "web.log").read_text()
            yield json.loads(line)["url"].rstrip("/")
        finally:
            process.terminate()
    assert process.returncode == 0, (folder / "web.log").read_text()


@contextmanager
def chromium(width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[webdriver.Chrome]:
    """Headless Chromium with a temporary profile."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    wanted = ["--headless=new", f"--window-size={width},{height}", "--hide-scrollbars", "--disable-gpu"]
    wanted += ["--disable-dev-shm-usage", "--force-device-scale-factor=1", "--no-first-run"]
    if os.geteuid() == 0:
        wanted.append("--no-sandbox")
    for argument in wanted:
        options.add_argument(argument)
    with tempfile.TemporaryDirectory(prefix="weir-chromium-", ignore_cleanup_errors=True) as place:
        program, environment = shutil.which("chromedriver") or "chromedriver", os.environ | {"TMPDIR": place}
        driver = webdriver.Chrome(options=options, service=Service(program, env=environment))
        try:
            emulate(driver, width, height, dark)
            yield driver
        finally:
            driver.quit()


def emulate(driver: webdriver.Chrome, width: int, height: int, dark: bool = False) -> None:
    """Set the viewer's screen: its size in CSS pixels, and a light or dark colour scheme."""
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def log_in(driver: webdriver.Chrome, root: str) -> None:
    """Log in as ``NAME`` with the page's form."""
    driver.get(f"{root}/login")
    driver.find_element("name", "name").send_keys(NAME)
    driver.find_element("name", "password").send_keys(PASSWORD)
    driver.find_element("css selector", "main button").click()
    wait_until(lambda: driver.find_elements("css selector", ".who button"), "the log-out button")


def text_of(driver: webdriver.Chrome, element_id: str) -> str:
    """The visible text of an element; empty while its page loads."""
    found = driver.execute_script("return document.getElementById(arguments[0])?.innerText", element_id)
    return found or ""


def region(driver: webdriver.Chrome, name: str) -> str:
    """The visible text of a region of a live page."""
    return text_of(driver, f"region-{name}")


def is_live(driver: webdriver.Chrome) -> bool:
    """Whether the page follows the server."""
    return text_of(driver, "liveness") == "Live"


def drawn(driver: webdriver.Chrome) -> bool:
    """Whether every chart of the page is drawn."""
    script = "return [...document.querySelectorAll('figure[data-chart]')].every((one) => one.dataset.drawn)"
    return bool(driver.execute_script(script))
