"""What each baseline needs of hosts and switch."""

from __future__ import annotations

import pytest

from mininet_topos.baselines import BASELINES
from mininet_topos.errors import Unable


def test_the_kernels_dctcp_comes_first_and_ours_serves_where_there_is_none() -> None:
    dctcp = BASELINES["dctcp"]
    assert dctcp.choose(["reno", "weir_dctcp", "dctcp"]) == "dctcp"
    assert dctcp.choose(["reno", "weir_dctcp"]) == "weir_dctcp"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("dctcp", "dctcp or weir_dctcp: weir transports load weir_dctcp"), ("bbr", "bbr: modprobe tcp_bbr")],
)
def test_what_is_not_there_is_refused_with_the_remedy(name: str, remedy: str) -> None:
    with pytest.raises(Unable, match=f"{name} needs the congestion control {remedy}"):
        BASELINES[name].choose(["reno", "cubic"])


def test_ecn_tcp_is_reno_that_asks_for_ecn_and_is_marked() -> None:
    ecn, reno = BASELINES["ecn-tcp"], BASELINES["reno"]
    assert ecn.choose(["reno"]) == reno.choose(["reno"]) == "reno"
    assert (ecn.tcp_ecn, ecn.marked) == (1, True)
    assert (reno.tcp_ecn, reno.marked) == (0, False)
