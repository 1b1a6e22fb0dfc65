"""The structure: imports run downwards, cores are pure, files are short (DESIGN, section 2)."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = (
    *("openflow_ext", "flowdb", "fabric_app", "telemetry_app", "sdtcp_app", "sccp_app"),
    *("transports", "mininet_topos", "webui", "weir"),
)
MOST_LINES = 400

COMMON = {"openflow_ext.settings", "openflow_ext.paths"}
LIBBPF = "openflow_ext.switch.libbpf"  # the binding: nothing of Weir's is in it
CONTROLLER = COMMON | {"openflow_ext.wire", "openflow_ext.engine", "openflow_ext.registry", "flowdb"}

# What a package, or a module that is more bound than its package, may import of ours besides itself.
MAY_IMPORT = {
    "openflow_ext.wire": set(),
    "openflow_ext.engine": set(),
    "openflow_ext.settings": set(),
    "openflow_ext.paths": set(),
    "openflow_ext.registry": {"openflow_ext.wire", "openflow_ext.engine"},
    "openflow_ext.switch": COMMON | {"openflow_ext.wire", "openflow_ext.registry"},
    "flowdb": COMMON,
    "fabric_app": CONTROLLER,
    "telemetry_app": CONTROLLER,
    "sdtcp_app": CONTROLLER | {"fabric_app", "telemetry_app"},
    "sccp_app": CONTROLLER | {"fabric_app", "telemetry_app"},
    "transports": COMMON | {LIBBPF},
    "mininet_topos": COMMON | {LIBBPF},
    "webui": COMMON | {"flowdb"},
    "weir": set(PACKAGES),
}

NOT_IN_A_CORE = (
    *("eventlet", "os_ken", "ryu", "openflow_ext.engine", "openflow_ext.registry"),
    *("asyncio", "requests", "select", "selectors", "socket", "ssl", "subprocess"),
    *("datetime", "random", "sched", "time"),
    *("multiprocessing", "queue", "signal", "threading"),
    *("sqlalchemy", "sqlite3"),
    *("click", "ctypes", "logging", "os"),
)


def modules() -> dict[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in sorted((PROJECT / package).rglob("*.py")):
            parts = path.relative_to(PROJECT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def within(name: str, ancestor: str) -> bool:
    return name == ancestor or name.startswith(f"{ancestor}.")


@cache
def imports(module: str) -> frozenset[str]:
    """Every module that `module` names in an import, at whatever depth; ours down to the module."""
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            names = {f"{source}.{alias.name}" for alias in node.names}
            submodules = {name for name in names if name in MODULES}
            found |= submodules
            if names - submodules:
                found.add(source)
    return frozenset(found)


def is_ours(name: str) -> bool:
    return name.split(".")[0] in PACKAGES


def public(module: str) -> str:
    """wire.py and registry.py keep parts of themselves in private modules; they count as those."""
    return re.sub(r"^(openflow_ext)\._(wire|registry)_\w+$", r"\1.\2", module)


def rule_of(module: str) -> str:
    return max((name for name in MAY_IMPORT if within(public(module), name)), key=len, default="openflow_ext")


def may_import(module: str, imported: str) -> bool:
    rule = rule_of(module)
    return any(within(public(imported), name) for name in {rule, *MAY_IMPORT.get(rule, ())})


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_run_downwards(module: str) -> None:
    wrong = {name for name in imports(module) if is_ours(name) and not may_import(module, name)}
    assert not wrong, f"{module} may not import {', '.join(sorted(wrong))} (its rule: {rule_of(module)})"


@pytest.mark.parametrize("core", [name for name in sorted(MODULES) if name.endswith(".core")])
def test_a_core_is_pure(core: str) -> None:
    """Neither a core nor anything of ours that it imports touches the world."""
    waiting, seen = [core], set()
    while waiting:
        module = waiting.pop()
        seen.add(module)
        wrong = {name for name in imports(module) if any(within(name, bad) for bad in NOT_IN_A_CORE)}
        assert not wrong, f"{core} reaches {', '.join(sorted(wrong))} through {module}"
        parents = {name.rpartition(".")[0] for name in imports(module)}
        waiting += [name for name in imports(module) | parents if name in MODULES and name not in seen]


def test_nothing_imports_the_command_line() -> None:
    users = {module for module in MODULES for name in imports(module) if within(name, "weir")}
    assert all(within(module, "weir") for module in users)


def sources() -> list[Path]:
    roots = [PROJECT / name for name in (*PACKAGES, "tests", "tools")]
    return sorted(path for root in roots for path in root.rglob("*") if path.suffix in {".py", ".c", ".h"})


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PROJECT)))
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize(
    "package", [*PACKAGES, "openflow_ext/switch", "openflow_ext/bpf", "mininet_topos/results"]
)
def test_a_package_says_what_it_is(package: str) -> None:
    assert (PROJECT / package / "README.md").is_file()
