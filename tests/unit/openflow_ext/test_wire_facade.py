"""``openflow_ext.wire`` offers exactly the names that its modules list in ``__all__``."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

from openflow_ext import wire

MODULES = [
    importlib.import_module(f"openflow_ext.wire.{module.name}")
    for module in pkgutil.iter_modules(wire.__path__)
]
LISTED = [name for module in MODULES for name in getattr(module, "__all__", ())]


def own_names(module: ModuleType) -> set[str]:
    """The names that a module defines or imports from outside the package."""
    names: set[str] = set()
    for node in ast.parse(Path(str(module.__file__)).read_text()).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.ImportFrom(module="weir_base.port_counters", names=imported):
                names |= {alias.name for alias in imported}
    return names


def test_the_facade_offers_exactly_the_listed_names() -> None:
    offered = {
        name
        for name, value in vars(wire).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert offered == set(LISTED)


def test_no_name_is_listed_twice() -> None:
    assert len(LISTED) == len(set(LISTED))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_a_module_lists_no_name_of_another_module(module: ModuleType) -> None:
    assert set(getattr(module, "__all__", ())) <= own_names(module)


@pytest.mark.parametrize("name", ["BufAlarm", "OFPP_ANY", "WireError", "encode_message", "ModWindow"])
def test_the_facade_offers_each_kind_of_name(name: str) -> None:
    assert hasattr(wire, name)


def test_every_experimenter_message_has_a_number_of_its_own() -> None:
    numbers = [message.exp_type for message in wire.EXPERIMENTER_MESSAGES.values()]
    assert len(numbers) == len(set(numbers))
