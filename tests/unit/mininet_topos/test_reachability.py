"""The check that every host can be reached waits for as many round trips as it needs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from mininet_topos.network.impairment import Impairment
from mininet_topos.running import scheme_programs

HOSTS = [
    SimpleNamespace(name=f"h{number}", IP=lambda number=number: f"10.0.0.{number}") for number in range(100)
]


@pytest.mark.parametrize(("delay_ms", "least_s", "most_s"), [(0, 30, 30), (50, 50, 80), (100, 70, 120)])
def test_the_time_for_99_hosts_grows_with_the_round_trip(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, delay_ms: float, least_s: float, most_s: float
) -> None:
    """The root asks 99 hosts one after the other, each in two round trips: 40 s at an RTT of 200 ms."""
    waited: dict[str, float] = {}
    traffic = SimpleNamespace(
        start=lambda *args, **options: None,
        await_event=lambda event, count, timeout_s: waited.update({event: timeout_s}),
        stop=lambda: None,
    )
    monkeypatch.setattr(scheme_programs, "Traffic", lambda records, state: traffic)
    layout = SimpleNamespace(impairment=Impairment(delay_ms=delay_ms), switch_of=lambda name: "s1")
    net = SimpleNamespace(hosts=HOSTS, root=HOSTS[0], layout=layout, state=None)
    scheme_programs.check_reachability(net, tmp_path)  # type: ignore[arg-type]
    assert least_s <= waited["done"] <= most_s
    assert waited["closed"] == waited["done"]
