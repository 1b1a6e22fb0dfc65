"""The structure: imports run downwards, cores are pure, functions are short."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.source_tree import PACKAGES, parsed, python_sources, relative
from weir_base.paths import PROJECT

LONGEST_FUNCTION_LINES = 60

COMMON = {"weir_base"}
LIBBPF = "libbpf_cffi"
SWITCH_BASE = {"openflow_ext.switch.config", "openflow_ext.switch.errors"}
CONTROLLER = (
    COMMON | {"app_base"} | {"openflow_ext.wire", "openflow_ext.engine", "openflow_ext.registry", "flowdb"}
)

# The lab: imports run downwards in this order. The runner and the results share only the raw records.
LAB_SHARED = COMMON | {"mininet_topos.errors", "mininet_topos.plain_values"}
LAB_DESCRIPTION = LAB_SHARED | {
    "mininet_topos.topo",
    "mininet_topos.machine",
    "mininet_topos.network",
    "mininet_topos.workloads",
    "mininet_topos.experiments",
}
LAB = {
    "mininet_topos": {"mininet_topos"},
    "mininet_topos.errors": set(),
    "mininet_topos.plain_values": {"mininet_topos.errors"},
    "mininet_topos.mn_switch": set(),
    "mininet_topos.topo": set(),
    "mininet_topos.machine": LAB_SHARED,
    "mininet_topos.workloads": LAB_SHARED,
    "mininet_topos.network": LAB_SHARED | {"mininet_topos.topo", "mininet_topos.machine"},
    "mininet_topos.experiments": LAB_DESCRIPTION,
    "mininet_topos.records": LAB_DESCRIPTION,
    "mininet_topos.measurement": LAB_DESCRIPTION | {"mininet_topos.records", LIBBPF},
    "mininet_topos.running": LAB_DESCRIPTION | {"mininet_topos.records", "mininet_topos.measurement"},
    "mininet_topos.results": LAB_DESCRIPTION | {"mininet_topos.records"},
    "mininet_topos.cli": LAB_SHARED | {"mininet_topos", LIBBPF},
}

# What a package, or a module that is more bound than its package, may import of ours besides itself.
MAY_IMPORT = {
    "openflow_ext.wire": COMMON,
    "openflow_ext.engine": set(),
    "weir_base": set(),
    "libbpf_cffi": set(),
    "openflow_ext.sessions": COMMON | {"openflow_ext.native_threads", "openflow_ext.engine"},
    "openflow_ext.message_check": {"openflow_ext.wire"},
    "openflow_ext.native_threads": {"openflow_ext.engine"},
    "openflow_ext.registry": COMMON
    | {"openflow_ext.registry_classes", "openflow_ext.message_check", "openflow_ext.sessions"}
    | {"openflow_ext.native_threads", "openflow_ext.wire", "openflow_ext.engine"},
    "openflow_ext.registry_classes": {"openflow_ext.wire"},
    "openflow_ext.switch": COMMON | {LIBBPF, "openflow_ext.wire", "openflow_ext.registry"},
    "openflow_ext.switch.dataplane": COMMON | {LIBBPF},
    "openflow_ext.switch.ovs": COMMON | SWITCH_BASE | {"openflow_ext.wire", "openflow_ext.switch.dataplane"},
    "openflow_ext.switch.openflow": COMMON
    | SWITCH_BASE
    | {"openflow_ext.wire", "openflow_ext.switch.dataplane", "openflow_ext.switch.ovs"},
    "flowdb": COMMON,
    "app_base": CONTROLLER,
    "fabric_app": CONTROLLER,
    "telemetry_app": CONTROLLER,
    "sdtcp_app": CONTROLLER | {"fabric_app", "telemetry_app"},
    "sccp_app": CONTROLLER | {"fabric_app", "telemetry_app"},
    "transports": COMMON | {LIBBPF},
    "dcudp": COMMON,
    **LAB,
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
    for node in ast.walk(parsed(path)):
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


def rule_of(module: str) -> str:
    return max((name for name in MAY_IMPORT if within(module, name)), key=len, default="openflow_ext")


def may_import(module: str, imported: str) -> bool:
    rule = rule_of(module)
    return any(within(imported, name) for name in {rule, *MAY_IMPORT.get(rule, ())})


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_run_downwards(module: str) -> None:
    wrong = {name for name in imports(module) if is_ours(name) and not may_import(module, name)}
    assert not wrong, f"{module} may not import {', '.join(sorted(wrong))} (its rule: {rule_of(module)})"


def test_each_part_of_the_lab_has_a_rule() -> None:
    parts = {".".join(name.split(".")[:2]) for name in MODULES if name.startswith("mininet_topos.")}
    assert parts == set(LAB) - {"mininet_topos"}


def test_the_runner_and_the_results_of_the_lab_do_not_import_each_other() -> None:
    for importer, imported in (("running", "results"), ("results", "running")):
        assert not may_import(f"mininet_topos.{importer}", f"mininet_topos.{imported}")


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


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Every function of a Python file with its length in lines, decorators and docstring left out."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            yield node.name, (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_functions_are_short() -> None:
    long = {
        f"{relative(path)}: {name}": lines
        for path in python_sources()
        for name, lines in functions(path)
        if lines > LONGEST_FUNCTION_LINES
    }
    assert not long, f"longer than {LONGEST_FUNCTION_LINES} lines"


def children(package: str) -> dict[str, set[str]]:
    """The modules and sub-packages directly below a package, each with the siblings that it imports."""
    depth = package.count(".") + 2
    names = {".".join(name.split(".")[:depth]) for name in MODULES if name.startswith(f"{package}.")}
    found: dict[str, set[str]] = {name: set() for name in names}
    for module in MODULES:
        child = ".".join(module.split(".")[:depth])
        if child in names:
            targets = {".".join(name.split(".")[:depth]) for name in imports(module)}
            found[child] |= (targets & names) - {child}
    return found


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """The nodes that edges lead to from ``start``, which is among them only if it is on a cycle."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for target in graph[waiting.pop()] - found:
            found.add(target)
            waiting.append(target)
    return found


def on_a_cycle(graph: dict[str, set[str]]) -> list[str]:
    return sorted(name for name in graph if name in reachable(graph, name))


PARENTS = sorted({name.rpartition(".")[0] for name in MODULES if "." in name})


@pytest.mark.parametrize("package", PARENTS)
def test_sub_packages_and_modules_do_not_import_each_other_in_a_cycle(package: str) -> None:
    graph = children(package)
    cycle = on_a_cycle(graph)
    assert not cycle, {name: sorted(graph[name].intersection(cycle)) for name in cycle}


def test_packages_do_not_import_each_other_in_a_cycle() -> None:
    graph = {
        package: {
            name.split(".")[0] for module in MODULES if within(module, package) for name in imports(module)
        }
        & set(PACKAGES) - {package}
        for package in PACKAGES
    }
    assert on_a_cycle(graph) == []
