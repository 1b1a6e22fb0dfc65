"""Dataclasses from the plain values of a TOML or JSON file, with errors that name the key and the remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from mininet_topos.errors import BadExperiment

Kind = TypeVar("Kind")

_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text in quotes",
    dict: "a table",
    tuple: "a list",
}


def first_twice(names: Sequence[str]) -> str:
    """Return the first name that occurs a second time; an empty text if none does."""
    return next((name for at, name in enumerate(names) if name in names[:at]), "")


def from_plain(kind: type[Kind], values: Mapping[str, Any], where: str) -> Kind:
    """Return a dataclass of `kind` with the given values. `where` names the table in error messages.

    Raises BadExperiment if a key is unknown or missing, or if a value has the wrong type.
    """
    if not isinstance(values, Mapping):
        raise BadExperiment(f"{where}: want a table of keys and values, not {values!r}")
    of_kind: tuple[Field[Any], ...] = fields(kind)  # type: ignore[arg-type]  # `kind` is a dataclass
    known = {one.name: one for one in of_kind}
    for name in values:
        if name not in known:
            raise BadExperiment(f"{where}: unknown key {name!r}; {_proposal(name, list(known))}")
    for name, one in known.items():
        if name not in values and one.default is MISSING and one.default_factory is MISSING:
            raise BadExperiment(f"{where}: the key {name!r} is missing; add it")
    hints = get_type_hints(kind)
    for name, value in values.items():
        if not _fits(value, hints[name]):
            raise BadExperiment(f"{where}: {name} is {value!r}; want {_words(hints[name])}")
    return kind(**values)


def _proposal(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(known)}"


def _options(hint: Any) -> tuple[tuple[Any, Any], ...]:
    """Return the types that a hint allows, each with the hint of its elements; Any for no hint."""
    alternatives = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return tuple((get_origin(one) or one, _of_elements(one)) for one in alternatives)


def _of_elements(hint: Any) -> Any:
    """Return the hint of a table's values or of the elements of a list of any length; Any for others."""
    kind, arguments = get_origin(hint), get_args(hint)
    if kind is dict:
        return arguments[1]
    return arguments[0] if kind is tuple and arguments[1:] == (...,) else Any


def _fits(value: Any, hint: Any) -> bool:
    for one, of_elements in _options(hint):
        if one in (int, float):
            number = (int,) if one is int else (int, float)
            if isinstance(value, number) and not isinstance(value, bool):
                return True
        elif one is tuple:
            if isinstance(value, list | tuple) and all(_fits(element, of_elements) for element in value):
                return True
        elif one is dict:
            if isinstance(value, dict) and all(_fits(element, of_elements) for element in value.values()):
                return True
        elif one not in (bool, str, NoneType) or isinstance(value, one):
            return True
    return False


def _words(hint: Any) -> str:
    return " or ".join(
        _WORDS[one] + (f", each value {words}" if (words := _words(of_elements)) else "")
        for one, of_elements in _options(hint)
        if one in _WORDS
    )
