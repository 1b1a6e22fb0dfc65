"""`weir doctor`: what this machine can do, and how to get the rest."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

import click
from rich.console import Console

from weir import probes

SETUP = "make setup"
STOCK_KERNEL = "a stock kernel has it (Debian 12, Ubuntu 24.04)"


@dataclass(frozen=True, slots=True)
class Check:
    """One question to the machine. Without a `required` one the demo cannot run."""

    group: str
    name: str
    probe: Callable[[], str]
    remedy: str
    required: bool = True
    needs_root: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """A check's answer: `found` says what was seen, `remedy` is empty where nothing is to be done."""

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
    _try("TCP dctcp", probes.congestion_control("dctcp"), "weir_dctcp serves as well", required=False),
    _try("TCP weir_dctcp", probes.transport("weir_dctcp"), f"make bpf; {STOCK_KERNEL}", required=False),
    _try("netem (link delay)", probes.qdisc("root", "netem"), STOCK_KERNEL, required=False),
    Check("kernel", "cgroup 2", probes.cgroup2, "mount -t cgroup2 none /sys/fs/cgroup", required=False),
    _try("OVS kernel datapath", probes.kernel_datapath, STOCK_KERNEL, required=False),
    Check("kernel", "BPF file system", probes.bpf_file_system, SETUP),
    Check("kernel", "send buffer", probes.send_buffer, SETUP),
    Check("switch", "Open vSwitch", probes.open_vswitch, SETUP, needs_root=True),
    Check("switch", "BPF objects", lambda: probes.artifacts("weir.bpf.o", "queue_probe.bpf.o"), "make bpf"),
    Check("switch", "BPF programs", probes.bpf_programs, "make bpf, then weir doctor again", needs_root=True),
    Check("lab", "Mininet", probes.mininet, SETUP),
    Check("lab", "traffic programs", lambda: probes.artifacts("weir-traffic", "weir-stalls"), "make bpf"),
    Check("lab", "network tools", lambda: probes.tools("ip", "tc", "ss", "ethtool", "ifconfig"), SETUP),
    Check("lab", "tcpdump, iperf3", lambda: probes.tools("tcpdump", "iperf3"), SETUP, required=False),
    Check("controller", "Python packages", probes.python_packages, SETUP),
    Check("controller", "ryu-manager", probes.ryu_manager, SETUP),
    Check("controller", "os-ken", probes.distribution("os-ken"), SETUP, required=False),
    Check("build", "clang", lambda: probes.tool("clang"), SETUP, required=False),
    Check("build", "bpftool", probes.bpftool, SETUP, required=False),
)


def examine(checks: Iterable[Check] = CHECKS) -> Iterator[Finding]:
    """Ask every check in turn; none can stop the others. What needs root is not tried without."""
    privileged = _answer(probes.rights)[0]
    for check in checks:
        if check.needs_root and not privileged:
            ok, found, remedy = False, "not tried", "run this as root"
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
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(as_json: bool) -> None:
    """Say what this machine can do, and how to get the rest. Exit 1 if the demo could not run."""
    console = Console(stderr=True)
    with console.status("looking at this machine"):
        findings = list(examine())
    blocking = [finding for finding in findings if finding.required and not finding.ok]
    if as_json:
        click.echo(json.dumps({"ok": not blocking, "checks": [asdict(finding) for finding in findings]}))
    else:
        _show(findings, blocking)
    sys.exit(1 if blocking else 0)


def _show(findings: list[Finding], blocking: list[Finding]) -> None:
    for finding in findings:
        if finding.ok:
            answer, rest = click.style("yes", fg="green"), finding.found
        else:
            answer = click.style("no ", fg="red" if finding.required else "yellow")
            optional = "" if finding.required else "optional; "
            rest = f"{_in_short(finding.found)} -> {optional}{finding.remedy}"
        click.echo(f"{answer}  {finding.group:<10}  {finding.name:<19}  {rest}")
    if blocking:
        click.echo(f"\nThe demo cannot run here: {', '.join(finding.name for finding in blocking)}.")
    else:
        click.echo("\nThe demo can run here.")


def _in_short(text: str, most: int = 120) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."
