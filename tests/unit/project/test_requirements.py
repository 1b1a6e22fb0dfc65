"""The lists of Python packages: complete, with hashes, and without test tools in production."""

from __future__ import annotations

import re

import pytest
from packaging.utils import canonicalize_name

from tools import lock


@pytest.mark.parametrize("kind", lock.LISTS)
def test_a_list_names_what_is_needed_and_installed(kind: str) -> None:
    """If this fails after a change of pyproject.toml: python -m tools.lock."""
    wanted = {name: lock.metadata.version(name) for name in lock.names_of_lists()[kind]}
    assert {canonicalize_name(name): version for name, version in lock.pinned(kind).items()} == wanted


@pytest.mark.parametrize("kind", lock.LISTS)
def test_every_package_has_a_version_and_hashes(kind: str) -> None:
    text = (lock.FOLDER / f"requirements-{kind}.txt").read_text().replace("\\\n", " ")
    for line in text.splitlines()[1:]:
        assert re.fullmatch(r"[\w.-]+==\S+(?: ;[^#]+?)?(?:\s+--hash=sha256:[0-9a-f]{64})+\s*", line), line


def test_production_has_no_test_tools() -> None:
    tools = {"pytest", "hypothesis", "schemathesis", "selenium", "mypy", "ruff", "mkdocs", "matplotlib"}
    assert tools <= lock.pinned("dev").keys()
    assert not tools & lock.pinned("run").keys()
