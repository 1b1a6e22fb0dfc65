"""The documentation site in a browser: its diagrams are drawn, and nothing comes from another host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from selenium import webdriver

from tests.support.waiting import wait_until
from weir_base.paths import PROJECT

pytestmark = pytest.mark.beside_others

DRAWN = """
return [...document.querySelectorAll('div.mermaid')].filter(diagram => diagram.clientHeight > 50).length
"""
REQUESTED = "return performance.getEntriesByType('resource').map(entry => entry.name)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    subprocess.run(command, cwd=PROJECT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=True)
    return folder


def test_the_diagrams_of_the_architecture_are_drawn_without_the_network(
    browser: webdriver.Chrome, site: Path
) -> None:
    browser.get((site / "architecture.html").as_uri())
    wait_until(lambda: browser.execute_script(DRAWN) == 3, "three diagrams are drawn")
    requested = browser.execute_script(REQUESTED)
    assert [address for address in requested if not address.startswith("file:")] == []
    severe = [entry for entry in browser.get_log("browser") if "mermaid" in json.dumps(entry).lower()]
    assert severe == []
