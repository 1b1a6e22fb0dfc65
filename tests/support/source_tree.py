"""The project's Python sources: packages, modules and syntax trees, for the tests of its structure."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path

from weir_base.paths import PROJECT


def _packages() -> tuple[str, ...]:
    """The top-level packages, read from the patterns in pyproject.toml, which name them."""
    metadata = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    patterns = metadata["tool"]["setuptools"]["packages"]["find"]["include"]
    return tuple(sorted({pattern.removesuffix("*").removesuffix(".") for pattern in patterns}))


PACKAGES = _packages()


def python_sources() -> list[Path]:
    """Every Python file of the packages, the benchmarks, the tests and the tools."""
    roots = [PROJECT / name for name in (*PACKAGES, "bench", "tests", "tools")]
    return sorted(path for root in roots for path in root.rglob("*.py"))


def relative(path: Path) -> str:
    """A path as seen from the project's folder."""
    return str(path.relative_to(PROJECT))


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse(path.read_text(), str(path))
