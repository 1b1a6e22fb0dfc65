"""The requirements of each baseline for hosts and switch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mininet_topos.errors import Unable
from mininet_topos.experiments.baselines import BASELINES
from mininet_topos.experiments.schemes import scheme_of
from mininet_topos.network.receive_buffers import buffer_bytes
from mininet_topos.network.routes import RouteSettings, without_attributes
from mininet_topos.running import host_transports
from mininet_topos.running.host_transports import require_transports


def test_dctcp_is_the_same_on_each_machine() -> None:
    """The kernel's DCTCP has other windows (decision 0120), and not every kernel has one."""
    controls = {name: one.congestion_control for name, one in BASELINES.items() if "dctcp" in name}
    assert (controls["dctcp"], controls["dctcp-kernel"]) == ("weir_dctcp", "dctcp")


def test_ecn_tcp_is_reno_with_ecn_and_marks() -> None:
    ecn, reno = BASELINES["ecn-tcp"], BASELINES["reno"]
    assert ecn.congestion_control == reno.congestion_control == "reno"
    assert (ecn.tcp_ecn, ecn.marked) == (1, True)
    assert (reno.tcp_ecn, reno.marked) == (0, False)


def test_a_scheme_that_this_kernel_lacks_is_refused_with_its_name_and_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_transports, "settable", {"reno", "cubic"}.__contains__)
    for name in ("plain", "rto1", "static-window", "ecn", "dctcp-k10"):  # weir_dctcp can be loaded
        require_transports(scheme_of(name), "reno")
    with pytest.raises(Unable, match="scheme bbr: bbr needs the congestion control bbr: modprobe tcp_bbr"):
        require_transports(scheme_of("bbr"), "reno")
    with pytest.raises(Unable, match=r"scheme dctcp-kernel: .+ dctcp: modprobe tcp_dctcp"):
        require_transports(scheme_of("dctcp-kernel"), "reno")
    with pytest.raises(Unable, match="scheme rto5: vegas needs the congestion control vegas: "):
        require_transports(scheme_of("rto5"), "vegas")


@pytest.mark.parametrize("this_build", [True, False, None])
def test_a_control_of_another_build_is_refused_with_the_remedy(
    this_build: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the report names this version, and another one made the figures."""
    rows = [{"name": name, "this_build": this_build} for name in ("weir_dctcp", "weir_d2tcp")]
    monkeypatch.setattr(host_transports, "run", lambda *_: json.dumps(rows))
    monkeypatch.setattr(host_transports, "settable", {"reno", "weir_dctcp"}.__contains__)
    require_transports(scheme_of("plain"), "reno")
    require_transports(scheme_of("d2tcp"), "reno")  # it is not loaded; the lab loads it
    if this_build:
        require_transports(scheme_of("dctcp"), "reno")
        return
    with pytest.raises(Unable, match="scheme dctcp: weir_dctcp is of another build: `weir"):
        require_transports(scheme_of("dctcp"), "reno")


def test_a_transport_whose_traffic_program_is_missing_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WEIR_BUILD", str(tmp_path))
    with pytest.raises(
        Unable, match=r"scheme dcudp: .*weir-traffic-dcudp is missing: build it with `make bpf`"
    ):
        require_transports(scheme_of("dcudp"), "reno")
    with pytest.raises(Unable, match=r"scheme udt: .*; it needs libudt-dev: `make setup` installs it"):
        require_transports(scheme_of("udt"), "reno")
    (tmp_path / "weir-traffic-dcudp").touch()
    require_transports(scheme_of("dcudp"), "reno")


def test_dcudp_and_udt_are_not_tcp_and_their_hosts_have_no_congestion_control() -> None:
    assert scheme_of("reno+dctcp").is_tcp
    assert scheme_of("plain").is_tcp
    assert not scheme_of("reno+dcudp").is_tcp
    assert [name for name, baseline in BASELINES.items() if not baseline.congestion_control] == [
        "dcudp",
        "udt",
    ]


def test_settings_of_a_route_are_written_and_taken_off() -> None:
    settings = RouteSettings(5, 2, "reno", quick_ack=True)
    assert settings.attributes == "rto_min 5ms initcwnd 2 congctl reno quickack 1"
    assert RouteSettings().attributes == ""
    bare = "10.0.0.0/22 proto kernel src 10.0.0.1"
    assert without_attributes(f"{bare} initcwnd 2 rto_min lock 5ms congctl reno \r\n") == bare
    assert without_attributes(f"{bare} quickack 1 \r\n") == bare
    assert without_attributes(bare) == bare


@pytest.mark.parametrize("segments", [1, 2, 8, 100])
def test_a_receive_buffer_has_room_for_its_window_and_not_for_another_segment(segments: int) -> None:
    payload = buffer_bytes(segments * 1448) * 1448 // 2304
    assert payload // 1448 == segments
