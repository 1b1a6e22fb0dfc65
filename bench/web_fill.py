"""Fill a flow database to a chosen size, like a month of a busy network, for ``bench.web_pages``."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from sqlalchemy import insert
from sqlalchemy.engine import Connection, Engine

from flowdb import schema
from flowdb.engine import open_engine
from flowdb.flow import NS_PER_S
from flowdb.models import (
    AlarmRow,
    Base,
    ClampRow,
    DecisionRow,
    FlowRow,
    HopRow,
    HostRow,
    LinkRow,
    PortRow,
    PortSampleRow,
    RunRow,
    SwitchRow,
)

SPINES, LEAVES, PORTS = 4, 16, 20
LIVE, DECIDED, STANDING = 20_000, 50_000, 40
BLOCK = 20_000
Row = dict[str, Any]


def fill(url: str, flows: int, samples: int, progress: Callable[[str], None] = lambda _: None) -> None:
    """Fill the empty database at ``url`` with times up to now and one sample per port and second."""
    engine = open_engine(url)
    schema.upgrade(engine, url)
    now, chance = time.time_ns(), random.Random(1)  # noqa: S311 - figures, not secrets
    tables: list[tuple[type[Base], Iterator[Row]]] = [
        (RunRow, iter([_run(now)])),
        *_network(now),
        (FlowRow, _flows(now, flows, chance)),
        (HopRow, _hops(flows, chance)),
        (AlarmRow, _alarms(now)),
        (DecisionRow, _decisions(now, flows)),
        (ClampRow, _clamps(now, flows)),
        (PortSampleRow, _samples(now, samples, chance)),
    ]
    for row, rows in tables:
        progress(f"filling {row.__tablename__}")
        with engine.begin() as connection:
            _write(connection, row, rows)
    know_tables(engine)


def know_tables(engine: Engine) -> None:
    """Update a database's table statistics, as PostgreSQL does itself a minute after tables are filled."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")


def port_of(number: int) -> tuple[int, int]:
    """The port with this number; ports are spread over the leaves."""
    return SPINES + 1 + number % LEAVES, 1 + number // LEAVES % PORTS


def address(number: int) -> str:
    return f"10.{number // 65536 % 256}.{number // 256 % 256}.{number % 256}"


def _write(connection: Connection, row: type[Base], rows: Iterator[Row]) -> None:
    while block := list(islice(rows, BLOCK)):
        connection.execute(insert(row), block)


def _run(now: int) -> Row:
    return {
        "id": 1,
        "host": "bench",
        "pid": 1,
        "boot_id": "",
        "boot_ns": 0,
        "started_ns": now,
        "last_seen_ns": now,
    }


def _network(now: int) -> Iterator[tuple[type[Base], Iterator[Row]]]:
    dpids = range(1, SPINES + LEAVES + 1)
    yield SwitchRow, ({"dpid": dpid, "connected": True, "last_seen_ns": now} for dpid in dpids)
    yield (
        PortRow,
        (
            {
                "dpid": d,
                "port_no": n,
                "name": f"s{d}-eth{n}",
                "hw_addr": "",
                "up": True,
                "rate_bps": 10**9,
                "last_seen_ns": now,
            }
            for d in dpids
            for n in range(1, PORTS + 1)
        ),
    )
    ends = {"up": True, "found_ns": now, "last_seen_ns": now}
    pairs = [
        ((leaf, PORTS - SPINES + s), (s, leaf - SPINES))
        for leaf in dpids[SPINES:]
        for s in range(1, SPINES + 1)
    ]
    yield (
        LinkRow,
        (
            {"src_dpid": a[0], "src_port_no": a[1], "dst_dpid": b[0], "dst_port_no": b[1]} | ends
            for pair in pairs
            for a, b in (pair, pair[::-1])
        ),
    )
    yield (
        HostRow,
        (
            {
                "mac": f"02:00:00:00:{n // 256:02x}:{n % 256:02x}",
                "ipv4": address(n),
                "dpid": port_of(n)[0],
                "port_no": port_of(n)[1],
                "last_seen_ns": now,
            }
            for n in range(LEAVES * (PORTS - SPINES))
        ),
    )


def _flows(now: int, count: int, chance: random.Random) -> Iterator[Row]:
    month = 30 * 86_400 * NS_PER_S
    live = min(LIVE, count // 10)
    for number in range(count):
        opened, is_live = now - month + month * number // count, number >= count - live
        yield {
            "id": 1 << 32 | number + 1,
            "src": address(chance.randrange(256)),
            "dst": address(chance.randrange(256)),
            "src_port": chance.randrange(1024, 65536),
            "dst_port": 5001,
            "opened_ns": opened,
            "closed_ns": None if is_live else opened + NS_PER_S,
            "close_reason": None if is_live else "fin",
            "state": ("active" if number % 3 else "idle") if is_live else "closed",
            "mss_bytes": 1448,
            "receiver_wscale": 7,
            "sender_wscale": 7,
            "handshake_rtt_us": 300,
            "sent_bytes": chance.randrange(10**9),
            "rate_bps": chance.randrange(10**8),
            "last_active_ns": opened,
        }


def _hops(count: int, chance: random.Random) -> Iterator[Row]:
    for number in range(count):
        leaf, port_no = port_of(chance.randrange(LEAVES * PORTS))
        path = ((leaf, 1, PORTS), (1 + number % SPINES, 2, leaf - SPINES), (SPINES + 1, 3, port_no))
        for position, (dpid, in_port, out_port) in enumerate(path[: 2 if leaf == SPINES + 1 else 3]):
            yield {
                "flow_id": 1 << 32 | number + 1,
                "position": position,
                "dpid": dpid,
                "in_port": in_port,
                "out_port": out_port,
            }


def _alarms(now: int) -> Iterator[Row]:
    for number in range(DECIDED):
        dpid, port_no = port_of(number % 40)
        at = now - (DECIDED - number) * 30 * NS_PER_S
        yield {
            "id": 1 << 32 | number + 1,
            "dpid": dpid,
            "port_no": port_no,
            "kind": "normal" if number % 2 else "alarm",
            "queue_pkts": 40,
            "queue_bytes": 60_000,
            "port_rate_bps": 10**9,
            "n_i": 12,
            "crossing_ns": at,
            "received_ns": at + 700_000,
            "repeats": 3,
            "non_tcp_percent": 0,
        }


def _flow_of(number: int, flows: int) -> int:
    """Decisions and clamps; the newest belong to open flows."""
    return 1 << 32 | flows - (DECIDED - number) % (flows // 2)


def _decisions(now: int, flows: int) -> Iterator[Row]:
    for number in range(DECIDED):
        dpid, port_no = port_of(number % 40)
        at = now - (DECIDED - number) * 30 * NS_PER_S + 900_000
        one = {"flow_id": _flow_of(number, flows), "flow": "a > b", "sent_bytes": 10**9, "rate_bps": 10**7}
        ranking = [one | {"age_s": float(age), "state": "active"} for age in range(5)]
        yield {
            "id": 1 << 32 | number + 1,
            "alarm_id": 1 << 32 | number + 1,
            "flow_id": _flow_of(number, flows),
            "dpid": dpid,
            "port_no": port_no,
            "decided_ns": at,
            "origin": "alarm",
            "policy": "longest-lived-active",
            "candidates": 12,
            "ranking": ranking,
            "equation": 3,
            "capacity_bps": 10**9,
            "rtt_us": 500,
            "queue_bytes": 60_000,
            "allowance_bytes": 0,
            "n": 12,
            "wc_bytes": 10_208,
            "wr_bytes": 8_388_480,
            "mss_bytes": 1448,
            "alpha": 5,
            "window_bytes": 5104,
            "entry": {"action": "MOD_WINDOW(5104, 5)"},
            "answer": "accepted",
            "answered_ns": at,
        }


def _clamps(now: int, flows: int) -> Iterator[Row]:
    for number in range(DECIDED):
        dpid, port_no = port_of(number % 40)
        at = now - (DECIDED - number) * 30 * NS_PER_S
        stands = number >= DECIDED - STANDING
        yield {
            "id": 1 << 32 | number + 1,
            "decision_id": 1 << 32 | number + 1,
            "flow_id": _flow_of(number, flows),
            "dpid": dpid,
            "port_no": port_no,
            "window_bytes": 5104,
            "pushed_ns": at,
            "lifted_ns": None if stands else at + NS_PER_S,
            "lift_reason": None if stands else "normal and burst over",
        }


def _samples(now: int, count: int, chance: random.Random) -> Iterator[Row]:
    ports = [(dpid, no) for dpid in range(1, SPINES + LEAVES + 1) for no in range(1, PORTS + 1)]
    each = count // len(ports)
    for dpid, port_no in ports:
        for number in range(each):
            queue = chance.randrange(30)
            yield {
                "dpid": dpid,
                "port_no": port_no,
                "at_ns": now - (each - number) * NS_PER_S,
                "queue_pkts": queue,
                "queue_bytes": queue * 1500,
                "queue_max_pkts": 60,
                "n_i": queue // 3,
                "fair_share_bytes": 5000,
                "capacity_bps": 10**9,
                "alarms": number,
                "acks_seen": number,
                "clamped": number,
                "marked": 0,
                "drops": number // 100,
            }
