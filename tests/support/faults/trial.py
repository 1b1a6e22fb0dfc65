"""A trial: seeded faults one after another, and after each of them the checks of all that is promised."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from flowdb.flow import NS_PER_S
from tests.support.faults.faults import FAULTS
from tests.support.faults.world import STREAMS, World, torn
from tests.support.waiting import wait_until

PAUSE_S = (0.5, 3.0)
NORMAL_S, RECORD_S = 30.0, 2.0
"""After this time everything has to be normal. An agent gives a controller that is gone 8 s."""
STREAMED_BYTES = 200_000
LONGEST_S = 60.0
"""No short connection lasts longer, whatever the clocks show."""
ENDS = "SELECT opened_ns, closed_ns FROM flows WHERE dst_port = ?"
OPEN_TO = "SELECT count(*) FROM flows WHERE dst_port = ? AND closed_ns IS NULL"
WRONG = """SELECT decisions.id FROM decisions JOIN flows ON flows.id = flow_id
    WHERE flows.dst != '10.77.0.2' OR port_no != 2"""


@dataclass
class Visit:
    """A fault: its length, the time until all was normal, and the checks that failed."""

    fault: str
    lasted_s: float
    normal_s: float = 0.0
    violations: list[str] = field(default_factory=list)
    memory_kb: dict[str, int] = field(default_factory=dict)


def begin(world: World) -> None:
    """Wait until the streams are recorded."""
    for check in (streams_go_on, state_is_right):
        check(world)


def order(rng: random.Random, kinds: Sequence[str]) -> Iterator[str]:
    """The faults without end: each once in every round, in an order of its own."""
    while True:
        names = list(kinds)
        rng.shuffle(names)
        yield from names


def visit(world: World, name: str, pause_s: float) -> Visit:
    """Let a fault happen, and check everything until it is normal."""
    fault, now = FAULTS[name], Visit(name, pause_s)
    recorded: list[int] = []
    with fault.during(world):
        if fault.recorded:
            _note(now, lambda: recorded.append(world.connect()))
        time.sleep(pause_s)
    began = time.monotonic()
    for check in (streams_go_on, connections_are_recorded, state_is_right):
        _note(now, partial(check, world))
    for port in recorded:
        _note(now, partial(is_recorded, world, port))
    now.normal_s = round(time.monotonic() - began, 1)
    now.memory_kb = world.memory_kb()
    return now


def _note(now: Visit, check: Callable[[], object]) -> None:
    try:
        check()
    except (AssertionError, OSError, sqlite3.Error) as error:
        now.violations.append(str(error)[:400])


def streams_go_on(world: World) -> None:
    """The streams send, and the data plane follows and counts them and nothing else."""
    assert world.streams.running(), "a stream has ended"
    begun = world.carried_bytes()
    wait_until(
        lambda: world.carried_bytes() > begun + STREAMED_BYTES, "the streams go on", timeout_s=NORMAL_S
    )
    _become("the streams are tracked", world.tracked, STREAMS)
    _become("N_i counts the streams", lambda: world.bench.port_counters(2).n_i, world.n_i)


def connections_are_recorded(world: World) -> None:
    """Hosts can connect, and a new connection is recorded.

    A short connection that ends before the controller has asked a new agent for reports is not.
    """
    wait_until(world.bench.ping, "hosts reach each other", timeout_s=NORMAL_S)
    port, until = world.connect(), time.monotonic() + NORMAL_S
    while not is_in_time(world, port) and time.monotonic() < until:
        port = world.connect()
    is_recorded(world, port)


def is_in_time(world: World, port: int) -> bool:
    """Whether a connection is recorded within RECORD_S."""
    try:
        wait_until(lambda: world.ask(ENDS, port), "it is recorded", _ended, RECORD_S)
    except AssertionError:
        return False
    return True


def is_recorded(world: World, port: int) -> None:
    """A connection that has ended is recorded once, with an age that is possible."""
    what = f"the connection to port {port} is recorded with its end"
    found = wait_until(lambda: world.ask(ENDS, port), what, _ended, NORMAL_S)
    assert len(found) == 1, f"the connection to port {port} is recorded {len(found)} times"
    age_s = (found[0][1] - found[0][0]) / NS_PER_S
    assert 0 <= age_s < LONGEST_S, f"the connection to port {port} lasted {age_s:.1f} s in the record"


def _ended(rows: list[tuple[int, int | None]]) -> bool:
    return bool(rows) and all(closed_ns for _, closed_ns in rows)


def state_is_right(world: World) -> None:
    """The streams are recorded as open once, and only flows to the slow port were punished."""
    for port in world.streams.ports:
        look = partial(world.ask, OPEN_TO, port)
        _become(f"stream {port} is recorded as open", lambda look=look: look()[0][0], 1)  # type: ignore[misc]
    assert world.ask(WRONG) == [], "a flow was punished that does not send to the slow port"
    # A punished flow may get another window: the clamp stays one row.
    standing = "SELECT count(DISTINCT flow_id) FROM clamps WHERE lifted_ns IS NULL"
    _become("clamps stand for the streams only", lambda: world.ask(standing)[0][0] <= STREAMS, True)


def all_is_over(world: World) -> list[str]:
    """End the streams. Returns the checks that fail afterwards."""
    last = Visit("the end", 0)
    last.violations += world.torn + torn(world.streams)
    standing = "SELECT count(*) FROM clamps WHERE lifted_ns IS NULL"
    open_rows = "SELECT count(*) FROM flows WHERE closed_ns IS NULL"
    for what, look in (
        ("N_i is 0", lambda: world.bench.port_counters(2).n_i),
        ("no window is lowered", world.clamping_rules),
        ("no clamp stands", lambda: world.ask(standing)[0][0]),
        ("no flow is open", lambda: world.ask(open_rows)[0][0]),
    ):
        _note(last, lambda what=what, look=look: _become(what, look, 0))  # type: ignore[misc]
    if "Traceback" in (log := world.log()):
        last.violations.append(f"the controller's log: {log[log.index('Traceback') :][:1500]}")
    return last.violations


def _become(what: str, look: Callable[[], object], wanted: object) -> None:
    wait_until(look, what, lambda state: state == wanted, NORMAL_S)


def trial(
    world: World,
    seed: int,
    seconds: float,
    after_each: Callable[[Visit], None],
    kinds: Sequence[str] = tuple(FAULTS),
) -> list[Visit]:
    """Visit faults for so long. The seed decides their order and how long each lasts."""
    begin(world)
    rng = random.Random(seed)
    until, visits = time.monotonic() + seconds, []
    for name in order(rng, kinds):
        if time.monotonic() > until:
            return visits
        visits.append(visit(world, name, round(rng.uniform(*PAUSE_S), 1)))
        after_each(visits[-1])
    raise AssertionError("the order has no end")
