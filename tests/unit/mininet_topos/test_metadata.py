"""The version that a run records."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mininet_topos.running import metadata

GIT = ("git", "-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false")


def test_two_states_of_the_code_between_two_commits_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise runs before and after an edit would count as runs of the same code."""
    monkeypatch.setattr(metadata, "PROJECT", tmp_path)
    code = tmp_path / "code.c"
    code.write_bytes(b"int a; // \xe9\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run((*GIT, *words), cwd=tmp_path, check=True)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "summary.json").write_text("[]")
    clean = metadata.version()
    assert (clean["diff"], len(clean["commit"])) == ("", 40)
    found = []
    for text in (b"int b; // \xe9\n", b"int c; // \xe9\n", b"int b; // \xe9\n"):
        code.write_bytes(text)
        found.append(metadata.version())
    assert found[0] == found[2] != found[1]
    assert found[0]["changed"] == found[1]["changed"] != clean["changed"]
