"""`weir lab run quick`, as a user calls it: the trends of the papers' figures, on valid runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

WEIR = str(Path(sys.executable).with_name("weir"))
BOUND_S = 900
pytestmark = pytest.mark.timeout(BOUND_S + 60)
K_PKTS = 20
Row = dict[str, Any]
RowsOf = Callable[[str, str], list[Row]]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> RowsOf:
    """The valid rows of a case under a scheme; where the machine let none be valid, nothing is shown."""
    out = tmp_path_factory.mktemp("lab") / "quick"
    run = (WEIR, "lab", "run", "quick", "--out", str(out), "--json")
    done = subprocess.run(run, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert done.returncode == 0, done.stderr
    every = json.loads(done.stdout)

    def valid(case: str, scheme: str) -> list[Row]:
        some = [row for row in every if (row["case"], row["scheme"]) == (case, scheme)]
        found = [row for row in some if row["valid"]]
        assert found, f"void, so nothing is shown: {[row['reasons'] for row in some]}"
        return found

    return valid


def the(rows: list[Row], figure: str) -> float:
    return median(row[figure] for row in rows)


def test_dctcp_holds_the_queue_at_k_and_loses_no_goodput(rows: RowsOf) -> None:
    plain, dctcp = rows("long2", "plain"), rows("long2", "dctcp")
    assert 0.7 * K_PKTS <= the(dctcp, "queue_pkts_p50") <= 1.3 * K_PKTS
    assert the(dctcp, "goodput_mbps") >= 0.95 * the(plain, "goodput_mbps")
    assert the(plain, "queue_pkts_p50") > 2 * K_PKTS
    assert the(dctcp, "drops") == 0


def test_ecn_tcp_keeps_a_short_queue_too(rows: RowsOf) -> None:
    assert rows("long2", "plain")[0]["marks"] is None
    ecn = rows("long2", "ecn")
    assert the(ecn, "marks") > 100
    assert the(ecn, "queue_pkts_p50") <= 1.3 * K_PKTS
    assert the(ecn, "drops") == 0


def test_tcp_and_dctcp_share_one_link_in_one_run(rows: RowsOf) -> None:
    both = rows("long2", "reno+dctcp")[0]
    assert set(both["goodput_by_transport"]) == {"reno", "dctcp"}
    assert min(both["goodput_by_transport"].values()) > 1
    assert both["marks"] > 100
    assert both["goodput_mbps"] > 80


def burst_ms(rows: list[Row]) -> float:
    """How long the burst took: its last flow."""
    return median(row["fct_ms"]["max"] for row in rows)


def test_sdtcp_lets_a_burst_pass_long_flows_over_a_short_queue(rows: RowsOf) -> None:
    plain, sdtcp = rows("burst", "plain"), rows("burst", "sdtcp")
    assert burst_ms(sdtcp) <= 1.1 * burst_ms(plain)
    assert the(sdtcp, "queue_pkts_p50") <= 0.5 * the(plain, "queue_pkts_p50")
    assert the(sdtcp, "drops") <= 0.2 * the(plain, "drops")
    assert the(sdtcp, "goodput_mbps") >= 0.9 * the(plain, "goodput_mbps")


def test_dctcp_keeps_a_short_queue_through_the_burst(rows: RowsOf) -> None:
    plain, dctcp = rows("burst", "plain"), rows("burst", "dctcp")
    assert the(dctcp, "queue_pkts_p50") <= 2 * K_PKTS
    assert the(dctcp, "drops") <= 0.1 * the(plain, "drops")
