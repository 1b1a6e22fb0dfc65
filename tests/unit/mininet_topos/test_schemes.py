"""Schemes: their declarations by packages, their styles, and settings as TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from mininet_topos.cli import lab
from mininet_topos.errors import BadExperiment
from mininet_topos.experiments import schemes as module
from mininet_topos.experiments.schemes import Scheme, schemes, style_of, to_toml

STYLE = {"label": "Mine", "colour": "#123456"}
MINE: dict[str, Any] = {
    "style": STYLE,
    "apps": ["mine.app"],
    "extended": True,
    "settings": {"mine": {"k": 1}},
}

_text = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]))


class Declared(EntryPoint):
    """An entry point whose value is given by the test."""

    def load(self) -> Any:
        return VALUES[self.name]


VALUES: dict[str, Any] = {}


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A package declares the schemes that the test puts into this dictionary."""

    def entry_points(group: str) -> list[EntryPoint]:
        return [Declared(name, "mine.lab_schemes:MINE", group) for name in VALUES]

    monkeypatch.setattr(module, "entry_points", entry_points)
    schemes.cache_clear()
    yield VALUES
    VALUES.clear()
    schemes.cache_clear()


def test_the_controllers_of_the_project_declare_their_schemes() -> None:
    assert {"plain", "dctcp", "sdtcp", "sccp", "sccp-measured"} <= set(schemes())
    assert schemes()["sdtcp"].apps == ("fabric_app.app", "sdtcp_app.app")
    assert schemes()["sccp-measured"].settings == {"sccp": {"common_rtt": "measured"}}


def test_every_scheme_has_its_own_label_and_colour() -> None:
    styles = [scheme.style for scheme in schemes().values()]
    assert len({style.label for style in styles}) == len({style.colour for style in styles}) == len(styles)


def test_another_package_declares_a_scheme(declared: dict[str, Any]) -> None:
    declared["mine"] = MINE
    assert schemes()["mine"] == Scheme(
        "mine", style_of("mine"), apps=("mine.app",), extended=True, settings={"mine": {"k": 1}}
    )
    assert style_of("mine").label == "Mine"


def test_a_scheme_that_is_no_longer_installed_keeps_its_name_in_plots() -> None:
    assert style_of("gone").label == "gone"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("plain", MINE, "two packages declare the scheme plain"),
        ("mine", 3, "want a mapping with the key 'style'"),
        ("mine", MINE | {"app": "x"}, "unknown key 'app'; did you mean 'apps'?"),
        ("mine", MINE | {"style": {"label": "x"}}, "style: the key 'colour' is missing"),
        ("mine", MINE | {"transports": ["nosuch"]}, "no baseline is called nosuch: use reno, cubic"),
    ],
)
def test_a_bad_declaration_is_refused_with_its_name(
    declared: dict[str, Any], name: str, value: object, message: str
) -> None:
    declared[name] = value
    with pytest.raises(BadExperiment, match=message):
        schemes()


def test_a_bad_declaration_is_one_line_on_the_terminal(declared: dict[str, Any]) -> None:
    declared["mine"] = MINE | {"app": "x"}
    done = CliRunner().invoke(lab, ["schemes"])
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("weir lab: scheme mine (mine.lab_schemes:MINE): unknown key 'app'")


def test_schemes_are_listed_with_their_programs() -> None:
    shown = CliRunner().invoke(lab, ["schemes"], env={"COLUMNS": "80"}).stdout
    assert "sdtcp_app.app" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,9}", fullmatch=True), _text | st.integers(-9, 9**9) | st.booleans()
    )
)
def test_settings_written_as_toml_read_back(section: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml({"sdtcp": section})) == {"sdtcp": section}
