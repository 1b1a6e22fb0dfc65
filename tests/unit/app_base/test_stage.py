"""Declarations of stages: their limits, their collisions, and the order of the tables."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from app_base.pipeline import FABRIC_COOKIE, Pipeline
from app_base.stage import Stage, StageError, check_collisions, installed_stages, settings_models
from weir_base.settings import Section

ONE = Stage(name="one", table=10, cookie=1 << 32, app="one_app.app", settings=Section)
OTHER = Stage(name="other", table=11, cookie=2 << 32, app="other_app.app", settings=Section)


def test_the_tables_and_cookies_of_weir_s_own_stages_stay_as_they_are() -> None:
    declared = [(stage.name, stage.table, stage.cookie) for stage in installed_stages()]
    assert declared[:2] == [("sdtcp", 0, 0x57454902_00000000), ("sccp", 1, 0x57454903_00000000)]


@pytest.mark.parametrize("name", ["fabric", "flowdb", "sccp", "sdtcp", "switch", "telemetry", "web"])
def test_every_section_is_found(name: str) -> None:
    assert issubclass(settings_models()[name], Section)


def test_a_section_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("mine", "no_such_package.config:MySettings", "weir.settings")
    monkeypatch.setattr("app_base.stage.entry_points", lambda group: [broken])
    with pytest.raises(StageError, match=r"section \[mine\] \(no_such_package.config:MySettings\) cannot be"):
        settings_models()


@pytest.mark.parametrize("table", [-1, 2, 9, 32, 255])
def test_a_table_of_the_fabric_or_outside_the_data_plane_is_refused(table: int) -> None:
    with pytest.raises(StageError, match=f"stage one: table {table} is not free; use one of 10 to 31"):
        replace(ONE, table=table)


@pytest.mark.parametrize("cookie", [0, 1, (1 << 32) + 1, 1 << 64])
def test_a_cookie_without_an_upper_half_of_its_own_is_refused(cookie: int) -> None:
    with pytest.raises(StageError, match=r"stage one: cookie .* upper 32 bits"):
        replace(ONE, cookie=cookie)


@pytest.mark.parametrize("shared", [{"name": "one"}, {"table": 10}, {"cookie": 1 << 32}])
def test_stages_that_share_something_are_refused_with_both_names(shared: dict[str, object]) -> None:
    other = replace(OTHER, **shared)
    with pytest.raises(StageError, match=rf"one \(one_app.app\) and {other.name} \(other_app.app\)"):
        check_collisions([ONE, other])


def test_the_fabric_s_cookie_and_other_packages_sections_are_refused() -> None:
    check_collisions([ONE, OTHER], ["fabric"])
    with pytest.raises(StageError, match=r"one .* has the cookie of fabric_app"):
        check_collisions([replace(ONE, cookie=FABRIC_COOKIE)])
    with pytest.raises(StageError, match=r"one .* another package has the section \[one\]"):
        check_collisions([ONE], ["one"])


def test_the_first_tables_are_linked_even_if_no_stage_runs() -> None:
    assert Pipeline.of([]) == Pipeline.of([1]) == Pipeline((0, 1), 2)
    assert Pipeline.of([]).links == ((0, 1), (1, 2))


def test_the_fabric_is_behind_a_further_stage() -> None:
    pipeline = Pipeline.of([20, 0, 10])
    assert pipeline.links == ((0, 1), (1, 10), (10, 20), (20, 32))
    assert pipeline.next_table(10) == 20
