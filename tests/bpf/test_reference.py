"""N_i against the reference model, over many random segments; WEIR_SEGMENTS sets their number.

Connections open and close in every way that TCP allows. Their segments are lost, duplicated, reordered
and retransmitted before they reach the port. An adversary forges a segment for each ten. Meanwhile the
table is swept, the link flaps, and the agent restarts.
"""

from __future__ import annotations

import bisect
import itertools
import os
import random
import time
from collections import deque
from collections.abc import Iterator
from operator import itemgetter

import pytest

from libbpf_cffi import libbpf
from openflow_ext.switch.dataplane.interface import PortSettings
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from tests.support.data_plane.bench import BRIDGE, OFPORT, PORT, Bench
from tests.support.data_plane.ni_reference import Reference
from tests.support.data_plane.packets import ACK, FIN, RST, SYN, Offer, Segment

pytestmark = pytest.mark.beside_others

SEGMENTS = int(os.environ.get("WEIR_SEGMENTS", "150000"))
ROOM = 40
KEYS = 60
STEPS_A_SWEEP = 500
CHECKED_EVERY = 8
STEPS_A_TICK = 150
CLOCK_MONOTONIC_COARSE = 6
LOG = 30
NUMBERS = 1 << 32
FORGED = 0.1
WAYS = ("in", "out")

Step = tuple[int, str, int, int, int, int]
"""Flow, way ("in", "out"), flags, sequence number, acknowledgement number, bytes of payload."""

OPENINGS = (
    (("in", SYN), ("out", SYN | ACK), ("in", ACK)),
    (("out", SYN), ("in", SYN | ACK), ("out", ACK)),
    (("in", SYN), ("out", SYN), ("in", SYN | ACK), ("out", SYN | ACK)),
    (("out", SYN),),
    (("in", SYN),),
)
CLOSINGS = (
    (("in", FIN | ACK), ("out", FIN | ACK), ("in", ACK)),
    (("out", FIN | ACK), ("in", FIN | ACK), ("out", ACK)),
    (("out", FIN | ACK), ("in", ACK), ("in", "data"), ("in", FIN | ACK), ("out", ACK)),
    (("in", FIN | ACK), ("out", ACK), ("out", "data"), ("out", FIN | ACK), ("in", ACK)),
    (("in", FIN | ACK), ("out", FIN | ACK), ("in", FIN | ACK), ("out", FIN | ACK)),
    (("in", RST),),
    (("out", RST | ACK),),
    (("out", FIN | ACK), ("in", RST)),
    (),
)


class Traffic:
    """Random segments on KEYS 5-tuples, with one connection after the other on each."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._waiting: list[deque[Step]] = [deque() for _ in range(KEYS)]

    def __iter__(self) -> Iterator[Step]:
        chance = self._chance
        while True:
            key = chance.randrange(KEYS)
            waiting = self._waiting[key]
            if not waiting:
                waiting.extend(self._connection(key))
                if chance.random() < 0.3:
                    continue
            if chance.random() < 0.02:
                yield self._anything(key)
            if len(waiting) > 1 and chance.random() < 0.1:
                waiting[0], waiting[1] = waiting[1], waiting[0]
            step = waiting.popleft()
            fate = chance.random()
            if fate < 0.1:
                waiting.insert(chance.randrange(len(waiting) + 1), step)
            if fate > 0.15:
                yield step
            elif fate > 0.12:
                waiting.appendleft(step)

    def _connection(self, key: int) -> list[Step]:
        chance = self._chance
        isns = {way: chance.randrange(NUMBERS) for way in WAYS}
        ends = dict(isns)
        data = [(chance.choice(WAYS), chance.choice(("data", ACK))) for _ in range(chance.randrange(8))]
        steps = []
        for way, what in (*chance.choice(OPENINGS), *data, *chance.choice(CLOSINGS)):
            flags = ACK if what == "data" else int(what)
            seq = isns[way] if flags & SYN else ends[way]
            ack = ends["in" if way == "out" else "out"] if flags & ACK else 0
            payload = int(what == "data")
            steps.append((key, way, flags, seq, ack, payload))
            ends[way] = (seq + payload + bool(flags & (SYN | FIN))) % NUMBERS
        return steps

    def _anything(self, key: int) -> Step:
        chance = self._chance
        seq, ack = chance.randrange(NUMBERS), chance.randrange(NUMBERS)
        return key, chance.choice(WAYS), chance.randrange(0x20), seq, ack, chance.randrange(2)


def segment(step: Step) -> Segment:
    key, way, flags, seq, ack, payload = step
    local, remote = ("10.0.0.1", "10.0.0.2") if key % 2 else ("fd00::1", "fd00::2")
    ends = {"src": local, "dst": remote, "src_port": 5000, "dst_port": 1000 + key}
    if way == "out":
        ends = {"src": remote, "dst": local, "src_port": 1000 + key, "dst_port": 5000}
    options = Offer().pack() if flags & SYN else b""
    return Segment(**ends, seq=seq, ack=ack, flags=flags, options=options, payload=b"x" * payload)


class Trial:
    """A data plane and the reference model, and the steps that both have processed."""

    def __init__(self, name: str, seed: int) -> None:
        self._name = name
        self._seed = seed
        self.chance = random.Random(seed)
        self.reference = Reference(ROOM)
        self.log: deque[str] = deque(maxlen=LOG)
        self.at = 0
        self._moments = [(0, time.monotonic_ns())]
        self._open()
        self._plug()
        Bench(self.plane).count_by_flags()

    def _open(self) -> None:
        self.plane = KernelDataPlane(self._name, max_flows=ROOM)
        self._programs = {
            way: self.plane.program(name) for way, name in (("in", "weir_ingress"), ("out", "weir_egress"))
        }
        states = self.plane.pinned.maps["port_states"]
        self._states, self._key = states, states.key(PORT)

    def _plug(self) -> None:
        self.plane.enter_port(PORT, BRIDGE, OFPORT)
        self.plane.configure(PORT, PortSettings(), 100_000_000)

    def feed(self, step: Step) -> None:
        """One segment into both."""
        self.at += 1
        self.log.append(str(step))
        libbpf.run(self._programs[step[1]], packet=segment(step).pack())
        self.reference.segment(*step, at=self.at)

    def forge(self, step: Step) -> None:
        """A SYN, FIN or RST with guessed numbers or a wrong checksum."""
        key, way, _, seq, ack, _ = step
        flags = self.chance.choice((SYN, SYN | ACK, FIN | ACK, RST, RST | ACK))
        if self.chance.random() < 0.5:
            step = (key, way, flags, seq, ack, 0)
            self.log.append(f"with a wrong checksum: {step}")
            libbpf.run(self._programs[way], packet=segment(step).with_wrong_checksum().pack())
        else:
            numbers = (self.chance.randrange(NUMBERS), self.chance.randrange(NUMBERS))
            self.feed((key, way, flags, *numbers, 0))

    def let_time_pass(self) -> None:
        """Wait for the next tick of the coarse clock, which the programs use for most segments."""
        now = time.monotonic_ns()
        self._moments.append((self.at, now))
        while time.clock_gettime_ns(CLOCK_MONOTONIC_COARSE) <= now:
            time.sleep(0.0005)

    def _moment(self, mean: int) -> tuple[int, int]:
        """A random moment at which time passed, about `mean` segments ago."""
        wanted = max(self.at - int(self.chance.expovariate(1 / mean)), 0)
        return self._moments[bisect.bisect(self._moments, wanted, key=itemgetter(0)) - 1]

    def sweep(self) -> None:
        """Flows that were silent since moments of chance leave both."""
        moments = [self._moment(mean) for mean in (50, 600, 200, 300)]
        closed_at, silent_at, idle_at, opening_at = (at for at, _ in moments)
        now = time.monotonic_ns()
        names = ("closed_ns", "silent_ns", "idle_ns", "opening_ns")
        times = {name: now - then for name, (_, then) in zip(names, moments, strict=True)}
        removed = self.plane._sweep(now_ns=now, **times).removed
        self.log.append(f"sweep of what is older than {closed_at}, {silent_at}, {idle_at}, {opening_at}")
        assert removed == self.reference.sweep(closed_at, silent_at, idle_at, opening_at), self.story()

    def flap(self) -> None:
        self.plane.detach(PORT)
        self._plug()
        self.reference.forget()
        self.log.append("link flap")

    def restart(self) -> None:
        self.plane.close()
        self._open()
        self.log.append("agent restarted")

    def check(self) -> None:
        state = self._states.get(self._key)
        expected = (self.reference.n_i, self.reference.refused)
        assert (int(state.n_i), int(state.untracked)) == expected, self.story()

    def story(self) -> str:
        return f"seed {self._seed}, segment {self.at}, the last steps:\n" + "\n".join(self.log)

    def close(self) -> None:
        self.plane.destroy()


@pytest.fixture
def trial() -> Iterator[Trial]:
    seed = int(os.environ.get("WEIR_SEED", random.SystemRandom().randrange(1 << 32)))
    trial = Trial(f"weir-reference-{os.getpid()}", seed)
    yield trial
    trial.close()


@pytest.mark.timeout(max(120, SEGMENTS // 2000))
def test_n_i_equals_that_of_the_reference_model(trial: Trial) -> None:
    most = 0
    for step in itertools.islice(Traffic(trial.chance), SEGMENTS):
        trial.feed(step)
        if trial.chance.random() < FORGED:
            trial.forge(step)
        if trial.at % CHECKED_EVERY == 0:
            trial.check()
        if trial.at % STEPS_A_TICK == 0:
            trial.let_time_pass()
        if trial.at % STEPS_A_SWEEP == 0:
            most = max(most, trial.reference.n_i)
            trial.sweep()
            trial.check()
        if trial.at % (SEGMENTS // 5) == 0:
            trial.restart()
            trial.check()
        if trial.at % (SEGMENTS // 7) == 0:
            trial.flap()
    trial.check()
    assert most > ROOM // 4, "the traffic must fill N_i"
