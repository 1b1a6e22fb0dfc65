"""A database with a recorded incast, its dashboard, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from tests.support.dashboard.application import put_experiment, told_in
from tests.support.dashboard.browser import chromium, dashboard, log_in
from tests.support.dashboard.incast_story import Story


@pytest.fixture(scope="session")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as driver:
        yield driver


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """The database of a running controller."""
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
