"""The pure parts of the delay line in C: impairments, order, VLAN tags, percentiles."""

from __future__ import annotations

import shutil
import struct
import subprocess
from statistics import fmean, pstdev
from typing import Any

import pytest
from cffi import FFI

from weir_base.paths import PROJECT

SOURCES = ("impairment", "heap", "packet", "lateness")
DECLARATIONS = """
struct impairment { int64_t delay_ns; int64_t jitter_ns; uint32_t loss; uint32_t duplication;
                    uint32_t overtaking; _Bool normal; };
struct fate { int64_t delay_ns; _Bool lost; _Bool duplicated; _Bool overtakes; };
const char *impairment_parse(const char *text, struct impairment *wanted);
struct fate impairment_decide(const struct impairment *impairment, uint64_t *random_state);
int64_t impairment_least_delay_ns(const struct impairment *impairment);
struct packet { int64_t due_ns; uint64_t order; void *direction; uint32_t len; uint8_t bytes[]; };
struct vlan_tag { _Bool present; uint16_t tpid; uint16_t tci; };
struct packet *packet_make(const uint8_t *bytes, uint32_t len, struct vlan_tag tag);
struct packet *packet_copy(const struct packet *packet);
struct heap { struct packet **packets; size_t count; size_t room; };
_Bool heap_push(struct heap *heap, struct packet *packet);
struct packet *heap_first(const struct heap *heap);
struct packet *heap_pop(struct heap *heap);
struct lateness { uint64_t count; int64_t most_ns; uint64_t buckets[976]; };
void lateness_add(struct lateness *lateness, int64_t ns);
int64_t lateness_percentile(const struct lateness *lateness, double percent);
void free(void *pointer);
"""
ffi = FFI()
ffi.cdef(DECLARATIONS)
HEADER = struct.Struct("<BBHHHH")
"""virtio_net_hdr: flags, gso_type, hdr_len, gso_size, csum_start, csum_offset."""
NEEDS_CSUM = 1
NO_TAG = {"present": False, "tpid": 0, "tci": 0}


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Any:
    library = tmp_path_factory.mktemp("delay_line") / "line.so"
    folder = PROJECT / "mininet_topos" / "native" / "delay_line"
    sources = [str(folder / f"{name}.c") for name in SOURCES]
    compiler = shutil.which("cc") or "cc"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", str(library), *sources], check=True)
    return ffi.dlopen(str(library))


def parsed(line: Any, text: str) -> Any:
    wanted = ffi.new("struct impairment *")
    error = line.impairment_parse(text.encode(), wanted)
    assert error == ffi.NULL, ffi.string(error)
    return wanted


def fates(line: Any, text: str, count: int, seed: int = 1) -> list[Any]:
    state = ffi.new("uint64_t *", seed)
    wanted = parsed(line, text)
    return [line.impairment_decide(wanted, state) for _ in range(count)]


def test_settings_are_parsed(line: Any) -> None:
    one = parsed(line, "delay_us=5000,jitter_us=100.5,normal,loss=50,duplicate=100,reorder=0.1")
    assert (one.delay_ns, one.jitter_ns, one.normal) == (5_000_000, 100_500, True)
    assert (one.loss, one.duplication) == (1 << 31, (1 << 32) - 1)
    assert one.overtaking == pytest.approx((1 << 32) / 1000, abs=1)
    assert parsed(line, "-").delay_ns == 0


@pytest.mark.parametrize(
    "text",
    ["delay_us=", "delay_us=-1", "delay_us=1x", "loss=101", "loss=nan", "delay=5", "pareto", "x" * 200],
)
def test_wrong_settings_are_refused(line: Any, text: str) -> None:
    error = line.impairment_parse(text.encode(), ffi.new("struct impairment *"))
    assert b"want" in ffi.string(error) or b"too long" in ffi.string(error)


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_losses_duplicates_and_overtaking_are_as_frequent_as_stated(line: Any, seed: int) -> None:
    found = fates(line, "delay_us=9,loss=10,duplicate=20,reorder=5", 20_000, seed)
    kept = [fate for fate in found if not fate.lost]
    assert len(kept) / len(found) == pytest.approx(0.9, abs=0.01)
    assert sum(fate.duplicated for fate in kept) / len(kept) == pytest.approx(0.2, abs=0.015)
    assert sum(fate.overtakes for fate in kept) / len(kept) == pytest.approx(0.05, abs=0.01)
    assert not any(fate.duplicated or fate.overtakes for fate in found if fate.lost)
    assert all(fate.delay_ns == (0 if fate.overtakes else 9000) for fate in kept)


def test_uniform_jitter_stays_within_its_bounds(line: Any) -> None:
    delays = [fate.delay_ns for fate in fates(line, "delay_us=5000,jitter_us=1000,uniform", 20_000)]
    assert min(delays) >= 4_000_000
    assert max(delays) <= 6_000_000
    assert fmean(delays) == pytest.approx(5e6, rel=0.005)
    assert pstdev(delays) == pytest.approx(2e6 / 12**0.5, rel=0.02)


def test_normal_jitter_has_its_standard_deviation(line: Any) -> None:
    delays = [fate.delay_ns for fate in fates(line, "delay_us=5000,jitter_us=500,normal", 20_000)]
    assert fmean(delays) == pytest.approx(5e6, rel=0.005)
    assert pstdev(delays) == pytest.approx(0.5e6, rel=0.03)
    within = sum(abs(delay - 5e6) < 0.5e6 for delay in delays) / len(delays)
    assert within == pytest.approx(0.683, abs=0.02)


def test_a_delay_is_never_negative(line: Any) -> None:
    assert min(fate.delay_ns for fate in fates(line, "delay_us=10,jitter_us=500,normal", 1000)) == 0


@pytest.mark.parametrize(
    ("text", "least_ns"),
    [
        ("delay_us=5000", 5_000_000),
        ("delay_us=5000,jitter_us=1000", 4_000_000),
        ("delay_us=5000,jitter_us=1000,normal", 0),
        ("delay_us=5000,reorder=1", 0),
        ("-", 0),
    ],
)
def test_the_least_delay_of_a_packet(line: Any, text: str, least_ns: int) -> None:
    assert line.impairment_least_delay_ns(parsed(line, text)) == least_ns


def test_packets_leave_in_the_order_of_due_time_and_arrival(line: Any) -> None:
    heap, state, kept = ffi.new("struct heap *"), ffi.new("uint64_t *", 3), []
    jitter = parsed(line, "delay_us=50,jitter_us=50")
    for order in range(10_000):
        packet = ffi.new("struct packet *")
        packet.order, packet.due_ns = order, line.impairment_decide(jitter, state).delay_ns // 1000
        kept.append(packet)
        assert line.heap_push(heap, packet)
    wanted = sorted((packet.due_ns, packet.order) for packet in kept)
    assert line.heap_first(heap).order == wanted[0][1]
    assert [(packet.due_ns, packet.order) for packet in iter(lambda: line.heap_pop(heap), ffi.NULL)] == wanted
    line.free(heap.packets)


def _made(line: Any, header: bytes, frame: bytes, tag: dict[str, Any]) -> bytes:
    data = header + frame
    packet = line.packet_make(data, len(data), tag)
    copy = line.packet_copy(packet)
    made = bytes(ffi.buffer(packet.bytes, packet.len))
    assert bytes(ffi.buffer(copy.bytes, copy.len)) == made
    line.free(packet)
    line.free(copy)
    return made


def test_a_packet_without_a_tag_is_unchanged(line: Any) -> None:
    header, frame = HEADER.pack(NEEDS_CSUM, 1, 54, 1448, 34, 16), bytes(range(200))
    assert _made(line, header, frame, NO_TAG) == header + frame


def test_a_vlan_tag_returns_into_the_frame_and_moves_the_offsets(line: Any) -> None:
    frame = bytes(range(100))
    tagged = frame[:12] + b"\x88\xa8\x60\x07" + frame[12:]
    tag = {"present": True, "tpid": 0x88A8, "tci": 0x6007}
    made = _made(line, HEADER.pack(NEEDS_CSUM, 1, 54, 1448, 34, 16), frame, tag)
    assert made == HEADER.pack(NEEDS_CSUM, 1, 58, 1448, 38, 16) + tagged
    assert _made(line, bytes(HEADER.size), frame, tag) == bytes(HEADER.size) + tagged


def test_percentiles_of_latenesses(line: Any) -> None:
    lateness = ffi.new("struct lateness *")
    assert line.lateness_percentile(lateness, 99) == 0
    values = [17 * number for number in range(1, 10_001)]
    for value in values:
        line.lateness_add(lateness, value)
    for percent in (1, 50, 99, 99.9):
        exact = values[int(percent * 100) - 1]
        assert exact <= line.lateness_percentile(lateness, percent) <= exact * (1 + 1 / 16)
    assert line.lateness_percentile(lateness, 100) == lateness.most_ns == values[-1]
    line.lateness_add(lateness, -5)
    line.lateness_add(lateness, (1 << 62))
    assert line.lateness_percentile(lateness, 100) == 1 << 62
    assert lateness.buckets[0] == 1
