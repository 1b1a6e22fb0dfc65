"""Probes: each tries out one feature of this machine.

A probe that needs interfaces makes them in a network namespace of its own, which ends with the probe. It
returns a description of the feature, or raises ProbeFailed with the reason if the feature is missing.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from openflow_ext.switch.config import SwitchSettings
from openflow_ext.switch.dataplane.flow_table_size import FLOW_BYTES, default_max_flows
from openflow_ext.switch.ovs import takeover
from transports import congestion
from weir_base import paths
from weir_base.settings import load

SEND_BUFFER = 16 * 1024 * 1024
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38, "CAP_BPF": 39}

_CLONE_NEWNET = 0x40000000
_XDP, _SCHED_CLS, _RINGBUF_MAP, _TIMER_INIT = 6, 3, 27, 169
_BUFFER_BYTES_PER_PACKET = 2300  # the kernel charges a full-size packet with this much of a send buffer
_XDP_GENERIC = 1 << 1
_BTF_TYPEDEF = 8
_XDP_PASS = b"\xb7\x00\x00\x00\x02\x00\x00\x00\x95\x00\x00\x00\x00\x00\x00\x00"  # r0 = XDP_PASS; exit


class ProbeFailed(Exception):
    """The feature is missing; the message states what the probe saw instead."""


def run(*command: str, timeout_s: float = 30.0) -> str:
    """Run a command and return its output. If it fails, raise ProbeFailed with its last line."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProbeFailed(f"{command[0]}: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        raise ProbeFailed(f"{command[0]}: {said[-1]}")
    return done.stdout.strip()


def tool(name: str) -> str:
    """The path of a command."""
    found = shutil.which(name)
    if found is None:
        raise ProbeFailed(f"{name} not found")
    return found


def tools(*names: str) -> str:
    """Several commands, all of which have to be on the path."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        raise ProbeFailed(f"not found: {', '.join(missing)}")
    return ", ".join(names)


def chromium() -> str:
    """Chromium, and a chromedriver of the same version."""
    found = [run(tool(name), "--version").split(" ") for name in ("chromium", "chromedriver")]
    browser, driver = (words[1].split(".")[0] for words in found)
    if browser != driver:
        raise ProbeFailed(
            f"chromium has version {browser}, chromedriver {driver}: install the same version of both"
        )
    return f"chromium {browser}"


def rights() -> str:
    """Root, or the capabilities that BPF and network namespaces need."""
    status = Path("/proc/self/status").read_text()
    held = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff")), 16)
    lacking = [name for name, bit in CAPABILITIES.items() if not held >> bit & 1]
    if lacking:
        raise ProbeFailed(f"user {os.geteuid()} lacks {', '.join(lacking)}")
    return "root" if os.geteuid() == 0 else "capabilities held"


def in_private_network(probe: Callable[[], None]) -> None:
    """Run `probe` in a thread that has its own network namespace, which ends with the thread.

    Commands that the probe runs are in that namespace as well. Raises ProbeFailed if the process may not make
    a namespace, and whatever the probe raises.
    """

    def enter_and_probe() -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) < 0:
            raise ProbeFailed(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        probe()

    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(enter_and_probe).result()


def veth() -> str:
    """A veth pair in a network namespace."""
    in_private_network(_make_veth)
    return "created and removed"


def qdisc(*arguments: str) -> Callable[[], str]:
    """A probe that adds a qdisc, given in tc's syntax, to a veth."""

    def put() -> None:
        _make_veth()
        run("tc", "qdisc", "add", "dev", "weir0", *arguments)

    def probe() -> str:
        in_private_network(put)
        return "added to a veth"

    return probe


def xdp_on_veth() -> str:
    """Generic XDP on a veth: the hook that clamps windows if Open vSwitch uses its userspace datapath."""

    def attach() -> None:
        _make_veth()
        library = _libbpf()
        program = library.bpf_prog_load(_XDP, b"weir_probe", b"GPL", _XDP_PASS, 2, None)
        if program < 0:
            raise ProbeFailed(f"program refused: {os.strerror(-program)}")
        code = library.bpf_xdp_attach(socket.if_nametoindex("weir0"), program, _XDP_GENERIC, None)
        os.close(program)
        if code < 0:
            raise ProbeFailed(f"not attached: {os.strerror(-code)}")

    in_private_network(attach)
    return "attached in generic mode"


def btf() -> str:
    """The kernel's type information, which BPF programs are compiled against."""
    path = Path("/sys/kernel/btf/vmlinux")
    if not path.exists():
        raise ProbeFailed(f"{path} is missing")
    return str(path)


def qdisc_tracepoints() -> str:
    """The typed tracepoints through which the data plane follows the queue, packet by packet."""
    library = _libbpf()
    library.btf__load_vmlinux_btf.restype = ctypes.c_void_p
    loaded = library.btf__load_vmlinux_btf()
    if not loaded:  # libbpf's functions would follow the null pointer
        raise ProbeFailed("the kernel has no BTF that libbpf can read")
    types = ctypes.c_void_p(loaded)
    missing = [
        name
        for name in ("qdisc_enqueue", "qdisc_dequeue")
        if library.btf__find_by_name_kind(types, f"btf_trace_{name}".encode(), _BTF_TYPEDEF) <= 0
    ]
    library.btf__free(types)
    if missing:
        raise ProbeFailed(f"the kernel has no {', '.join(missing)}")
    return "qdisc_enqueue, qdisc_dequeue"


def ring_buffer() -> str:
    """The map through which the data plane reports flows and queue events."""
    return _supported("BPF ring buffer", _libbpf().libbpf_probe_bpf_map_type(_RINGBUF_MAP, None))


def bpf_timer() -> str:
    """Timers in BPF programs."""
    return _supported("bpf_timer", _libbpf().libbpf_probe_bpf_helper(_SCHED_CLS, _TIMER_INIT, None))


def bpf_programs() -> str:
    """The kernel's verifier accepts the data plane. Nothing is attached, and nothing stays loaded."""
    from libbpf_cffi.libbpf import BpfError, Object

    try:
        with Object(paths.artifact("weir.bpf.o")) as data_plane:
            data_plane.load()
    except (BpfError, paths.ArtifactMissing) as error:
        raise ProbeFailed(str(error)) from error
    return "the data plane loads"


def artifacts(*names: str) -> str:
    """Files that `make bpf` builds."""
    missing = [name for name in names if not (paths.build_dir() / name).is_file()]
    if missing:
        raise ProbeFailed(f"missing in {paths.build_dir()}: {', '.join(missing)}")
    return f"in {paths.build_dir()}"


def bpf_file_system() -> str:
    """The BPF file system, in which the data plane's maps and programs are pinned."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    if not any(fields[1] == "/sys/fs/bpf" and fields[2] == "bpf" for fields in mounts):
        raise ProbeFailed("no BPF file system at /sys/fs/bpf")
    return "/sys/fs/bpf"


def cgroup2() -> str:
    """The place where cgroup 2 is mounted."""
    for line in Path("/proc/mounts").read_text().splitlines():
        if line.split()[2] == "cgroup2":
            return line.split()[1]
    raise ProbeFailed("not mounted")


def congestion_control(name: str) -> Callable[[], str]:
    """A probe that sets the TCP congestion control `name` on a socket."""

    def probe() -> str:
        try:
            congestion.require_settable(name)
        except congestion.TransportError as error:
            raise ProbeFailed(str(error)) from error
        return "set on a socket"

    return probe


def congestion_controls() -> str:
    """The congestion controls that the kernel has now, without those of modules that are not loaded."""
    return ", ".join(congestion.available())


def transport(name: str) -> Callable[[], str]:
    """A probe that the kernel's verifier accepts one of Weir's congestion controls; it registers nothing."""

    def probe() -> str:
        try:
            congestion.check(name)
        except congestion.TransportError as error:
            raise ProbeFailed(str(error)) from error
        return "in the kernel" if name in congestion.available() else f"weir transports load {name}"

    return probe


def open_vswitch() -> str:
    """A running Open vSwitch: its daemon and its database answer."""
    version = run("ovs-appctl", "--timeout=5", "-t", "ovs-vswitchd", "version").splitlines()[0].split()[-1]
    run("ovs-vsctl", "--timeout=5", "show")
    return f"running, {version}"


def fail_mode() -> str:
    """The extended bridges keep their entries when the controller is gone."""
    columns = "--columns=name,fail_mode,external_ids"
    listed = json.loads(run("ovs-vsctl", "--timeout=5", "--format=json", columns, "list", "bridge"))["data"]
    extended = {name: mode for name, mode, (_, ids) in listed if takeover.NAME in dict(ids)}
    if loose := sorted(name for name, mode in extended.items() if mode != takeover.SECURE):
        names = ", ".join(loose)
        raise ProbeFailed(f"bridge {names}: not secure, so its entries vanish when the controller is gone")
    return f"secure on {', '.join(sorted(extended))}" if extended else "no bridge is extended"


def flow_table() -> str:
    """The size of the agent's flow table: that of the settings, or one for this machine's memory."""
    asked = load("switch", SwitchSettings).max_flows
    flows = asked or default_max_flows()
    origin = "[switch] max_flows" if asked else "about 1 % of the memory"
    return f"{flows:,} flows, {flows * FLOW_BYTES >> 20} MB ({origin})"


def kernel_datapath() -> str:
    """Open vSwitch's kernel module, loaded or loadable."""
    if not Path("/sys/module/openvswitch").exists():
        run("modprobe", "--dry-run", "openvswitch")
    return "openvswitch"


def send_buffer() -> str:
    """The default send buffer. If it is small, Open vSwitch drops packets that a port's queue could hold."""
    value = int(Path("/proc/sys/net/core/wmem_default").read_text())
    if value < SEND_BUFFER:
        packets = value // _BUFFER_BYTES_PER_PACKET
        raise ProbeFailed(f"net.core.wmem_default is {value}: Open vSwitch drops above {packets} packets")
    return f"net.core.wmem_default {value}"


def mininet() -> str:
    """Mininet and its helper program."""
    tool("mnexec")
    return run(sys.executable, "-c", "from mininet.net import Mininet, VERSION; print(VERSION)")


def distribution(name: str) -> Callable[[], str]:
    """A probe for an installed Python package; it returns the version."""

    def probe() -> str:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError as error:
            raise ProbeFailed("not installed") from error

    return probe


def python_packages() -> str:
    """Every package that Weir's metadata requires at run time."""
    wanted = [line for line in importlib.metadata.requires("weir") or () if "extra ==" not in line]
    names = [re.split(r"[\s;\[<>=!~]", line, maxsplit=1)[0] for line in wanted]
    missing = []
    for name in names:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        raise ProbeFailed(f"not installed: {', '.join(missing)}")
    return f"{len(names)} of {len(names)}"


def ryu_manager() -> str:
    """The ryu-manager command beside this Python."""
    return run(str(Path(sys.executable).with_name("ryu-manager")), "--version").splitlines()[-1]


def bpftool() -> str:
    """A bpftool that runs."""
    return run(str(paths.PROJECT / "tools" / "bpftool.sh"))


def _make_veth() -> None:
    run("ip", "link", "add", "weir0", "type", "veth", "peer", "name", "weir1")


def _supported(name: str, answer: int) -> str:
    if answer != 1:
        raise ProbeFailed(f"no {name}" if answer == 0 else f"{name}: {os.strerror(-answer)}")
    return "supported"


def _libbpf() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libbpf.so.1")
    except OSError as error:
        raise ProbeFailed("libbpf.so.1 not found") from error
    library.libbpf_set_print(None)
    return library
