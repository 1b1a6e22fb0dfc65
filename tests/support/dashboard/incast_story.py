"""An incast as the controllers would write it into the flow database: for the dashboard's tests and pictures.

Two spines, three leaves, four hosts at each leaf. Two long flows and a burst go to the first host of the
third leaf; the port to it is the one that fills.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from fabric_app.config import FabricSettings
from flowdb.db import FlowDb
from flowdb.flow import NS_PER_S, FiveTuple, Flow, Hop
from flowdb.models import (
    AlarmRow,
    ClampRow,
    CommandRow,
    DecisionRow,
    HostRow,
    LinkRow,
    PortRow,
    PortSampleRow,
    SwitchRow,
)
from sdtcp_app.config import SdtcpSettings
from sdtcp_app.recorder import ranking_entry

SPINES, LEAVES, HOSTS = (1, 2), (3, 4, 5), 4
RATE_BPS = 1_000_000_000
RTT_US = 500
MSS = 1448
ROOT = "10.0.5.1"
FULL = (5, 1)
"""The port that fills: of the third leaf, to the root."""


@dataclass
class Story:
    """Writes an incast to ``db``; each part can be written alone, at a chosen time."""

    db: FlowDb
    flows: list[Flow] = field(default_factory=list)
    url: str = ""

    def network(self) -> None:
        now = self.db.clock.now_ns()
        for dpid in (*SPINES, *LEAVES):
            self.db.merge(SwitchRow, dpid=dpid, connected=True, last_seen_ns=now)
            for port_no in range(1, 4 if dpid in SPINES else HOSTS + len(SPINES) + 1):
                self.db.merge(
                    PortRow,
                    dpid=dpid,
                    port_no=port_no,
                    name=f"s{dpid}-eth{port_no}",
                    hw_addr=f"02:00:00:00:{dpid:02x}:{port_no:02x}",
                    up=True,
                    rate_bps=RATE_BPS,
                    last_seen_ns=now,
                )
        for leaf in LEAVES:
            for spine in SPINES:
                up, down = HOSTS + spine, leaf - LEAVES[0] + 1
                for src, src_port, dst, dst_port in ((leaf, up, spine, down), (spine, down, leaf, up)):
                    self.db.merge(
                        LinkRow,
                        src_dpid=src,
                        src_port_no=src_port,
                        dst_dpid=dst,
                        dst_port_no=dst_port,
                        up=True,
                        found_ns=now,
                        last_seen_ns=now,
                    )
            for number in range(1, HOSTS + 1):
                self.db.merge(
                    HostRow,
                    mac=f"02:00:0a:00:{leaf:02x}:{number:02x}",
                    ipv4=f"10.0.{leaf}.{number}",
                    dpid=leaf,
                    port_no=number,
                    last_seen_ns=now,
                )

    def flow(self, src: str, src_port: int, opened_ns: int, rate_bps: int = 0, **more: Any) -> Flow:
        """A flow to the root, by the spine that its port number picks."""
        leaf, spine = int(src.split(".")[2]), SPINES[src_port % 2]
        path = [
            Hop(leaf, int(src.split(".")[3]), HOSTS + spine),
            Hop(spine, leaf - 2, 3),
            Hop(5, HOSTS + spine, 1),
        ]
        flow = Flow(
            self.db.next_id(),
            FiveTuple(src, ROOT, src_port, 5001),
            tuple(path[2:] if leaf == 5 else path),
            opened_ns,
            MSS,
            receiver_wscale=7,
            sender_wscale=7,
            handshake_rtt_us=RTT_US,
            sent_bytes=more.pop("sent_bytes", 0),
            rate_bps=rate_bps,
            last_active_ns=opened_ns,
            **more,
        )
        self.db.flow_opened(flow)
        self.flows.append(flow)
        return flow

    def incast(self, at_ns: int, workers: int = 8) -> list[Flow]:
        """Two long flows, a minute old, and the burst."""
        long = [
            self.flow(
                f"10.0.{3 + n}.{1 + n}",
                40_000 + n,
                at_ns - 60 * NS_PER_S,
                460_000_000,
                sent_bytes=3_400_000_000,
            )
            for n in range(2)
        ]
        burst = [
            self.flow(f"10.0.{3 + n % 2}.{1 + n // 2 % 4}", 50_000 + n, at_ns, 8_000_000, sent_bytes=256_000)
            for n in range(workers)
        ]
        return [*long, *burst]

    def alarm(self, at_ns: int, queue_pkts: int, n_i: int = 10, kind: str = "alarm", repeats: int = 2) -> int:
        dpid, port_no = FULL
        return self.db.insert(
            AlarmRow,
            dpid=dpid,
            port_no=port_no,
            kind=kind,
            queue_pkts=queue_pkts,
            queue_bytes=queue_pkts * 1500,
            port_rate_bps=RATE_BPS,
            n_i=n_i,
            crossing_ns=at_ns,
            received_ns=at_ns + 740_000,
            repeats=repeats,
            non_tcp_percent=0,
        )

    def punish(
        self,
        flow: Flow,
        alarm_id: int,
        at_ns: int,
        queue_pkts: int,
        rank: int = 0,
        port: tuple[int, int] = FULL,
    ) -> int:
        """The flow is chosen, and its window set; returns the clamp's id."""
        dpid, port_no = port
        queue_bytes = queue_pkts * 1500
        wc_bytes = (RATE_BPS * RTT_US // 8_000_000 + queue_bytes) // 10
        window = max(wc_bytes // 2, MSS)
        decision = self.db.insert(
            DecisionRow,
            alarm_id=alarm_id,
            flow_id=flow.id,
            dpid=dpid,
            port_no=port_no,
            decided_ns=at_ns,
            origin="alarm",
            policy="longest-lived-active",
            candidates=10 - rank,
            ranking=[ranking_entry(one, at_ns) for one in self.flows[rank : rank + 4]],
            equation=3,
            capacity_bps=RATE_BPS,
            rtt_us=RTT_US,
            queue_bytes=queue_bytes,
            allowance_bytes=0,
            n=10,
            wc_bytes=wc_bytes,
            wr_bytes=0xFFFF << 7,
            mss_bytes=MSS,
            alpha=5,
            window_bytes=window,
            entry={
                "switch": f"{dpid:016x}",
                "table": 0,
                "priority": 65535,
                "match": f"ACKs of {flow.key}",
                "action": f"MOD_WINDOW({window}, 5)",
            },
            answer="accepted",
            answered_ns=at_ns + 610_000,
        )
        return self.db.insert(
            ClampRow,
            decision_id=decision,
            flow_id=flow.id,
            dpid=dpid,
            port_no=port_no,
            window_bytes=window,
            pushed_ns=at_ns,
        )

    def lift(self, clamp_id: int, at_ns: int, reason: str = "normal and burst over") -> None:
        self.db.update(ClampRow, id=clamp_id, lifted_ns=at_ns, lift_reason=reason)

    def episode(self, at_ns: int) -> None:
        """An incast from its alarm to its lifts: 1.2 s."""
        flows = self.incast(at_ns)
        second = NS_PER_S
        clamps = [
            self.punish(
                flow,
                self.alarm(at_ns + n * second // 5, 63 + 9 * n),
                at_ns + n * second // 5 + 900_000,
                63 + 9 * n,
                n,
            )
            for n, flow in enumerate(flows[:2])
        ]
        self.alarm(at_ns + second * 7 // 10, 3, kind="normal")
        for n, clamp in enumerate(clamps):
            self.lift(clamp, at_ns + second + n * second // 5)
        for number, flow in enumerate(flows):
            after_s = 90 if number < 2 else 1
            self.db.flow_closed(flow, at_ns + after_s * second - second // 5, "fin")

    def samples(self, now_ns: int, seconds: int = 3600) -> None:
        """A sample a second of every port; the one that fills follows a slow tide with peaks."""
        for dpid in (*SPINES, *LEAVES):
            for port_no in range(1, 4 if dpid in SPINES else HOSTS + len(SPINES) + 1):
                total = dict.fromkeys(("alarms", "drops", "clamped"), 0)
                for back in range(seconds, -1, -1):
                    self._sample(dpid, port_no, now_ns - back * NS_PER_S, back, total)

    def _sample(self, dpid: int, port_no: int, at_ns: int, back: int, total: dict[str, int]) -> None:
        is_full = (dpid, port_no) == FULL
        tide = 8 + 6 * math.sin(back / 180) + (back * 7919 % 13) / 3
        peak = 48 * max(0.0, 1 - (back % 300) / 25)
        queue = int(tide + peak) if is_full else back * (dpid + port_no) % 7 if dpid in SPINES else 0
        n_i = 2 + int(peak / 6) if is_full else 2 if dpid in SPINES else 0
        total["drops"] += 1 if queue > 55 else 0
        total["clamped"] += 40 if peak else 0
        self.db.merge(
            PortSampleRow,
            dpid=dpid,
            port_no=port_no,
            at_ns=at_ns,
            queue_pkts=queue,
            queue_bytes=queue * 1500,
            queue_max_pkts=72 if is_full else 9,
            n_i=n_i,
            fair_share_bytes=62_500 // max(n_i, 1),
            capacity_bps=RATE_BPS,
            acks_seen=0,
            marked=0,
            **total,
        )

    def asked(self, kind: str, flow: Flow, at_ns: int, outcome: str | None) -> None:
        done = {} if outcome is None else {"taken_ns": at_ns + 110_000_000, "done_ns": at_ns + 114_000_000}
        self.db.insert(
            CommandRow,
            kind=kind,
            arguments={"flow": flow.id},
            asked_by="ada",
            asked_ns=at_ns,
            outcome=outcome,
            succeeded=None if outcome is None else True,
            **done,
        )


def tell(db: FlowDb, seconds: int = 3600) -> Story:
    """A whole hour: the network, a few episodes, and one that goes on now, with a flow punished."""
    story, now = Story(db), db.clock.now_ns()
    story.network()
    story.samples(now, seconds)
    for back in (2700, 1500, 600, 300):
        if back < seconds:
            story.episode(now - back * NS_PER_S)
    story.flows.clear()
    flows = story.incast(now - 4 * NS_PER_S)
    alarm = story.alarm(now - 4 * NS_PER_S, 63)
    story.punish(flows[0], alarm, now - 4 * NS_PER_S + 900_000, 63)
    story.asked("protect", flows[1], now - 90 * NS_PER_S, "protected: it will not be chosen")
    db.note_settings("sdtcp", SdtcpSettings(rtt_us=RTT_US))
    db.note_settings("fabric", FabricSettings(mode="reactive"))
    return story
