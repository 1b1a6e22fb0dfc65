"""What a controller app declares: its settings, its metrics and, if it has one, its stage of the pipeline.

A stage is the flow table of one app. A package declares its stage in one place and names it in an entry point
of the group ``weir.stages``. The settings of an app without a stage are named in the group ``weir.settings``.
Nothing else has to know the package: ``installed_stages`` and ``settings_models`` find it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from itertools import combinations
from typing import Literal

from app_base.pipeline import COOKIE_MASK, FABRIC_COOKIE, FIRST_TABLES, FURTHER_TABLES
from weir_base.settings import Section

STAGES_GROUP = "weir.stages"
SETTINGS_GROUP = "weir.settings"


class StageError(Exception):
    """A declaration that cannot be used; the message names it and says what to change."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A Prometheus metric of an app. Its full name is ``weir_<app>_<name>``.

    ``buckets`` are the upper bounds of a histogram, in the metric's unit.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Literal["counter", "gauge", "histogram"] = "counter"
    buckets: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """An app with settings. ``name`` is also the name of its section and the prefix of its metrics."""

    name: str
    settings: type[Section]
    metrics: tuple[Metric, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Stage(Declaration):
    """An app with a flow table of its own, in front of the fabric's tables.

    ``app`` is the module that ``ryu-manager`` runs. ``table`` is one of FIRST_TABLES or FURTHER_TABLES; a
    packet passes the stages in the order of their tables. ``cookie`` has its lower half empty; all entries
    of the stage carry its upper half. Raises StageError.
    """

    table: int
    cookie: int
    app: str

    def __post_init__(self) -> None:
        if self.table not in FIRST_TABLES and self.table not in FURTHER_TABLES:
            further = f"{FURTHER_TABLES.start} to {FURTHER_TABLES.stop - 1}"
            raise StageError(f"stage {self.name}: table {self.table} is not free; use one of {further}")
        if not self.cookie & COOKIE_MASK or self.cookie & ~COOKIE_MASK or self.cookie >> 64:
            text = f"stage {self.name}: cookie {self.cookie:#x} must have only its upper 32 bits set"
            raise StageError(f"{text}, for example 0x1234_5678_0000_0000")


def installed_stages() -> tuple[Stage, ...]:
    """The stages of all installed packages, in the order of their tables.

    Raises StageError if one cannot be loaded or collides with another.
    """
    found: list[Stage] = []
    for point in entry_points(group=STAGES_GROUP):
        try:
            stage = point.load()
        except Exception as error:  # the module of another package may fail in any way
            raise StageError(f"stage {point.name} ({point.value}) cannot be loaded: {error}") from error
        if not isinstance(stage, Stage):
            raise StageError(f"stage {point.name}: {point.value} is not an app_base.stage.Stage")
        found.append(stage)
    check_collisions(found, entry_points(group=SETTINGS_GROUP).names)
    return tuple(sorted(found, key=lambda stage: stage.table))


def check_collisions(stages: Iterable[Stage], section_names: Iterable[str] = ()) -> None:
    """Raises StageError, with both names, if stages share a name, table or cookie.

    ``section_names`` are the sections of packages without a stage: a stage's section must differ from them.
    """
    stages = sorted(stages, key=lambda stage: (stage.name, stage.app))
    section_names = set(section_names)
    for stage in stages:
        if stage.name in section_names:
            raise StageError(
                f"stage {stage.name} ({stage.app}): another package has the section [{stage.name}]; rename it"
            )
        if stage.cookie == FABRIC_COOKIE:
            raise StageError(f"stage {stage.name} ({stage.app}) has the cookie of fabric_app; choose another")
    for one, other in combinations(stages, 2):
        pair = f"stages {one.name} ({one.app}) and {other.name} ({other.app})"
        if one.name == other.name:
            raise StageError(f"{pair} have the same name and section; rename or uninstall one of them")
        if one.table == other.table:
            raise StageError(f"{pair} both have table {one.table}; move or uninstall one of them")
        if one.cookie == other.cookie:
            raise StageError(f"{pair} both have cookie {one.cookie:#x}; change or uninstall one of them")


def settings_models() -> dict[str, type[Section]]:
    """The model of every section of the configuration file, by the section's name.

    Raises StageError if one cannot be loaded, and as ``installed_stages``.
    """
    models: dict[str, type[Section]] = {}
    for point in entry_points(group=SETTINGS_GROUP):
        try:
            models[point.name] = point.load()
        except Exception as error:  # the module of another package may fail in any way
            raise StageError(f"section [{point.name}] ({point.value}) cannot be loaded: {error}") from error
    models |= {stage.name: stage.settings for stage in installed_stages()}
    return dict(sorted(models.items()))
