"""`weir doctor`: what this machine supports, and how to add what is missing."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

import click
from rich.console import Console

from weir import probes
from weir_base import tables

SETUP = "make setup"
_GROUP_WIDTH, _NAME_WIDTH = 10, 19
_LEAD_WIDTH = len("yes ") + _GROUP_WIDTH + _NAME_WIDTH + 2
_LEAST_TEXT_WIDTH = 24
_MOST_FOUND = 200
STOCK_KERNEL = "a stock kernel has it (Debian 12, Ubuntu 24.04)"


@dataclass(frozen=True, slots=True)
class Check:
    """One feature to look for. Without a `required` feature the demo cannot run."""

    group: str
    name: str
    probe: Callable[[], str]
    remedy: str
    required: bool = True
    needs_root: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: `found` states what the probe saw; `remedy` is empty if the feature is there."""

    group: str
    name: str
    required: bool
    ok: bool
    found: str
    remedy: str


_try = partial(Check, "kernel", needs_root=True)

CHECKS = (
    Check("rights", "root", probes.rights, "run it as root: sudo .venv/bin/weir doctor"),
    Check("kernel", "BTF", probes.btf, f"needs CONFIG_DEBUG_INFO_BTF; {STOCK_KERNEL}"),
    _try("veth, namespaces", probes.veth, STOCK_KERNEL),
    _try("XDP on veth", probes.xdp_on_veth, STOCK_KERNEL),
    Check("kernel", "qdisc tracepoints", probes.qdisc_tracepoints, f"Linux 5.16 or later; {STOCK_KERNEL}"),
    _try("BPF ring buffer", probes.ring_buffer, f"Linux 5.8 or later; {STOCK_KERNEL}"),
    _try("BPF timers", probes.bpf_timer, f"Linux 5.15 or later; {STOCK_KERNEL}"),
    _try("clsact", probes.qdisc("clsact"), STOCK_KERNEL),
    _try("HTB", probes.qdisc("root", "handle", "1:", "htb"), STOCK_KERNEL),
    _try("bfifo", probes.qdisc("root", "bfifo", "limit", "150000"), STOCK_KERNEL),
    Check("kernel", "TCP reno", probes.congestion_control("reno"), STOCK_KERNEL),
    Check("kernel", "congestion controls", probes.congestion_controls, STOCK_KERNEL),
    _try("TCP dctcp", probes.congestion_control("dctcp"), "only dctcp-kernel needs it", required=False),
    _try("TCP weir_dctcp", probes.transport("weir_dctcp"), f"make bpf; {STOCK_KERNEL}", required=False),
    _try("netem (link delay)", probes.qdisc("root", "netem"), "the delay line replaces it", required=False),
    Check("kernel", "cgroup 2", probes.cgroup2, "mount -t cgroup2 none /sys/fs/cgroup", required=False),
    _try("OVS kernel datapath", probes.kernel_datapath, STOCK_KERNEL, required=False),
    Check("kernel", "BPF file system", probes.bpf_file_system, SETUP),
    Check("kernel", "send buffer", probes.send_buffer, SETUP),
    Check("switch", "Open vSwitch", probes.open_vswitch, SETUP, needs_root=True),
    Check("switch", "BPF objects", lambda: probes.artifacts("weir.bpf.o", "queue_probe.bpf.o"), "make bpf"),
    Check(
        "switch", "BPF programs", probes.bpf_programs, "make bpf, then run weir doctor again", needs_root=True
    ),
    Check(
        *("switch", "fail mode", probes.fail_mode, "ovs-vsctl set-fail-mode BRIDGE secure"),
        required=False,
        needs_root=True,
    ),
    Check("switch", "flow table", probes.flow_table, "correct [switch] max_flows in the settings"),
    Check("lab", "Mininet", probes.mininet, SETUP),
    Check("lab", "traffic programs", lambda: probes.artifacts("weir-traffic", "weir-stalls"), "make bpf"),
    Check("lab", "DCUDP traffic", lambda: probes.artifacts("weir-traffic-dcudp"), "make bpf", required=False),
    Check(
        *("lab", "delay line", lambda: probes.artifacts("weir-delay-line", "weir-delay-probe"), "make bpf"),
        required=False,
    ),
    Check("lab", "network tools", lambda: probes.tools("ip", "tc", "ss", "ethtool", "ifconfig"), SETUP),
    Check("lab", "tcpdump, iperf3", lambda: probes.tools("tcpdump", "iperf3"), SETUP, required=False),
    Check("controller", "Python packages", probes.python_packages, SETUP),
    Check("controller", "ryu-manager", probes.ryu_manager, SETUP),
    Check("controller", "os-ken", probes.distribution("os-ken"), SETUP, required=False),
    Check("hosts", "DCUDP", lambda: probes.artifacts("libdcudp.so"), "make bpf", required=False),
    Check("build", "cargo", lambda: probes.tool("cargo"), SETUP, required=False),
    Check("build", "clang", lambda: probes.tool("clang"), SETUP, required=False),
    Check("build", "bpftool", probes.bpftool, SETUP, required=False),
)


def examine(checks: Iterable[Check] = CHECKS) -> Iterator[Finding]:
    """Run every check in turn. A check that fails does not stop the others.

    A check that needs root is skipped if the process lacks the rights.
    """
    privileged = _answer(probes.rights)[0]
    for check in checks:
        if check.needs_root and not privileged:
            ok, found, remedy = False, "not tried", "run weir doctor as root"
        else:
            ok, found = _answer(check.probe)
            remedy = "" if ok else check.remedy
        yield Finding(check.group, check.name, check.required, ok, found, remedy)


def _answer(probe: Callable[[], str]) -> tuple[bool, str]:
    try:
        return True, probe()
    except Exception as error:
        return False, str(error) or type(error).__name__


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def doctor(as_json: bool) -> None:
    """Check what this machine supports, and how to add what is missing.

    The exit code is 1 if the demo cannot run here.
    """
    console = Console(stderr=True)
    with console.status("checking this machine"):
        findings = list(examine())
    blocking = [finding for finding in findings if finding.required and not finding.ok]
    if as_json:
        click.echo(json.dumps({"ok": not blocking, "checks": [asdict(finding) for finding in findings]}))
    else:
        _show(findings, blocking)
    sys.exit(1 if blocking else 0)


def _show(findings: list[Finding], blocking: list[Finding]) -> None:
    """Print a line for each finding, folded to the terminal, and the conclusion."""
    width = tables.console().width
    for finding in findings:
        answer = click.style("yes", fg="green") if finding.ok else click.style("no ", fg=_colour(finding))
        lead = f"{finding.group:<{_GROUP_WIDTH}} {finding.name:<{_NAME_WIDTH}} "
        text = finding.found if finding.ok else _explain(finding)
        first, *more = textwrap.wrap(text, max(width - _LEAD_WIDTH, _LEAST_TEXT_WIDTH)) or [""]
        click.echo(f"{answer} {lead}{first}")
        for line in more:
            click.echo(f"{'':{_LEAD_WIDTH}}{line}")
    if blocking:
        names = ", ".join(finding.name for finding in blocking)
        click.echo("\n" + textwrap.fill(f"The demo cannot run here. Missing: {names}.", width))
    else:
        click.echo("\nThe demo can run here.")


def _colour(finding: Finding) -> str:
    return "red" if finding.required else "yellow"


def _explain(finding: Finding) -> str:
    """What a check that failed saw, and the remedy."""
    optional = "optional: " if not finding.required else ""
    return f"{textwrap.shorten(finding.found, _MOST_FOUND)} -> {optional}{finding.remedy}"
