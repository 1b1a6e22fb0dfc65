"""A TCP stream through the switch, and a watch for windows that are not lowered."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator

from openflow_ext import wire
from tests.support.agent.streaming import streaming
from tests.support.agent.switch_bench import Bench, Controller, run
from tests.support.openflow.flow_mods import TCP4, ext, flow_mod, ofproto, output
from tests.support.waiting import DEADLINE_S, wait_until

NORMAL = output(ofproto.OFPP_NORMAL)
CLAMP = wire.SetWindow(6144)
SCALE = 7
WIDER = f"src host 10.77.0.2 and tcp[tcpflags] & tcp-syn == 0 and tcp[14:2] > {CLAMP.value >> SCALE}"
"""A capture filter for segments whose window is larger than the clamp allows."""


def clamp_all(controller: Controller) -> None:
    """Clamp all TCP that the bridge forwards."""
    controller.send(flow_mod({}, [NORMAL], xid=4), flow_mod(TCP4, [ext(CLAMP), NORMAL], priority=7, xid=5))
    assert controller.barrier() == []


@contextlib.contextmanager
def scaled_streaming(bench: Bench) -> Iterator[Callable[[], tuple[int, int]]]:
    """A stream like that of `streaming`, whose receiver has the window scale SCALE."""
    run(*bench.inside(2, "sysctl", "-qw", "net.ipv4.tcp_rmem=4096 131072 6291456"))
    with streaming(bench) as finish:
        yield finish


@contextlib.contextmanager
def wider_windows(bench: Bench) -> Iterator[list[str]]:
    """Gives a list that at the end holds the segments to host 1 whose window was not lowered."""
    watch = ("tcpdump", "-nn", "-l", "--immediate-mode", "-i", "eth0", WIDER)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(bench.inside(1, *watch), **pipes) as process:
        wait_until(lambda: "listening on" in process.stderr.readline(), "tcpdump listens")
        found: list[str] = []
        try:
            yield found
        finally:
            process.terminate()
            found += filter(None, process.communicate(timeout=DEADLINE_S)[0].splitlines())


def segments(bench: Bench, number: int) -> tuple[int, int]:
    """The numbers of TCP segments that a host has received, sent and retransmitted."""
    names, values = run(*bench.inside(number, "grep", "^Tcp:", "/proc/net/snmp")).splitlines()
    found = dict(zip(names.split(), values.split(), strict=True))
    return int(found["InSegs"]), int(found["OutSegs"]) + int(found["RetransSegs"])
