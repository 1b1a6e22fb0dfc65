"""An incast's database, a dashboard over it, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from tests.story import Story
from tests.unit.web import put_experiment, told_in
from tests.web.browser import chromium, dashboard, log_in


@pytest.fixture(scope="session")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as driver:
        yield driver


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """What a controller writes, while it lives."""
    with told_in(tmp_path_factory.mktemp("web"), seconds=120) as told:
        yield told


@pytest.fixture(scope="module")
def root(story: Story, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The dashboard's address."""
    folder: Path = tmp_path_factory.mktemp("accounts")
    put_experiment(folder / "results")
    with dashboard(story.url, folder, "--results", str(folder / "results")) as address:
        yield address


@pytest.fixture
def logged_in(browser: webdriver.Chrome, root: str) -> webdriver.Chrome:
    browser.delete_all_cookies()
    log_in(browser, root)
    return browser
