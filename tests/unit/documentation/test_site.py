"""The documentation site builds, and a build with a mistake fails and names it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from weir_base.paths import PROJECT

PLANTED = [
    pytest.param("[a page](absent.md)", "absent.md", id="broken-link"),
    pytest.param("[a section](architecture.md#absent)", "#absent", id="broken-anchor"),
    pytest.param("```sh\nweir absent\n```", "no command absent", id="dead-command"),
    pytest.param("```toml\n[sdtcp]\nabsent = 1\n```", "[sdtcp] absent", id="setting-in-a-block"),
    pytest.param("Set `[sdtcp] absent`.", "no setting absent", id="setting-in-a-sentence"),
]


def build(docs: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Builds the site from the pages in `docs`, as `make docs` does."""
    config = (PROJECT / "mkdocs.yml").read_text()
    config = config.replace("docs_dir: docs", f"docs_dir: {docs}").replace(
        "site_dir: site", f"site_dir: {site}"
    )
    config = config.replace("tools/docs.py", str(PROJECT / "tools" / "docs.py"))
    (site.parent / "mkdocs.yml").write_text(config)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(site.parent / "mkdocs.yml")]
    return subprocess.run(
        command,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PROJECT / "docs", tmp_path / "docs"))


def test_the_site_builds_and_requests_nothing_from_other_hosts(docs: Path, tmp_path: Path) -> None:
    done = build(docs, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "architecture.html").read_text()
    assert page.count('class="mermaid"') == 3
    assert "assets/mermaid.tiny.js" in page
    loaded = [line for line in page.splitlines() if "<script src=" in line or "<link rel=" in line]
    assert [line for line in loaded if "http" in line] == []


def test_the_references_are_made_from_the_models_and_the_commands(docs: Path, tmp_path: Path) -> None:
    assert build(docs, tmp_path / "site").returncode == 0
    reference = tmp_path / "site" / "reference"
    assert "clamp_limit_s" in (reference / "settings.html").read_text()
    assert "weir lab incast" in (reference / "commands.html").read_text()


@pytest.mark.parametrize(("text", "complaint"), PLANTED)
def test_a_build_with_a_mistake_fails(text: str, complaint: str, docs: Path, tmp_path: Path) -> None:
    page = docs / "glossary.md"
    page.write_text(f"{page.read_text()}\n{text}\n")
    done = build(docs, tmp_path / "site")
    assert done.returncode != 0
    assert complaint in done.stderr
