"""Policies: which flow is slowed first, which flow never is, and settings that are refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_base.settings import RuleSettings
from flowdb.flow import NS_PER_S, FiveTuple, Flow, FlowState, Hop, PortKey
from flowdb.index import FlowIndex
from sdtcp_app.config import PrioritySettings, ScoreSettings, SdtcpSettings
from sdtcp_app.policies import PolicyOptions, Rule, policy_names, score
from weir_base import settings
from weir_base.paths import PROJECT

PORT = PortKey(1, 2)


def make_flow(number, **changed):
    key = FiveTuple(f"10.0.0.{number}", "10.0.1.1", 1000 + number, 80)
    return replace(Flow(number, key, (Hop(1, 1, 2),), number * NS_PER_S, 1460, 9), **changed)


FLOWS = [
    make_flow(1, sent_bytes=10**6, rate_bps=10**6, state=FlowState.IDLE),
    make_flow(2, sent_bytes=10**6, rate_bps=10**9),
    make_flow(3, sent_bytes=10**9, rate_bps=10**6),
    make_flow(4, receiver_wscale=None),
]


def order(flows=FLOWS, protected=(), **given):
    index = FlowIndex(SdtcpSettings(**given).rank(set(protected)))
    for flow in flows:
        index.add(flow)
    return [flow.id for flow in index.candidates(PORT, 99)]


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ("longest-lived", [1, 2, 3, 4]),
        ("longest-lived-active", [2, 3, 1, 4]),
        ("largest-volume", [3, 2, 1, 4]),
        ("highest-rate", [2, 3, 1, 4]),
        ("priority", [2, 3, 1, 4]),
    ],
)
def test_idle_flows_and_flows_of_unknown_scale_come_last(policy, wanted):
    assert order(policy=policy) == wanted


def test_the_default_policy_is_longest_lived_active():
    assert SdtcpSettings().policy == "longest-lived-active"


def test_priority_weighs_age_volume_rate_and_rules():
    assert order(policy="priority", priority=PrioritySettings(per_s=0, per_mb=1))[0] == 3
    assert order(policy="priority", priority=PrioritySettings(per_s=0, per_mbps=1))[0] == 2
    backup = ScoreSettings(src="10.0.0.3/32", dst_port=80, score=50)
    assert order(policy="priority", priority=PrioritySettings(rules=(backup,)))[0] == 3
    spared = ScoreSettings(src="10.0.0.2/32", score=-50)
    assert order(policy="priority", priority=PrioritySettings(rules=(spared,))) == [3, 2, 1, 4]


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**12), st.floats(-100, 100))
def test_the_difference_of_two_scores_is_constant(opened, other, sent, per_s):
    options = PolicyOptions(per_s, 2.0, 0.5, (Rule(dst_port=80, score=3.0),))
    one, two = make_flow(1, opened_ns=opened), make_flow(2, opened_ns=other, sent_bytes=sent)
    early, late = (score(options, one, at) - score(options, two, at) for at in (10**9, 10**12))
    assert early == pytest.approx(late, abs=1e-3)


@pytest.mark.parametrize("policy", policy_names())
def test_no_policy_ranks_protected_flows(policy):
    rule = RuleSettings(dst="10.0.0.2/32")  # the other direction of flow 2
    assert set(order(policy=policy, protect=(rule,), protected=[FLOWS[2].key.reverse])) == {1, 4}


def my_policy(_options):
    return lambda flow: (-flow.id,)


def broken_policy(_options):
    return lambda flow: flow.id // 0


def flat_policy(_options):
    return lambda flow: flow.id


def test_a_policy_is_named_by_module_and_function():
    assert order(policy=f"{__name__}:my_policy") == [3, 2, 1, 4]


def test_the_example_slows_bulk_transfers_first(monkeypatch):
    monkeypatch.syspath_prepend(PROJECT / "examples" / "bulk_first_policy")
    to_rsync = make_flow(9, key=FiveTuple("10.0.0.9", "10.0.1.1", 1009, 873))
    assert order([*FLOWS, to_rsync], policy="bulk_first_policy:bulk_first") == [9, 2, 3, 1, 4]


def test_a_policy_is_named_by_its_entry_point(monkeypatch):
    class Point:
        @staticmethod
        def load():
            return my_policy

    monkeypatch.setattr(
        "sdtcp_app.policies.entry_points", lambda group, name: [Point] if name == "mine" else []
    )
    assert order(policy="mine") == [3, 2, 1, 4]


def test_a_policy_whose_module_fails_is_named(tmp_path, monkeypatch):
    (tmp_path / "policy_with_a_typo.py").write_text("BULK_PORTS = frozenst({873})\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="'policy_with_a_typo:rank' cannot be loaded: name 'frozenst'"):
        SdtcpSettings(policy="policy_with_a_typo:rank")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('policy = "oldest"', "unknown policy 'oldest'; use one of highest-rate, largest-volume, "),
        ('policy = "no.such:thing"', "cannot be loaded: No module named 'no'"),
        (f'policy = "{__name__}:absent"', "cannot be loaded"),
        (f'policy = "{__name__}:broken_policy"', "fails on an ordinary flow: ZeroDivisionError"),
        (f'policy = "{__name__}:flat_policy"', "return a tuple or None"),
        ("protect = [{}]", "protect.0: Value error, the rule matches every flow"),
        ('protect = [{src = "10.0.0.7/8"}]', "protect.0.src"),
        ("protect = [{dst_port = 65536}]", "protect.0.dst_port"),
        ("priority.per_s = inf", "priority.per_s: Input should be a finite number"),
        (
            "priority.per_hour = 1",
            "priority.per_hour: unknown key; remove it or use one of: per_mb, per_mbps",
        ),
        ("protect = [{source = 1}]", "protect.0.source: unknown key; remove it or use one of: dst, dst_port"),
        ('mode = "quick"', "mode: Input should be 'alarm', 'reflex', 'weights' or 'observe'"),
        ("reflex_ranks = 1024", "reflex_ranks"),
        ('metrics = "9465"', "metrics"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_name(tmp_path, monkeypatch, line, said):
    file = tmp_path / "weir.toml"
    file.write_text(f"[sdtcp]\n{line}\n")
    monkeypatch.setenv("WEIR_CONFIG", str(file))
    with pytest.raises(settings.SettingsError) as refused:
        settings.load("sdtcp", SdtcpSettings)
    assert f"{file}: [sdtcp] " in str(refused.value)
    assert said in str(refused.value)
