"""Findings of ruff and mypy that lines suppress: each line states its reason.

A line of a test states it for ruff's security rules only.
"""

from __future__ import annotations

import re
import tomllib

from tests.support.source_tree import python_sources, relative
from weir_base.paths import PROJECT

SUPPRESSED = re.compile(r"#\s*(noqa|nosec)\b(?P<codes>[\s:]*[A-Z]+[0-9]+(,\s*[A-Z]+[0-9]+)*)?(?P<reason>.*)")
SECURITY = re.compile(r"\bS[0-9]{3}\b")
IGNORED = re.compile(r"#\s*(type: ignore\[[a-z,-]+\]|noqa: [A-Z]+[0-9]+)(?P<reason>.*)")


def without_reason(line: str) -> bool:
    """Whether a line suppresses a security rule, or all rules, and does not say why."""
    found = SUPPRESSED.search(line)
    if found is None:
        return False
    codes = found["codes"] or ""
    if found[1] == "noqa" and codes and not SECURITY.search(codes):
        return False
    return not codes or not re.fullmatch(r"\s*[-#]+\s*\S.*", found["reason"])


def test_a_line_that_suppresses_a_security_rule_says_why() -> None:
    found = [
        f"{relative(path)}:{number}"
        for path in python_sources()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "SUPPRESSED" not in line and without_reason(line)
    ]
    assert not found, 'write "# noqa: S101 - the reason"'


def test_a_line_that_suppresses_any_finding_says_why() -> None:
    found = [
        f"{relative(path)}:{number}"
        for path in python_sources()
        if not path.is_relative_to(PROJECT / "tests")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (ignored := IGNORED.search(line)) and not re.search(r"\w", ignored["reason"])
    ]
    assert not found, 'write "# type: ignore[misc]  # the reason"'


def test_lines_with_and_without_a_reason_are_told_apart() -> None:
    codes = "no" + "qa: S101"
    assert without_reason(f"assert x  # {codes}")
    assert without_reason(f"assert x  # {codes} -")
    assert without_reason("assert x  # no" + "qa")
    assert not without_reason(f"assert x  # {codes} - an invariant")
    assert not without_reason(f"exec(x)  # {codes}  # no shell wanted")
    assert not without_reason("from x import y  # no" + "qa: F401")


def test_ruff_checks_the_security_rules_of_every_file() -> None:
    """Rules that are off as a whole are listed in pyproject.toml with a reason, and tests' own."""
    lint = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "S" in lint["select"]
    assert [rule for rule in lint["ignore"] if rule.startswith("S")] == ["S404", "S603", "S607"]
    of_files = {name for name, rules in lint["per-file-ignores"].items() if SECURITY.search(" ".join(rules))}
    assert of_files == {"examples/*/tests/**", "tests/**"}
