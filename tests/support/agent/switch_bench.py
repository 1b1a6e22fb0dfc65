"""A private Open vSwitch with its own run directory, hosts behind it, and the agent."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from openflow_ext import wire
from openflow_ext.switch.dataplane.interface import DataPlaneError
from openflow_ext.switch.dataplane.pinned_maps import PinnedMaps
from openflow_ext.switch.dataplane.rule_maps import ArmedMaps
from openflow_ext.switch.dataplane.rules import Rule
from openflow_ext.switch.openflow import flow_stats
from openflow_ext.switch.openflow import messages as of
from tests.support.agent.network_apart import OWN_SYSFS, network_apart
from tests.support.waiting import DEADLINE_S, wait_until
from weir import probes
from weir_base.port_counters import PortCountersRecord

SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
_MOUNT_RUNDIR = """
mkdir -p /run/openvswitch
mount --bind "$OVS_RUNDIR" /run/openvswitch
OVS_RUNDIR=/var/run/openvswitch exec "$@"
"""


def run(*argv: str, **options: Any) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=DEADLINE_S, **options)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr or done.stdout}"
    return done.stdout


AT_DEFAULT_PLACE = ("unshare", "--mount", "--propagation", "private", "sh", "-ec", _MOUNT_RUNDIR, "sh")
"""A command that Open vSwitch's programs are given to, so that they call their folder by its usual name.

Open vSwitch connects to sockets of controllers in its own run directory only.
"""


class OpenVSwitch:
    """ovsdb-server and ovs-vswitchd below ``folder``, beside the system's own if that runs.

    ``within``: a command that their command lines are given to.
    """

    def __init__(self, folder: Path, within: Sequence[str] = ()) -> None:
        self.rundir = folder
        self.within = within
        self.env = {
            **os.environ,
            "OVS_RUNDIR": str(folder),
            "OVS_DBDIR": str(folder),
            "OVS_LOGDIR": str(folder),
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        run("ovsdb-tool", "create", str(self.rundir / "conf.db"), SCHEMA)
        self.start_server()
        self.vsctl("--no-wait", "init")
        self.start_vswitchd()

    def start_server(self) -> None:
        socket_path = self.rundir / "db.sock"
        self._spawn("ovsdb-server", str(self.rundir / "conf.db"), f"--remote=punix:{socket_path}")
        wait_until(socket_path.exists, "ovsdb-server listens")

    def start_vswitchd(self) -> None:
        self._spawn("ovs-vswitchd", f"unix:{self.rundir}/db.sock", "--pidfile")
        wait_until((self.rundir / "ovs-vswitchd.pid").exists, "ovs-vswitchd runs")

    def _spawn(self, *argv: str) -> None:
        log = (self.rundir / f"{argv[0]}.log").open("ab")
        with log:
            command = [*self.within, *argv]
            self._running[argv[0]] = subprocess.Popen(command, env=self.env, stdout=log, stderr=log)

    def stop(self, name: str) -> None:
        process = self._running.pop(name, None)
        if process is not None:
            process.terminate()
            process.wait(DEADLINE_S)

    def vsctl(self, *argv: str) -> str:
        return run("ovs-vsctl", "-t", "20", *argv, env=self.env).strip()

    def ofctl(self, *argv: str) -> str:
        return run("ovs-ofctl", "-O", "OpenFlow13", *argv, env=self.env)

    def flows(self, bridge: str) -> list[str]:
        """The flow entries, without the counters that change."""
        lines = self.ofctl("--no-stats", "dump-flows", bridge).splitlines()
        return [line.strip() for line in lines if "reply" not in line]


class Agent:
    """``weir switch`` as a process."""

    def __init__(self, *argv: str, env: dict[str, str], within: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen(
            [*within, sys.executable, "-W", "ignore", "-m", "weir", "switch", "--json", *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
        )
        self.lines: list[dict[str, Any]] = []

    def await_event(self, name: str) -> dict[str, Any]:
        """Read lines until an event of this name."""
        assert self.process.stdout is not None
        for text in self.process.stdout:
            assert text.startswith("{"), text + self.process.stdout.read()
            self.lines.append(json.loads(text))
            if self.lines[-1]["event"] == name:
                return self.lines[-1]
        raise AssertionError(f"no {name} event, but {self.lines}")

    def end(self, number: int | None = signal.SIGTERM) -> int:
        """Send a signal and return the exit code; None: wait for the agent to end without a signal."""
        if number is not None and self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(DEADLINE_S)
        if self.process.stdout is not None and not self.process.stdout.closed:
            print("the agent said:", self.process.stdout.read())
            self.process.stdout.close()
        return code


class Controller:
    """A scripted controller: OpenFlow on a blocking socket."""

    def __init__(self, version: int = of.OFP13) -> None:
        self.version = version
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(DEADLINE_S)
        self.target = f"tcp:127.0.0.1:{self.listener.getsockname()[1]}"
        self.sock: socket.socket | None = None

    def accept(self) -> None:
        """Take the next session through its handshake, and skip sessions that the agent has given up."""
        while True:
            self.hang_up()
            self.sock, _ = self.listener.accept()
            self.sock.settimeout(DEADLINE_S)
            with contextlib.suppress(ConnectionError):
                self.send(of.HEADER.pack(self.version, 0, 8, 1))
                self.send(of.HEADER.pack(self.version, 5, 8, 2))
                self.answer_of(2)
                return

    def send(self, *messages: bytes) -> None:
        assert self.sock is not None
        self.sock.sendall(b"".join(messages))

    def receive(self) -> bytes:
        """The next message; echo requests before it are answered."""
        while True:
            head = self._exactly(8)
            message = head + self._exactly(of.HEADER.unpack(head)[2] - 8)
            if message[1] != 2:
                return message
            self.send(message[:1] + b"\x03" + message[2:])

    def _exactly(self, size: int) -> bytes:
        assert self.sock is not None
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                raise ConnectionResetError("the session ended")
            data += more
        return data

    def answer_of(self, xid: int) -> bytes:
        """The answer to a request; earlier messages are skipped."""
        while of.HEADER.unpack_from(message := self.receive())[3] != xid or message[1] == 0:
            pass
        return message

    def next_of(self, of_type: int) -> bytes:
        """The next message of a type; other messages before it are skipped."""
        while (message := self.receive())[1] != of_type:
            pass
        return message

    def flows(self) -> list[bytes]:
        """The replies to a request for all flow entries."""
        self.send(flow_stats.request(self.version, 0xF1))
        got = [self.answer_of(0xF1)]
        while got[-1][11] & of.OFPMPF_MORE:
            got.append(self.answer_of(0xF1))
        return got

    def ask(self, message: bytes) -> bytes:
        self.send(message)
        return self.answer_of(of.HEADER.unpack_from(message)[3])

    def barrier(self, xid: int = 0xBA) -> list[bytes]:
        """The messages before the answer to a barrier."""
        self.send(of.HEADER.pack(self.version, 20, 8, xid))
        got = []
        while (message := self.receive())[1] != 21:
            got.append(message)
        return got

    def event(self) -> wire.Message:
        """The next message of the extension."""
        while True:
            message = self.receive()
            if message[1] == of.OFPT_EXPERIMENTER:
                return wire.decode_message(message)

    def hang_up(self) -> None:
        if self.sock is not None:
            self.sock.close()

    def close(self) -> None:
        self.hang_up()
        self.listener.close()


class Bench:
    """One bridge with two hosts behind it, in namespaces; names are unique to this process."""

    def __init__(self, ovs: OpenVSwitch, datapath: str = "netdev") -> None:
        self.ovs = ovs
        self.datapath = datapath
        self.name = f"wt{os.getpid() % 100000}"
        self.bridge = f"{self.name}b"
        self.agents: list[Agent] = []
        self.within: Sequence[str] = ()
        """A command that the agents' command line is given to."""

    def port(self, number: int) -> str:
        return f"{self.name}p{number}"

    def host(self, number: int) -> str:
        return f"{self.name}h{number}"

    def inside(self, number: int, *argv: str) -> list[str]:
        """A command line that runs in a host."""
        return ["ip", "netns", "exec", self.host(number), *argv]

    def build(self) -> None:
        self.add_bridge()
        self.ovs.vsctl("set-fail-mode", self.bridge, "secure")
        for number in (1, 2):
            run("ip", "netns", "add", self.host(number))
            self.plug(number)

    def add_bridge(self) -> None:
        kind = f"datapath_type={self.datapath}"
        self.ovs.vsctl("add-br", self.bridge, "--", "set", "bridge", self.bridge, kind)

    def plug(self, number: int) -> None:
        """Give a host a link to the bridge."""
        port, host = self.port(number), self.host(number)
        run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
        run("ip", "link", "set", port, "up")
        run("ip", "-n", host, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
        run("ip", "-n", host, "link", "set", "eth0", "up")
        run(*self.inside(number, "ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off"))
        place = ("--", "set", "interface", port, f"ofport_request={number}")
        self.ovs.vsctl("--may-exist", "add-port", self.bridge, port, *place)

    def tear_down(self) -> None:
        for agent in self.agents:
            agent.end(signal.SIGKILL)
        self.agent("--detach", env_only=True).end(None)
        with contextlib.suppress(AssertionError):
            self.ovs.vsctl("--if-exists", "del-br", self.bridge)
        for number in (1, 2):
            subprocess.run(["ip", "netns", "del", self.host(number)], check=False, capture_output=True)
            subprocess.run(["ip", "link", "del", self.port(number)], check=False, capture_output=True)

    def agent(self, *argv: str, env_only: bool = False) -> Agent:
        """Start an agent for this bridge."""
        options = () if env_only else ("--bridge", self.bridge)
        within = (*OWN_SYSFS, *self.within)
        agent = Agent("--name", self.name, *options, *argv, env=self.ovs.env, within=within)
        self.agents.append(agent)
        return agent

    def ready_agent(self, controller: Controller | str) -> Agent:
        target = controller if isinstance(controller, str) else controller.target
        agent = self.agent("--controller", target)
        ready = agent.await_event("ready")
        assert ready["failed"] == []
        return agent

    def ping(self, count: int = 1) -> bool:
        argv = ("ping", "-c", str(count), "-i", "0.2", "-W", "1", "10.77.0.2")
        done = subprocess.run(self.inside(1, *argv), check=False, capture_output=True)
        return done.returncode == 0

    def connect_once(self, port: int) -> None:
        """Host 1 opens a TCP connection to host 2 and sends a byte; both close the connection."""
        serve = (
            "import socket, sys; s = socket.create_server(('', int(sys.argv[1]))); print(flush=True);"
            " c, _ = s.accept(); c.recv(9); c.close()"
        )
        call = "import socket, sys; c = socket.create_connection(('10.77.0.2', int(sys.argv[1])), 20);"
        call += " c.send(b'x'); c.recv(9); c.close()"
        argv = (sys.executable, "-I", "-c", serve, str(port))
        with subprocess.Popen(self.inside(2, *argv), stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            server.stdout.readline()
            try:
                run(*self.inside(1, sys.executable, "-I", "-c", call, str(port)))
            except AssertionError:
                server.kill()  # it would wait for ever
                raise

    def sent_bytes(self, number: int) -> int:
        """The bytes that have left by a port."""
        (link,) = json.loads(run("ip", "-s", "-j", "link", "show", self.port(number)))
        return int(link["stats64"]["tx"]["bytes"])

    def _controller_rows(self) -> dict[str, str]:
        """The UUIDs of the bridge's controllers, by target."""
        uuids = self.ovs.vsctl("get", "bridge", self.bridge, "controller").strip("[]").split(", ")
        return {self.ovs.vsctl("get", "controller", u, "target").strip('"'): u for u in uuids if u}

    def controllers(self) -> list[str]:
        return list(self._controller_rows())

    def bridge_controller(self, target: str) -> str:
        """The row of one of the bridge's controllers."""
        return self._controller_rows()[target]

    def counters(self, ifname: str) -> PortCountersRecord:
        with contextlib.closing(PinnedMaps(self.name)) as maps:
            return maps.counters(socket.if_nametoindex(ifname))

    def port_counters(self, number: int) -> PortCountersRecord:
        return self.counters(self.port(number))

    def shape(self, number: int, rate_mbit: int) -> None:
        """Give a port a rate and a queue of 150,000 bytes."""
        tbf = ("tbf", "rate", f"{rate_mbit}mbit", "burst", "15k", "limit", "150000")
        run("tc", "qdisc", "replace", "dev", self.port(number), "root", *tbf)

    def shape_by_ovs(self, number: int, rate_mbit: int, queue_pkts: int) -> None:
        """Give a port a rate and a queue by Open vSwitch, which restores both whenever it opens the port."""
        run("ip", "link", "set", "dev", self.port(number), "txqueuelen", str(queue_pkts))
        max_rate = f"other-config:max-rate={rate_mbit * 1_000_000}"
        qos = ("--id=@qos", "create", "qos", "type=linux-htb", max_rate)
        self.ovs.vsctl(*qos, "--", "set", "port", self.port(number), "qos=@qos")

    def attached(self) -> dict[str, int]:
        """The OpenFlow numbers of the ports that carry the programs, by interface name."""
        with contextlib.closing(PinnedMaps(self.name)) as maps:
            names = dict(socket.if_nameindex())
            return {names.get(i, f"#{i}"): ofport for i, (_, ofport) in maps.ports().items()}

    def rules(self) -> list[Rule]:
        with contextlib.closing(PinnedMaps(self.name)) as maps:
            return [rule for rule, _ in maps.rules(1)]

    def armed(self, number: int) -> list[Rule]:
        """The reflex entries of a port, by rank."""
        with contextlib.closing(PinnedMaps(self.name)) as maps:
            held = ArmedMaps(maps.maps["armed_rules"])
            return [rule for rule, _ in held.of(socket.if_nametoindex(self.port(number)))]

    def leftovers(self) -> list[str]:
        """The traces of an agent that are still on the machine."""
        found = []
        for number in (1, 2):
            port = self.port(number)
            if '"xdp"' in run("ip", "-j", "link", "show", port):
                found.append(f"XDP on {port}")
            if "clsact" in run("tc", "qdisc", "show", "dev", port):
                found.append(f"clsact on {port}")
        try:
            PinnedMaps(self.name).close()
            found.append("pins")
        except DataPlaneError:
            pass
        if Path("/sys/fs/bpf", self.name).exists():
            found.append("folder of pins")
        found += [path.name for path in self.ovs.rundir.glob("*.controller*")]
        found += [path.name for path in self.ovs.rundir.glob("*weir*")]
        if "weir" in self.ovs.vsctl("get", "bridge", self.bridge, "external_ids"):
            found.append("external_ids")
        return found


@contextlib.contextmanager
def open_vswitch(within: Sequence[str] = ()) -> Iterator[OpenVSwitch]:
    folder = Path(tempfile.mkdtemp(prefix="weir-ovs-"))
    ovs = OpenVSwitch(folder, within)
    try:
        ovs.start()
        yield ovs
    finally:
        ovs.stop("ovs-vswitchd")
        ovs.stop("ovsdb-server")
        shutil.rmtree(folder)


@contextlib.contextmanager
def built_bench(datapath: str, within: Sequence[str] = ()) -> Iterator[Bench]:
    """A bench on an Open vSwitch of its own, in a network namespace that this thread is in as well."""
    with network_apart(), open_vswitch(within) as ovs:
        bench = Bench(ovs, datapath)
        try:
            bench.build()
            yield bench
        finally:
            bench.tear_down()


def datapaths() -> tuple[str, ...]:
    """Open vSwitch's datapaths on this machine: the one in the kernel needs a module."""
    try:
        probes.kernel_datapath()
    except probes.ProbeFailed:
        return ("netdev",)
    return ("netdev", "system")
