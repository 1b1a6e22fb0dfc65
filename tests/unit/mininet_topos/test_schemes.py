"""Schemes: their declarations by packages, their styles, and settings as TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from fabric_app.config import FabricSettings
from mininet_topos.cli import lab
from mininet_topos.errors import BadExperiment
from mininet_topos.experiments import schemes as module
from mininet_topos.experiments.experiment import Case, udp_bps
from mininet_topos.experiments.schemes import Scheme, scheme_of, schemes, style_of, to_toml
from openflow_ext.switch.config import SwitchSettings
from sccp_app.config import SccpSettings
from sccp_app.core import Addition
from sdtcp_app.config import SdtcpSettings
from telemetry_app.config import TelemetrySettings
from tests.support.lab.examples import one_case

SETTINGS = {
    "sdtcp": SdtcpSettings,
    "sccp": SccpSettings,
    "switch": SwitchSettings,
    "fabric": FabricSettings,
    "telemetry": TelemetrySettings,
}
LONG = Case("L", "a long flow", background=1, duration_s=2.0)
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


def test_the_lab_runs_the_default_policy_of_sdtcp_except_as_published() -> None:
    policies = {
        name: scheme.settings["sdtcp"].get("policy")
        for name, scheme in schemes().items()
        if "sdtcp" in scheme.settings
    }
    assert policies.pop("sdtcp-paper") == "longest-lived"
    assert set(policies.values()) == {None}


@pytest.mark.parametrize("name", sorted(schemes()))
def test_the_settings_of_a_scheme_are_settings(name: str) -> None:
    """The programs of a scheme would refuse to start otherwise."""
    configured = one_case().configured(scheme_of(name))
    for section, values in tomllib.loads(to_toml(configured.settings)).items():
        SETTINGS[section](**values)


def test_the_scheme_as_published_has_no_addition_of_weir() -> None:
    """Every switch of [sccp] is off, and N_i is the integer of the packets."""
    settings = schemes()["sccp-paper"].settings
    assert settings["switch"] == {"count": "simple"}
    sccp = SccpSettings(**settings["sccp"])  # type: ignore[arg-type]
    assert not sccp.counts_resets
    assert not sccp.yields_to_long_rtt
    policy = sccp.policy
    parts_of_fitting = {Addition.FINER_SCALE, Addition.PSH}
    assert policy.omits | parts_of_fitting == set(Addition)
    assert (policy.corrects_allowance, policy.common_rtt_us, policy.least_window_bytes) == (False, 600, 0)


def test_an_ablation_is_the_default_without_one_addition() -> None:
    omitted = []
    for name in ("sccp-no-fit", "sccp-no-scale", "sccp-no-psh", "sccp-no-active", "sccp-no-crowd"):
        policy = SccpSettings(**schemes()[name].settings["sccp"]).policy  # type: ignore[arg-type]
        (addition,) = policy.omits
        omitted.append(addition)
        assert replace(policy, omits=frozenset()) == SccpSettings().policy
    assert omitted == [addition for addition in Addition if addition is not Addition.TWO_SEGMENTS]
    without_allowance = SccpSettings(**schemes()["sccp"].settings["sccp"]).policy  # type: ignore[arg-type]
    assert without_allowance == replace(SccpSettings().policy, corrects_allowance=False)


def test_a_scheme_decides_the_mode_of_the_fabric_before_the_experiment_does() -> None:
    experiment = one_case(fabric_mode="proactive")
    assert experiment.configured(scheme_of("sdtcp-paper")).settings["fabric"] == {"mode": "reactive"}
    assert experiment.configured(scheme_of("sdtcp")).settings["fabric"] == {"mode": "proactive"}


def test_every_scheme_has_its_own_label_and_colour() -> None:
    styles = [scheme.style for scheme in schemes().values()]
    assert len({style.label for style in styles}) == len({style.colour for style in styles}) == len(styles)


def test_the_alternatives_that_people_use_are_schemes_by_name() -> None:
    wanted = {"rto5", "rto1", "cubic", "bbr", "ecn", "dctcp-k10", "dctcp-k20", "dctcp-k65", "iw2"}
    assert wanted | {"static-window", "sdtcp+rto5", "sccp+rto5"} <= set(schemes())
    for name in ("sdtcp", "sccp"):
        with_rto5 = schemes()[f"{name}+rto5"]
        assert with_rto5 == replace(schemes()[name], name=with_rto5.name, style=with_rto5.style, min_rto_ms=5)


@pytest.mark.parametrize(("name", "pkts"), [("dctcp", 30), ("dctcp-k10", 10), ("dctcp-k65", 65), ("ecn", 30)])
def test_a_scheme_may_fix_where_the_switch_marks(name: str, pkts: int) -> None:
    configured = one_case(mark_pkts=30).configured(scheme_of(name))
    assert configured.settings["switch"] == {"mark_pkts": pkts}


def test_dcudp_is_marked_by_its_ramp_whatever_the_experiment_says() -> None:
    for name in ("dcudp", "reno+dcudp", "dctcp+dcudp"):
        marks = one_case(cases=(LONG,), mark_pkts=30).configured(scheme_of(name)).settings["switch"]
        assert marks == {"mark_pkts": 1, "mark_all_pkts": 15}


def test_queries_are_sent_over_tcp_only() -> None:
    one_case(schemes=("plain", "dcudp"), cases=(LONG,))
    with pytest.raises(BadExperiment, match="scheme dcudp: queries are sent over TCP only; give its cases"):
        one_case(schemes=("plain", "dcudp"))


def test_an_application_offers_the_bottlenecks_rate_unless_the_experiment_states_another() -> None:
    assert one_case().offered_mbps == 100
    assert one_case(source_mbps=160).offered_mbps == 160
    assert udp_bps(100) == 97_225_892  # 1,472 of 1,514 bytes
    for wrong in ({"source_mbps": 0.5}, {"sample_ms": 9}):
        with pytest.raises(BadExperiment, match=f"{next(iter(wrong))} is"):
            one_case(**wrong)


@pytest.mark.parametrize(
    ("workers", "background", "delay_ms", "segments"),
    [(40, 0, 0, 2), (30, 10, 0, 2), (20, 0, 0, 4), (400, 0, 0, 1), (40, 0, 15, 8)],
)
def test_sized_windows_of_all_senders_fit_into_queue_and_link(
    workers: int, background: int, delay_ms: float, segments: int
) -> None:
    case = Case("A", "", workers, 32_000, background, 1)
    experiment = one_case(cases=(case, replace(case, name="B", workers=1)), delay_ms=delay_ms)
    assert experiment.configured(scheme_of("static-window")).window_bytes == segments * 1448
    assert experiment.configured(scheme_of("plain")).window_bytes == 0


def test_a_scheme_with_a_tag_is_the_same_under_another_name() -> None:
    own, other = scheme_of("sccp"), scheme_of("sccp@2")
    assert other == replace(own, name="sccp@2", style=other.style)
    assert style_of("sccp@2").label == "SCCP @2"
    assert one_case(schemes=("plain", "plain@2")).schemes == ("plain", "plain@2")


@pytest.mark.parametrize("name", ["nosuch@2", "plain@", "plain@../x", "plain@a@b", "@2"])
def test_a_bad_tag_is_refused(name: str) -> None:
    with pytest.raises(BadExperiment, match="no scheme is called"):
        scheme_of(name)


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


def test_a_scheme_names_who_gives_n_to_its_senders(declared: dict[str, Any]) -> None:
    by_source = {name: scheme.flows_from for name, scheme in schemes().items() if scheme.paced}
    assert by_source["ap-reno"] == "lab"
    assert by_source["ap-reno-host"] == "host"
    declared["mine"] = MINE | {"flows_from": "nobody"}
    schemes.cache_clear()
    with pytest.raises(BadExperiment, match="flows_from is 'nobody'; want one of lab, host, network"):
        schemes()
