"""A switch over a real socket that sends the messages a test gives it, and frames as hosts send them."""

import contextlib
import ipaddress
import itertools
import socket
import struct
import threading
import time
from dataclasses import dataclass, field

from openflow_ext import registry, wire
from openflow_ext.engine import ofproto_v1_3_parser as parser
from openflow_ext.sessions.guard import TlsConnection
from openflow_ext.wire import OFP13
from tests.support.waiting import DEADLINE_S, wait_until

registry.install("ryu")

HELLO, ECHO_REQUEST, ECHO_REPLY, FEATURES_REQUEST, FEATURES_REPLY = 0, 2, 3, 5, 6
PACKET_IN, FLOW_REMOVED, PACKET_OUT, FLOW_MOD = 10, 11, 13, 14
PORT_DESC, FLOW_STATS = 13, 1
FIN, SYN, RST, ACK = 1, 2, 4, 16


def mac(number):
    return f"00:00:00:00:00:{number:02x}"


def ethernet(src, dst, eth_type, payload):
    return bytes.fromhex((dst + src).replace(":", "")) + struct.pack("!H", eth_type) + payload


def segment(src, dst, flags, seq=100, ack=0, options=b"", sport=1000, dport=80):
    """An IPv4 TCP segment from host ``src`` to host ``dst`` (numbers), without payload."""
    options += b"\0" * (-len(options) % 4)
    tcp = struct.pack("!HHIIBBHHH", sport, dport, seq, ack, (20 + len(options)) << 2, flags, 64240, 0, 0)
    ip = struct.pack(
        "!BBHHHBBH4B4B", 0x45, 0, 40 + len(options), 0, 0, 64, 6, 0, 10, 0, 0, src, 10, 0, 0, dst
    )
    return ethernet(mac(src), mac(dst), 0x0800, ip + tcp + options)


def syn_options(mss=1460, wscale=9):
    scale = b"" if wscale is None else struct.pack("!BBBB", 1, 3, 3, wscale)
    return struct.pack("!BBH", 2, 4, mss) + scale


def handshake(client, server, sport=1000, dport=80, client_seq=100, server_seq=500, wscales=(9, 7)):
    """The SYN and the SYN-ACK of a connection."""
    syn = segment(client, server, SYN, client_seq, 0, syn_options(wscale=wscales[0]), sport, dport)
    answer = syn_options(1400, wscales[1])
    return syn, segment(server, client, SYN | ACK, server_seq, client_seq + 1, answer, dport, sport)


def arp(op, src, target, dst_mac="ff:ff:ff:ff:ff:ff"):
    head = struct.pack("!HHBBH", 1, 0x0800, 6, 4, op)
    ours = bytes.fromhex(mac(src).replace(":", "")) + bytes([10, 0, 0, src])
    return ethernet(mac(src), dst_mac, 0x0806, head + ours + bytes(6) + bytes([10, 0, 0, target]))


def solicitation(src, sender, target):
    """A neighbour solicitation of host ``src``, from one IPv6 address, for another; checksum left out."""
    ours, asked = (ipaddress.IPv6Address(ip).packed for ip in (sender, target))
    to = bytes.fromhex("ff0200000000000000000001ff") + asked[13:]
    body = struct.pack("!BBHI", 135, 0, 0, 0) + asked
    head = struct.pack("!IHBB", 6 << 28, len(body), 58, 255)
    return ethernet(mac(src), "33:33:ff:" + asked[13:].hex(":"), 0x86DD, head + ours + to + body)


def dhcp_ack(client, ip):
    """A DHCP server's ACK, broadcast, that gives a host an address."""
    hardware = bytes.fromhex(mac(client).replace(":", "")).ljust(16, b"\0")
    body = struct.pack(
        "!4s12x4s8x16s192xI", b"\2\1\6\0", ipaddress.IPv4Address(ip).packed, hardware, 0x63825363
    )
    body += b"\0\x36\4\x0a\0\0\x01\x35\1\5\xff"
    udp = struct.pack("!HHHH", 67, 68, 8 + len(body), 0)
    head = struct.pack("!BBHHHBBH4B4B", 0x45, 0, 28 + len(body), 0, 0, 64, 17, 0, 10, 0, 0, 2, *[255] * 4)
    return ethernet(mac(2), "ff:ff:ff:ff:ff:ff", 0x0800, head + udp + body)


@dataclass
class FlowMod:
    """The fields of a FLOW_MOD that tests look at; ``extension`` holds the extension's actions."""

    cookie: int
    cookie_mask: int
    table_id: int
    command: int
    idle_timeout: int
    hard_timeout: int
    priority: int
    match: dict
    goto: int | None = None
    extension: list = field(default_factory=list)


def parse_flow_mod(data: bytes) -> FlowMod:
    values = struct.unpack_from("!QQBBHHH", data, 8)
    match = parser.OFPMatch.parser(data, 48)
    length = struct.unpack_from("!H", data, 50)[0]
    parsed = FlowMod(*values, dict(match.items()))
    at = 48 + (length + 7) // 8 * 8
    while at < len(data):
        instruction = parser.OFPInstruction.parser(data, at)
        parsed.goto = getattr(instruction, "table_id", parsed.goto)
        parsed.extension += [a for a in getattr(instruction, "actions", []) if hasattr(a, "wire_cls")]
        at += instruction.len
    return parsed


class ScriptedSwitch:
    """A switch that does the handshake, answers common requests, and keeps every message it receives."""

    def __init__(self, port, dpid=1, ports=(1, 2, 3), hosts=(), tls=None):
        self.dpid, self.ports, self.hosts = dpid, ports, hosts
        self.received = []
        self._xids = itertools.count(1)
        self._news = threading.Condition()
        self._ports_told = False
        self.ended = threading.Event()
        self._socket = _connect(port)
        if tls is not None:
            self._socket = TlsConnection(tls.wrap_socket(self._socket, server_hostname="127.0.0.1"))
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self.send(HELLO, b"")
        except OSError:  # the controller has refused its certificate
            self.close()
            raise

    def close(self):
        with contextlib.suppress(OSError):  # the controller closed the connection first
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def send(self, of_type, body, xid=None):
        xid = next(self._xids) if xid is None else xid
        self._socket.sendall(struct.pack("!BBHI", OFP13, of_type, 8 + len(body), xid) + body)

    def packet_in(self, in_port, frame, cookie=0x5745_4901_0000_0000):
        """Send a packet-in. The first one waits until the controller has the ports: earlier ones are dropped.

        os-ken's threads may send entries before they have asked for the ports.
        """
        if not self._ports_told:
            self.wait(lambda: [data for data in self.received if _asks_for_ports(data)])
            self.barrier()
            self._ports_told = True
        match = struct.pack("!HHIII", 1, 12, 0x8000_0004, in_port, 0)
        head = struct.pack("!IHBBQ", 0xFFFFFFFF, len(frame), 1, 2, cookie)
        self.send(PACKET_IN, head + match + b"\0\0" + frame)

    def send_raw(self, data):
        self._socket.sendall(data)

    def extension(self, message):
        self.send_raw(wire.encode_message(message, xid=next(self._xids)))

    def flow_mods(self, **wanted):
        """The FLOW_MODs received so far whose fields have the wanted values."""
        mods = [parse_flow_mod(data) for data in list(self.received) if data[1] == FLOW_MOD]
        return [mod for mod in mods if all(getattr(mod, name) == value for name, value in wanted.items())]

    def wait(self, look, timeout_s=DEADLINE_S):
        """Wait until ``look()`` returns something true, and return that."""
        deadline = time.monotonic() + timeout_s
        with self._news:
            while not (found := look()):
                assert not self.ended.is_set(), "the controller ended the session"
                assert self._news.wait(deadline - time.monotonic()), (
                    f"the controller did not answer; received types: {[data[1] for data in self.received]}"
                )
        return found

    def barrier(self):
        """Wait until the controller has read everything sent so far: it answers an echo request."""
        xid = next(self._xids)
        self.send(ECHO_REQUEST, b"", xid)
        self.wait(
            lambda: [m for m in self.received if m[1] == ECHO_REPLY and m[4:8] == struct.pack("!I", xid)]
        )

    def is_accepted(self):
        """Whether the controller has accepted the datapath id: then it asks for the ports."""
        return any(_asks_for_ports(data) for data in self.received)

    def joined(self):
        """Wait until the controller has accepted the datapath id."""
        self.wait(self.is_accepted)

    def is_served(self):
        """The controller answers within 5 s, also on a busy machine."""
        began = time.monotonic()
        self.barrier()
        assert time.monotonic() - began < 5.0

    def _read(self):
        with contextlib.suppress(OSError):  # the controller was killed
            while head := self._exactly(8):
                data = head + self._exactly(int.from_bytes(head[2:4], "big") - 8)
                self._answer(data)
                with self._news:
                    self.received.append(data)
                    self._news.notify_all()
        with self._news:
            self.ended.set()
            self._news.notify_all()

    def _exactly(self, size):
        """The next ``size`` bytes, or fewer at the end of the connection."""
        data = b""
        while len(data) < size and (more := self._socket.recv(size - len(data))):
            data += more
        return data

    def _answer(self, data):
        of_type, xid = data[1], int.from_bytes(data[4:8], "big")
        if of_type == FEATURES_REQUEST:
            self.send(FEATURES_REPLY, struct.pack("!QIBB2xII", self.dpid, 0, 254, 0, 0, 0), xid)
        elif of_type == ECHO_REQUEST:
            self.send(ECHO_REPLY, data[8:], xid)
        elif _asks_for_ports(data):
            ports = b"".join(wire.encode_port(wire.OfpPort(number, name=b"p")) for number in self.ports)
            self.send(19, struct.pack("!HH4x", PORT_DESC, 0) + ports, xid)
        elif of_type == 18 and data[8:10] == struct.pack("!H", FLOW_STATS):
            self.send(19, struct.pack("!HH4x", FLOW_STATS, 0) + b"".join(map(_host_entry, self.hosts)), xid)


def _asks_for_ports(data):
    return data[1] == 18 and data[8:10] == struct.pack("!H", PORT_DESC)


def _host_entry(host):
    """The flow statistics of an entry that an earlier fabric made to forward to a host, (MAC, port)."""
    address, port_no = host
    match = struct.pack("!HHI", 1, 14, 0x8000_0606) + bytes.fromhex(address.replace(":", "")) + b"\0\0"
    output = struct.pack("!HHIH6x", 0, 16, port_no, 0)
    instruction = struct.pack("!HH4x", 4, 24) + output
    head = struct.pack("!BxIIHHHH4xQQQ", 3, 1, 0, 100, 0, 0, 0, 0x5745_4901_0000_0000, 0, 0)
    return struct.pack("!H", 2 + len(head) + len(match) + len(instruction)) + head + match + instruction


def _connect(port):
    def connected():
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), timeout=5)

    connection = wait_until(connected, "the controller listens")
    connection.settimeout(None)
    return connection
