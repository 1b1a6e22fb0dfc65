"""The configuration file: one TOML file, one section for each package.

``$WEIR_CONFIG`` names the file. If the variable is not set, ``MACHINE_FILE`` is the file, if it exists: so an
operator's commands have the settings of the services. The defaults apply without a file, if the variable
is empty, or if the file lacks a section. A package defines its model, a subclass of Section, in its own
``config.py`` and calls ``load``.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

VARIABLE = "WEIR_CONFIG"
MACHINE_FILE = "/etc/weir/weir.toml"
"""The file that the systemd units name."""


class SettingsError(Exception):
    """The configuration is invalid. The message names the file, the section and the key, and what to do."""


class Section(BaseModel):
    """The base of every section's model. It is frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Model = TypeVar("Model", bound=Section)


def config_file() -> str:
    """The path of the configuration file; "" if the defaults apply.

    A file that exists but cannot be read is named, too: with the defaults instead, a command would act on
    another database.
    """
    named = os.environ.get(VARIABLE)
    if named is not None:
        return named
    try:
        os.stat(MACHINE_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError:
        pass  # ``read`` reports the reason
    return MACHINE_FILE


def load(section: str, model: type[Model]) -> Model:
    """The section ``[section]`` of the configuration file, or the defaults. Raises SettingsError."""
    return check(section, model, read(), config_file() or "the defaults")


def load_or_exit(section: str, model: type[Model]) -> Model:
    """``load`` at the start of an app. An invalid configuration ends the process with only its message."""
    try:
        return load(section, model)
    except SettingsError as error:
        raise SystemExit(f"weir: {error}") from error


class Watch(Generic[Model]):
    """A section of the configuration file, for a program that follows changes of the file."""

    def __init__(self, section: str, model: type[Model]) -> None:
        self._section = section
        self._model = model
        self._seen = _identity()

    def news(self) -> Model | None:
        """The section if the file has changed since the last call, else None. Raises SettingsError."""
        now = _identity()
        if now == self._seen:
            return None
        self._seen = now
        return load(self._section, self._model)


def _identity() -> tuple[int, ...]:
    """A value that changes with the file, whether the file is rewritten or replaced."""
    try:
        status = os.stat(config_file())
    except OSError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_size


def read() -> dict[str, Any]:
    """The whole configuration file; empty if the defaults apply. Raises SettingsError."""
    path = config_file()
    if not path:
        return {}
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        remedy = (
            f"correct or unset {VARIABLE}"
            if VARIABLE in os.environ
            else f"run this as root or as a member of the file's group, or name another file in {VARIABLE}"
        )
        raise SettingsError(f"{path}: cannot be read ({error.strerror}); {remedy}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: is not TOML: {error}") from error


def check(section: str, model: type[Model], document: Mapping[str, Any], origin: str) -> Model:
    """The section of a ``document`` that has been read. ``origin`` names the document in errors.

    Raises SettingsError.
    """
    values = document.get(section, {})
    if not isinstance(values, dict):
        raise SettingsError(f"{origin}: {section} is not a section; write [{section}] on a line of its own")
    try:
        return model(**values)
    except ValidationError as error:
        problems = [_problem(model, problem) for problem in error.errors(include_url=False)]
        raise SettingsError("\n".join(f"{origin}: [{section}] {problem}" for problem in problems)) from error


def _problem(model: type[Section], problem: Any) -> str:
    """One problem as one line. It omits the value, which may contain a secret such as a database password."""
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = sorted(_model_at(model, problem["loc"][:-1]).model_fields)
        return f"{key}: unknown key; remove it or use one of: {', '.join(known)}"
    if problem["type"] == "missing":
        return f"{key}: missing; add it"
    return f"{key or 'the section'}: {problem['msg']}; correct it or remove it for the default"


def _model_at(model: type[Section], location: tuple[str | int, ...]) -> type[Section]:
    """The model of the nested section at a problem's location."""
    for part in location:
        if isinstance(part, str) and part in model.model_fields:
            model = _section_in(model.model_fields[part].annotation) or model
    return model


def _section_in(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((found for part in get_args(annotation) if (found := _section_in(part))), None)
