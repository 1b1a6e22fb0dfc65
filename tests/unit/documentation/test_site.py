"""The documentation site builds. A mistake in a page is a warning that names it, and warnings are errors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from weir_base.paths import PROJECT

MISTAKES = {
    "0901-broken-link.md": ("[a page](absent.md)", "'absent.md'"),
    "0902-broken-anchor.md": ("[a section](../architecture.md#absent)", "#absent"),
    "0903-dead-command.md": ("```sh\nweir absent\n```", "no command absent"),
    "0904-setting-in-a-block.md": ("```toml\n[sdtcp]\nabsent = 1\n```", "[sdtcp] absent"),
    "0905-setting-in-a-sentence.md": ("Set `[sdtcp] absent`.", "no setting absent"),
}
"""Pages with one mistake each, and what the warning about it has to name."""


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


def warnings_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("WARNING")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from the project's own pages."""
    folder = tmp_path_factory.mktemp("good") / "site"
    done = build(PROJECT / "docs", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def bad_build(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """A build with one page for each mistake."""
    folder = tmp_path_factory.mktemp("bad")
    docs = Path(shutil.copytree(PROJECT / "docs", folder / "docs"))
    for page, (text, _) in MISTAKES.items():
        (docs / "decisions" / page).write_text(f"# Planted\n\n{text}\n")
    return build(docs, folder / "site")


def test_the_site_requests_nothing_from_other_hosts(site: Path) -> None:
    page = (site / "architecture.html").read_text()
    assert page.count('class="mermaid"') == 3
    assert "assets/mermaid.tiny.js" in page
    loaded = [line for line in page.splitlines() if "<script src=" in line or "<link rel=" in line]
    assert [line for line in loaded if "http" in line] == []


def test_the_references_are_made_from_the_models_and_the_commands(site: Path) -> None:
    assert "clamp_limit_s" in (site / "reference" / "settings.html").read_text()
    assert "weir lab incast" in (site / "reference" / "commands.html").read_text()


@pytest.mark.parametrize("page", MISTAKES)
def test_a_mistake_is_a_warning(bad_build: subprocess.CompletedProcess[str], page: str) -> None:
    _, complaint = MISTAKES[page]
    (warning,) = [line for line in warnings_of(bad_build) if page in line]
    assert complaint in warning


def test_a_build_with_a_warning_fails(bad_build: subprocess.CompletedProcess[str]) -> None:
    assert bad_build.returncode != 0
    assert len(warnings_of(bad_build)) == len(MISTAKES)
    assert f"Aborted with {len(MISTAKES)} warnings in strict mode" in bad_build.stdout
