"""The requirements of each baseline for hosts and switch."""

from __future__ import annotations

import pytest

from mininet_topos.errors import Unable
from mininet_topos.experiments.baselines import BASELINES


def test_the_kernels_dctcp_is_preferred_to_weirs() -> None:
    dctcp = BASELINES["dctcp"]
    assert dctcp.choose(["reno", "weir_dctcp", "dctcp"]) == "dctcp"
    assert dctcp.choose(["reno", "weir_dctcp"]) == "weir_dctcp"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("dctcp", "dctcp or weir_dctcp: weir transports load weir_dctcp"), ("bbr", "bbr: modprobe tcp_bbr")],
)
def test_a_missing_congestion_control_is_refused_with_the_remedy(name: str, remedy: str) -> None:
    with pytest.raises(Unable, match=f"{name} needs the congestion control {remedy}"):
        BASELINES[name].choose(["reno", "cubic"])


def test_ecn_tcp_is_reno_with_ecn_and_marks() -> None:
    ecn, reno = BASELINES["ecn-tcp"], BASELINES["reno"]
    assert ecn.choose(["reno"]) == reno.choose(["reno"]) == "reno"
    assert (ecn.tcp_ecn, ecn.marked) == (1, True)
    assert (reno.tcp_ecn, reno.marked) == (0, False)
