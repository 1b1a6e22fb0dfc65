"""Measure how many FLOW_REPORT records one core encodes, decodes, and receives in an engine per second.

    python -m bench.flow_report_codec [--hosts N] [--records N] [--json]

The records are of flows between --hosts hosts. The codec caches 16,384 addresses, so with more hosts the
cost of making addresses shows. Each figure is the best of nine runs: the cost of the code on an idle
core. "core at 50,000/s" is the part of a core that this rate takes.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from ipaddress import IPv4Address
from types import SimpleNamespace
from typing import TypeVar

import click
from rich.console import Console
from rich.table import Table

from openflow_ext import engine, registry, wire

T = TypeVar("T")
RUNS = 9
TARGET_PER_S = 50_000


def reports(records: int, hosts: int) -> list[wire.FlowReport]:
    """``records`` records of opened flows, in as few messages as possible."""
    chance = random.Random(1)  # noqa: S311 - flows, not secrets
    base = int(IPv4Address("10.0.0.0"))
    addresses = [IPv4Address(base + host) for host in range(hosts)]
    flows = [
        wire.FlowRecord(
            wire.FlowKind.OPENED,
            chance.choice(addresses),
            chance.choice(addresses),
            chance.randrange(1024, 65536),
            80,
            *(1, 2, 7, 7, 1460, 1460, 74),
            first_ns=time.time_ns(),
            last_ns=time.time_ns(),
            handshake_rtt_us=250,
        )
        for _ in range(records)
    ]
    step = wire.FLOW_REPORT_MAX
    return [wire.FlowReport(tuple(flows[at : at + step])) for at in range(0, records, step)]


def receiver(name: str) -> Callable[[bytes], object]:
    """What the receive loop of the engine ``name`` does with a message, up to its event."""
    registry.install(name)
    ofproto = engine.load("ofproto.ofproto_v1_3", name)
    parser = engine.load("ofproto.ofproto_v1_3_parser", name)
    ofp_event = engine.load("controller.ofp_event", name)
    ofproto_parser = engine.load("ofproto.ofproto_parser", name)
    datapath = SimpleNamespace(ofproto=ofproto, ofproto_parser=parser, id=1, address=None)

    def receive(data: bytes) -> object:
        header = ofproto_parser.header(data)
        return ofp_event.ofp_msg_to_ev(ofproto_parser.msg(datapath, *header, bytearray(data)))

    return receive


def each(call: Callable[[T], object], items: Sequence[T]) -> list[object]:
    return [call(item) for item in items]


def best_seconds(run: Callable[[], object]) -> float:
    taken = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken)


@click.command(help=__doc__)
@click.option(
    "--records", default=100 * wire.FLOW_REPORT_MAX, show_default=True, help="Number of records in a run."
)
@click.option("--hosts", default=400, show_default=True, help="Number of hosts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(records: int, hosts: int, as_json: bool) -> None:
    values = reports(records, hosts)
    messages = [wire.encode_message(value) for value in values]
    runs: dict[str, Callable[[], object]] = {
        "encode": partial(each, wire.encode_message, values),
        "decode": partial(each, wire.decode_message, messages),
    }
    for name in engine.ENGINES:
        runs[f"receive, {name}"] = partial(each, receiver(name), messages)
    rates = {what: round(records / best_seconds(run)) for what, run in runs.items()}
    if as_json:
        click.echo(json.dumps({"records": records, "hosts": hosts, "records_per_s": rates}))
        return
    table = Table("", "records/s", "core at 50,000/s")
    for what, rate in rates.items():
        table.add_row(what, f"{rate:,}", f"{TARGET_PER_S / rate:.1%}")
    Console().print(table)


if __name__ == "__main__":
    main()
