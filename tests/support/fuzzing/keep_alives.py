"""Keep-alives behind frames with hostile headers, by BPF_PROG_TEST_RUN. Needs root.

Each frame is one that the receiver of an interactive flow waits for, with some bytes changed. If a keep-alive
follows it, that is the segment with the sequence number before, and with its first octet alone.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

from openflow_ext.switch.dataplane.interface import PortSettings
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from tests.support.data_plane.bench import BRIDGE, OFPORT, PORT, Bench, reverse
from tests.support.data_plane.interactive import MSS, make_interactive, share_fairly
from tests.support.data_plane.packets import ACK, PSH, Segment, checksum, timestamps
from tests.support.fuzzing.packets import (
    BUFFER_BYTES,
    CAPACITY_BPS,
    EXTENSIONS,
    TC_ACT_UNSPEC,
    Place,
    check_change,
    checksum_is_right,
    mangled,
    place_of,
    run_on,
)

TC_ACT_STOLEN = 4
PSH_AT, SEQ, CHECKSUM = 13, slice(4, 8), slice(16, 18)


class KeepAlivesTarget:
    """The program at a port's exit, on one segment of each of many interactive flows."""

    def __init__(self) -> None:
        self._plane = KernelDataPlane(f"weir-fuzz-{os.getpid()}", max_flows=10_000)
        self._bench = Bench(self._plane)
        self._plane.enter_port(PORT, BRIDGE, OFPORT)
        self._program = self._plane.program("weir_egress")
        self._flows = 0
        share_fairly(self._bench)

    def begin(self) -> None:
        """An empty flow table."""
        self._bench.begin_anew(PortSettings(), CAPACITY_BPS, BUFFER_BYTES)
        self._flows = 0

    def feed(self, rng: random.Random) -> bool:
        self._flows += 1
        network, stamped = rng.choice(("10.0.0.", "fd00::")), rng.random() < 0.5
        local = Segment(
            src=f"{network}1",
            dst=f"{network}2",
            src_port=20_000 + self._flows,
            ack=rng.choice((0, 1, MSS + 1)),
        )
        make_interactive(self._bench, local, stamped)
        data = replace(
            reverse(local),
            flags=ACK | rng.choice((0, PSH)),
            options=timestamps(7, 8) if stamped else b"",
            payload=rng.randbytes(rng.choice((1, 2, 15, 16, 100, MSS))),
            vlans=tuple(range(rng.choice((0, 0, 1, 2)))),
            ip_options=b"\x01" * 4 * rng.choice((0, 0, 1, 10)) if "." in network else b"",
            extensions=() if "." in network else ((rng.choice(EXTENSIONS), bytes(7)),) * rng.randrange(3),
        )
        frame = bytes(mangled(rng, data.pack()))
        found = run_on(self._program, frame)
        if found is None:
            return False
        verdict, after = found
        if verdict == TC_ACT_STOLEN:
            check_keep_alive(frame, after)
        elif verdict != TC_ACT_UNSPEC:
            raise AssertionError(f"weir_egress gives {verdict}: {frame.hex()}")
        elif after != frame:
            check_change("weir_egress", frame, after, place_of(frame))
        return verdict == TC_ACT_STOLEN

    def close(self) -> None:
        self._plane.destroy()


def check_keep_alive(frame: bytes, after: bytes) -> None:
    """Raise AssertionError unless ``after`` is a keep-alive of the segment of ``frame``."""
    told = f"{frame.hex()} becomes {after.hex()}"
    place, place_after = place_of(frame), place_of(after)
    if place is None or place_after is None:
        raise AssertionError(f"no TCP segment: {told}")
    if after[: place.ip] != frame[: place.ip] or place_after.tcp != place.tcp:
        raise AssertionError(f"other headers: {told}")
    if len(after) != place_after.end or place_after.end != place.tcp + place.header_bytes + 1:
        raise AssertionError(f"not one octet: {told}")
    if without_edits(after, place) != without_edits(frame, place)[: len(after)]:
        raise AssertionError(f"more than number, PSH and checksums differ: {told}")
    before, number = (int.from_bytes(one[place.tcp :][SEQ], "big") for one in (after, frame))
    if (number - before) % 2**32 != 1:
        raise AssertionError(f"a wrong number: {told}")
    if after[place.tcp + PSH_AT] != frame[place.tcp + PSH_AT] & ~PSH:
        raise AssertionError(f"wrong flags: {told}")
    if header_checksum_is_right(frame, place) and not header_checksum_is_right(after, place_after):
        raise AssertionError(f"a wrong checksum of IPv4: {told}")
    if not checksum_is_right(after, place_after):
        raise AssertionError(f"a wrong checksum: {told}")


def header_checksum_is_right(frame: bytes, place: Place) -> bool:
    """Whether a frame's IPv4 header has a right checksum. IPv6 has none."""
    is_ipv4 = frame[place.ip] >> 4 == 4
    return not is_ipv4 or checksum(frame[place.ip : place.ip + (frame[place.ip] & 15) * 4]) == 0


def without_edits(frame: bytes, place: Place) -> bytes:
    """A frame with zeros where a keep-alive may differ from its segment."""
    data = bytearray(frame)
    if frame[place.ip] >> 4 == 4:
        data[place.ip + 2 : place.ip + 4] = data[place.ip + 10 : place.ip + 12] = bytes(2)
    else:
        data[place.ip + 4 : place.ip + 6] = bytes(2)
    tcp = memoryview(data)[place.tcp :]
    tcp[SEQ], tcp[CHECKSUM], tcp[PSH_AT] = bytes(4), bytes(2), 0
    return bytes(data)
