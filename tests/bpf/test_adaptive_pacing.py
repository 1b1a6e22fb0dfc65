"""The controls of Adaptive Pacing between two network namespaces: n, t, the pacing rate, and their paths."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.data_plane.scripted_wire import MSS, Connection, Wire, scripted_wire
from transports import cli, pacing_paths
from transports.congestion import BPFFS, TransportError
from transports.congestion import PATHS as PATHS_MAP
from transports.pacing_paths import FlowsFrom, PacingPath
from transports.sockets import DctcpSocket, socket_reader
from weir_base.paths import PROJECT

CONTROLS = ("weir_ap_reno", "weir_ap_dctcp", "weir_ap_d2tcp", "weir_ap_l2dct")
RENO = CONTROLS[0]
PACING_RATE_AT, SEND_WINDOW_AT = 104, 228
"""tcpi_pacing_rate and tcpi_snd_wnd in struct tcp_info."""
CWND_AT = 80
"""tcpi_snd_cwnd."""
PATHS = 16_384
"""The room of the map of paths (weir_pacing.bpf.h)."""
HEADERS = 66
"""Of a segment in a queue: Ethernet, IPv4, TCP with timestamps."""
SO_MAX_PACING_RATE = 47
SLOW_RATE = 1_000_000
RESET_AT_CLOSE = struct.pack("ii", 1, 0)
SCARCE = PacingPath(buffer_bytes=1, rate_bps=8_000, flows=60)
"""A bottleneck so slow that t is RTT / w."""
AMPLE = PacingPath(buffer_bytes=1 << 30, rate_bps=10**9, flows=60)
"""60 windows of any size fit into its queue."""


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with scripted_wire(tmp_path_factory.mktemp("script"), *CONTROLS) as wire:
        yield wire
    assert not list(BPFFS.glob("weir_ap*"))


@pytest.fixture
def network(wire: Wire) -> Iterator[pacing_paths.Network]:
    """The destination of connections; its path is removed at the end."""
    wire.play()
    with wire.connection("reno", "reno") as connection:
        network = ipaddress.ip_network(connection.client.getpeername()[0])
    yield network
    wire.sender.run(lambda: pacing_paths.remove_path(network))


@contextmanager
def paced(
    wire: Wire, network: pacing_paths.Network, path: PacingPath, control: str = RENO
) -> Iterator[Connection]:
    """A connection over a path."""
    wire.sender.run(lambda: pacing_paths.set_path(network, path))
    wire.play()
    with wire.connection(control, control) as connection:
        yield connection


def held(wire: Wire, connection: Connection) -> DctcpSocket:
    local = connection.client.getsockname()
    with socket_reader() as reader:
        return next(one for one in wire.sender.run(reader.read) if one.local == local)


def pacing_rate(connection: Connection) -> int:
    info = connection.client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return int(struct.unpack_from("=Q", info, PACING_RATE_AT)[0])


def send_window(connection: Connection) -> int:
    info = connection.client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return int(struct.unpack_from("=I", info, SEND_WINDOW_AT)[0])


def cwnd(connection: Connection) -> int:
    info = connection.client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return int(struct.unpack_from("=I", info, CWND_AT)[0])


@pytest.mark.parametrize("name", CONTROLS)
def test_a_scarce_bottleneck_spreads_the_window_over_the_rtt(
    wire: Wire, network: pacing_paths.Network, name: str
) -> None:
    with paced(wire, network, SCARCE, name) as connection:
        connection.send(200)
        found = held(wire, connection)
        assert (found.control, found.flows, found.flows_from) == (name, 60, "operator")
        assert 0 < found.interval_us <= 2 * found.srtt_us / 2
        least = MSS / (2 * found.interval_us * 1e-6)
        assert pacing_rate(connection) >= least * 0.99
        assert found.pacing_rate_bps == 8 * pacing_rate(connection)
        assert found.flows_age_s is not None


def longest_train(wire: Wire, network: pacing_paths.Network) -> int:
    """The bytes of the longest packet that a paced connection hands to its interface."""
    with paced(wire, network, SCARCE) as connection:
        connection.send(200)
        assert held(wire, connection).interval_us > 0
        return max(one.length for one in connection.seen() if one.out)


def test_intervals_are_between_trains_of_the_interface(wire: Wire, network: pacing_paths.Network) -> None:
    """On short round trips the kernel makes long trains, unless the interface's gso_max_segs is 1."""
    assert longest_train(wire, network) == MSS
    with wire.trains():
        assert longest_train(wire, network) >= 4 * MSS


def test_an_ample_bottleneck_paces_nothing(wire: Wire, network: pacing_paths.Network) -> None:
    with paced(wire, network, AMPLE) as connection:
        connection.send(200)
        found = held(wire, connection)
    assert (found.flows, found.interval_us) == (60, 0)


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize(("packets", "cwnd"), [(180, 3), (59, 2), (6000, 10)])
def test_the_first_window_is_one_that_needs_no_pacing(
    wire: Wire, network: pacing_paths.Network, name: str, packets: int, cwnd: int
) -> None:
    """The kernel does not pace the first ten segments. Linux's own first window is ten.

    A window of one segment is full, so that its ACK makes it two.
    """
    path = PacingPath(buffer_bytes=packets * (MSS + HEADERS), rate_bps=10**9, flows=60)
    with paced(wire, network, path, name) as connection:
        connection.send(1)
        assert held(wire, connection).cwnd == cwnd
        connection.send(200)
        assert held(wire, connection).cwnd > cwnd, "later windows grow as under the base"


def test_n_is_the_allowance_divided_by_the_advertised_window(
    wire: Wire, network: pacing_paths.Network
) -> None:
    path = PacingPath(buffer_bytes=1, rate_bps=8_000, flows=60, allowance_bytes=1 << 30)
    with paced(wire, network, path) as connection:
        connection.send(200)
        for _ in range(20):  # the receiver's window settles
            connection.send(1)
        found = held(wire, connection)
        assert found.flows_from == "window"
        assert found.flows == pytest.approx((1 << 30) / send_window(connection), rel=0.1)


def test_n_of_the_window_before_a_pause_gives_way_to_a_larger_one(
    wire: Wire, network: pacing_paths.Network
) -> None:
    path = PacingPath(buffer_bytes=1, rate_bps=8_000, flows=65_536, allowance_bytes=1 << 30)
    with paced(wire, network, path) as connection:
        sources = []
        connection.send(50)
        for pause_s in (0, 0.6, 0):  # longer than an RTO of 200 ms
            time.sleep(pause_s)
            connection.send(1)
            sources.append(held(wire, connection).flows_from)
    assert sources == ["window", "operator", "window"]


def test_destinations_of_open_connections_come_first(wire: Wire, network: pacing_paths.Network) -> None:
    wire.play()
    with wire.connection(RENO, RENO) as connection:
        connection.send(20)
        own = wire.sender.run(pacing_paths.this_namespace)
        assert pacing_paths.destinations_by_namespace()[own][0] == network.network_address
        assert pacing_paths.this_namespace() not in pacing_paths.destinations_by_namespace()


def test_without_a_path_nothing_is_paced(wire: Wire) -> None:
    wire.play()
    with wire.connection(RENO, RENO) as connection:
        connection.send(200)
        found = held(wire, connection)
    assert (found.flows_from, found.interval_us, found.flows_age_s) == ("not_paced", 0, None)


def test_a_removed_path_leaves_neither_n_nor_an_interval(wire: Wire, network: pacing_paths.Network) -> None:
    with paced(wire, network, SCARCE) as connection:
        connection.send(50)
        assert held(wire, connection).flows == SCARCE.flows
        wire.sender.run(lambda: pacing_paths.remove_path(network))
        connection.send(50)
        found = held(wire, connection)
    assert (found.flows, found.flows_from, found.interval_us) == (0, "not_paced", 0)


@pytest.mark.parametrize("name", CONTROLS)
def test_no_connection_paces_faster_than_its_application_allows(wire: Wire, name: str) -> None:
    wire.play()
    with wire.connection(name, name) as connection:
        connection.send(200)
        assert pacing_rate(connection) > SLOW_RATE
        connection.client.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, SLOW_RATE)
        connection.send(200)
        assert pacing_rate(connection) == SLOW_RATE


def test_a_host_counts_its_open_senders_if_no_n_is_stated(wire: Wire, network: pacing_paths.Network) -> None:
    path = PacingPath(buffer_bytes=1, rate_bps=8_000)
    wire.sender.run(lambda: pacing_paths.set_path(network, path))

    def another(to: tuple[str, int]) -> socket.socket:
        more = socket.socket()
        more.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, RENO.encode())
        more.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        more.connect(to)
        more.sendall(bytes(1000))
        return more

    counts = []
    wire.play()
    with wire.connection(RENO, RENO) as connection:
        for others in (0, 2, 0):
            with ExitStack() as opened:
                for _ in range(others):
                    to = connection.client.getpeername()
                    opened.enter_context(wire.sender.run(lambda to=to: another(to)))
                connection.send(20)
                found = held(wire, connection)
                assert found.flows_from == "counted"
                counts.append(found.flows)
    assert counts == [1, 3, 1]


def test_n_that_is_too_old_gives_way_to_the_count(wire: Wire, network: pacing_paths.Network) -> None:
    path = PacingPath(buffer_bytes=1, rate_bps=8_000, flows=60, lifetime_s=1e-9)
    with paced(wire, network, path) as connection:
        connection.send(20)
        found = held(wire, connection)
    assert (found.flows, found.flows_from) == (1, "counted")


def test_paths_are_set_listed_and_removed(wire: Wire) -> None:
    runner = CliRunner()
    values = ("--buffer-bytes", "150000", "--rate-mbps", "100", "--flows", "60", "--k", "0.5")
    for network in ("10.9.0.0/16", "fd00:9::/32"):
        pid = ("--pid", str(os.getpid()))
        assert runner.invoke(cli.transports, ["path", "set", network, *values, *pid]).exit_code == 0
    rows = json.loads(runner.invoke(cli.transports, ["path", "list", "--json"]).stdout)
    assert sorted(row["destination"] for row in rows) == ["10.9.0.0/16", "fd00:9::/32"]
    assert rows[0] | {"destination": ""} == {
        "destination": "",
        "flows": 60,
        "k": 0.5,
        "buffer_bytes": 150_000,
        "rate_bps": 100_000_000,
        "allowance_bytes": 0,
        "lifetime_s": 0.0,
        "age_s": rows[0]["age_s"],
        "flows_from": "operator",
    }
    assert 0 <= rows[0]["age_s"] < 60
    assert wire.sender.run(pacing_paths.paths) == {}, "another namespace has its own"
    for network in ("10.9.0.0/16", "fd00:9::/32"):
        assert "removed" in runner.invoke(cli.transports, ["path", "remove", network]).stdout
        assert "not set" in runner.invoke(cli.transports, ["path", "remove", network]).stdout


@pytest.mark.parametrize(
    ("path", "named"),
    [
        (PacingPath(0, 10**8), "buffer_bytes is 0"),
        (PacingPath(1, 0), "rate_bps is 0"),
        (PacingPath(1, 1 << 60), "rate_bps is"),
        (PacingPath(1, 10**8, k=0), "k is 0"),
        (PacingPath(1, 10**8, flows=65_537), "flows is 65537"),
        (PacingPath(1, 10**8, lifetime_s=-1), "lifetime_s is -1"),
        (PacingPath(1, 10**8, allowance_bytes=1 << 32), "allowance_bytes is 4294967296"),
        (PacingPath(1, 10**8, age_s=float("nan")), "age_s is nan"),
    ],
)
def test_absurd_paths_are_refused(path: PacingPath, named: str) -> None:
    with pytest.raises(TransportError, match=named):
        pacing_paths.set_path(ipaddress.ip_network("10.9.0.0/16"), path)


def test_a_full_map_of_paths_refuses_more_and_keeps_pacing(wire: Wire, network: pacing_paths.Network) -> None:
    others = [ipaddress.ip_network(f"10.9.{at // 256}.{at % 256}") for at in range(PATHS)]
    wire.sender.run(lambda: pacing_paths.set_path(network, SCARCE))
    written: list[pacing_paths.Network] = []

    def fill() -> None:
        for other in others:
            pacing_paths.set_path(other, AMPLE)
            written.append(other)

    try:
        with pytest.raises(TransportError, match="remove paths that are not used"):
            fill()
        wire.play()
        with wire.connection(RENO, RENO) as connection:
            connection.send(50)
            assert held(wire, connection).flows == SCARCE.flows
    finally:
        for other in written:
            pacing_paths.remove_path(other)
    assert PATHS - len(written) < 10, "other tests may have a few paths"


def test_a_user_without_rights_is_refused(wire: Wire) -> None:
    """Root's maps cannot be read by others, and the error says how."""
    command = ("setpriv", "--reuid", "65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all")
    weir = (sys.executable, "-m", "weir", "transports", "path", "list")
    refused = subprocess.run((*command, *weir), cwd=PROJECT, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "run it as root" in refused.stderr


def forge(network: pacing_paths.Network, **values: int) -> None:
    """Write values into the map as they are, as a program with root's rights could."""
    with pacing_paths._pinned(PATHS_MAP, "struct ap_path_key", "struct weir_ap_path") as paths:
        usual = {
            "buffer_bytes": 1,
            "bytes_per_s": 1000,
            "n_updated_ns": 1,
            "flows": 60,
            "k": 256,
            "source": 2,
        }
        paths.put(pacing_paths._key(paths, network, None), paths.value(usual | values))


@pytest.mark.parametrize(
    ("forged", "flows", "flows_from"),
    [
        ({"flows": 1}, 1, "operator"),
        ({"flows": 65_536}, 65_536, "operator"),
        ({"flows": 2**32 - 1}, 1, "counted"),
        ({"k": 2**32 - 1}, 0, "not_paced"),
        ({"bytes_per_s": 0}, 0, "not_paced"),
        ({"buffer_bytes": 0}, 0, "not_paced"),
        ({"n_updated_ns": 2**64 - 1, "n_lifetime_ns": 1}, 1, "counted"),
        ({"allowance_bytes": 2**32 - 1, "flows": 2**32 - 1}, None, "window"),
    ],
)
def test_forged_values_stall_nothing(
    wire: Wire, network: pacing_paths.Network, forged: dict[str, int], flows: int | None, flows_from: str
) -> None:
    """t is at most RTT / w, and a value that cannot be is not used."""
    wire.sender.run(lambda: forge(network, **forged))
    wire.play()
    with wire.connection(RENO, RENO) as connection:
        connection.send(200)
        found = held(wire, connection)
    assert found.flows_from == flows_from
    assert flows in (None, found.flows)
    assert found.interval_us <= found.srtt_us


def test_a_sender_that_believes_in_one_flow_has_the_windows_of_reno(
    wire: Wire, network: pacing_paths.Network
) -> None:
    """n = 1 is the least that a host can claim: it sends then as plain TCP does, and no faster."""
    path = PacingPath(buffer_bytes=1 << 30, rate_bps=10**9, flows=1)
    wire.sender.run(lambda: pacing_paths.set_path(network, path))
    cwnds = []
    for control in (RENO, "reno"):
        wire.play()
        with wire.connection(control, control) as connection:
            connection.send(10)
            cwnds.append(cwnd(connection))
    assert cwnds[0] <= cwnds[1]


def test_without_a_control_the_error_says_what_to_load(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pacing_paths, "BPFFS", tmp_path)
    with pytest.raises(TransportError, match="weir transports load weir_ap_reno"):
        pacing_paths.paths()


def test_sources_are_named_as_in_c() -> None:
    assert [one.name for one in FlowsFrom] == ["NOT_PACED", "COUNTED", "OPERATOR", "NETWORK", "WINDOW"]
