"""Decides about the OpenFlow sessions of a controller: which to admit, to probe and to end.

A session is *half-open* until its switch has sent its datapath id. A session *holds* the datapath id that it
sent first. Another session that claims the same id waits until the holder has answered an echo request, and
is then refused. If the holder does not answer in ``claim_s``, and has sent nothing in the last ``quiet_s`` of
them, it is dead, and the claim is granted. A switch may connect again before the controller has read its last
messages and the end of its old connection. So these messages are not an answer, and a claim waits for at
least ``settle_s`` before it is refused.

A controller keeps something of each switch that it ever had: its entries, its ports, its rows. So it takes
a limited number of different datapath ids from one address, and of all addresses together. An id that it has
taken once may always return.

The caller gives the time in seconds, and any hashable objects as sessions. It calls ``look`` about once a
second. If more than two seconds pass without a call, this process stood still. Nobody could be heard then, so
that time is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class Limits:
    """What sessions may cost. Times are in seconds."""

    handshake_s: float = 10.0
    silence_s: float = 15.0
    """After this time without a message the controller sends an echo request. Twice of it ends a session."""
    claim_s: float = 3.0
    settle_s: float = 0.5
    """The shortest time from a claim to its refusal."""
    quiet_s: float = 1.0
    """A holder that was heard so shortly before the end of ``claim_s`` is alive: its answer is under way."""
    most_blocked_s: float = 5.0
    """How long a switch may take no message while the controller has one for it."""
    most_waits_s: float = 10.0
    """How long a switch may let senders wait in a minute, if each wait is longer than ``long_wait_s``."""
    long_wait_s: float = 0.25
    most_sessions: int = 1000
    most_half_open: int = 256
    most_half_open_of_address: int = 128
    most_ids: int = 10_000
    """How many different datapath ids a controller takes in its life. Without TLS a peer can invent them."""
    most_ids_of_address: int = 2_000


_LONGEST_GAP_S = 2.0
"""A longer time between two calls is left out, except for this part of it."""
_LONGEST_CLAIM_STEP_S = 1.0
"""So much of the time between two calls of ``claim`` counts. The caller repeats a claim every few ms."""


class Claim(Enum):
    """The answer to a switch that sends its datapath id."""

    GRANTED = auto()
    WAIT = auto()
    REFUSED = auto()
    TOO_MANY = auto()
    """The id is new, and its address or all addresses have stated too many others."""
    CHANGED = auto()
    """The session has stated another datapath id before, or it is over."""


@dataclass(slots=True)
class _Session:
    address: str
    opened: float
    heard: float
    answered: float = float("-inf")
    dpid: int | None = None
    claimed: float | None = None
    claimed_last: float = 0.0
    claims_for_s: float = 0.0
    probed: bool = False
    blocked_since: float | None = None
    waits_s: float = 0.0
    waits_at: float = 0.0


@dataclass(frozen=True, slots=True)
class End:
    """A session that has to be ended now."""

    session: Hashable
    reason: str


class Sessions:
    """The open sessions of a controller."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._open: dict[Hashable, _Session] = {}
        self._holders: dict[int, Hashable] = {}
        self._ids: set[int] = set()
        self._ids_of: Counter[str] = Counter()
        self._called: float | None = None
        self._resumed = float("-inf")
        self._stood_still_s = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, session: Hashable, address: str, now: float) -> list[End]:
        """A peer has connected. Returns the sessions to end for it: its own, or older half-open ones."""
        self._resume(now)
        limits, ends = self._limits, []
        if len(self._open) >= limits.most_sessions:
            return [End(session, f"{limits.most_sessions} sessions are open")]
        half_open = {one: state for one, state in self._open.items() if state.dpid is None}
        counts = Counter(state.address for state in half_open.values())
        if counts[address] >= limits.most_half_open_of_address:
            ends = [End(self._oldest(half_open, address), "too many half-open sessions of its address")]
        elif len(half_open) >= limits.most_half_open:
            (most, _), *_ = counts.most_common(1)
            ends = [End(self._oldest(half_open, most), "too many half-open sessions")]
        for end in ends:
            self.closed(end.session)
        self._open[session] = _Session(address, now, now)
        return ends

    @staticmethod
    def _oldest(half_open: dict[Hashable, _Session], address: str) -> Hashable:
        return next(one for one, state in half_open.items() if state.address == address)

    def heard(self, session: Hashable, now: float, answers: bool = False) -> None:
        """A message of the session has arrived. ``answers``: it is an echo reply."""
        self._resume(now)
        if state := self._open.get(session):
            state.heard, state.probed = now, False
            if answers:
                state.answered = now

    def claim(self, session: Hashable, dpid: int, now: float) -> tuple[Claim, Hashable | None]:
        """The session states its datapath id. Call again after WAIT.

        Also returns the holder: after the first WAIT to send it an echo request, after GRANTED to end it.
        """
        self._resume(now)
        state = self._open.get(session)
        if state is None or state.dpid not in (None, dpid):
            return Claim.CHANGED, None
        if dpid not in self._ids and not self._take_id(dpid, state.address):
            return Claim.TOO_MANY, None
        holder = self._holders.get(dpid, session)
        held = self._open.get(holder)
        if holder == session or held is None:
            self._holders[dpid], state.dpid = session, dpid
            return Claim.GRANTED, None
        if state.claimed is None:
            state.claimed = state.claimed_last = now
            return Claim.WAIT, holder
        state.claims_for_s += min(now - state.claimed_last, _LONGEST_CLAIM_STEP_S)
        state.claimed_last = now
        answered = held.answered > state.claimed
        if state.claims_for_s < (self._limits.settle_s if answered else self._limits.claim_s):
            return Claim.WAIT, None
        if answered or now - held.heard < self._limits.quiet_s:
            return Claim.REFUSED, None
        self.closed(holder)
        self._holders[dpid], state.dpid = session, dpid
        return Claim.GRANTED, holder

    def _take_id(self, dpid: int, address: str) -> bool:
        """Whether there is room for a new datapath id; if so, it counts."""
        limits, of_address = self._limits, self._ids_of[address]
        if len(self._ids) >= limits.most_ids or of_address >= limits.most_ids_of_address:
            return False
        self._ids.add(dpid)
        self._ids_of[address] += 1
        return True

    def blocked(self, session: Hashable, now: float) -> None:
        """A message for the session waits for room in its queue."""
        self._resume(now)
        if (state := self._open.get(session)) and state.blocked_since is None:
            state.blocked_since = now

    def took(self, session: Hashable, taken: bool, waited_s: float, now: float) -> list[End]:
        """The session's queue has taken a message that waited, or the engine sends nothing more to it.

        Then the session has to be ended: the engine itself goes on to receive from it.
        """
        self._resume(now)
        if now - waited_s < self._resumed:  # it waited while this process stood still
            waited_s -= self._stood_still_s
        if (state := self._open.get(session)) is None:
            return []
        if not taken:
            self.closed(session)
            return [End(session, f"it took no message for {self._limits.most_blocked_s:g} s")]
        state.blocked_since = None
        if waited_s >= self._limits.long_wait_s:
            faded = (now - state.waits_at) * self._limits.most_waits_s / 60
            state.waits_s = max(state.waits_s - faded, 0.0) + waited_s
            state.waits_at = now
        return []

    def closed(self, session: Hashable) -> None:
        """The session has ended."""
        state = self._open.pop(session, None)
        if state is not None and state.dpid is not None and self._holders.get(state.dpid) == session:
            del self._holders[state.dpid]

    def look(self, now: float) -> tuple[list[Hashable], list[End]]:
        """The sessions to send an echo request, and those to end. To be called about once a second."""
        self._resume(now)
        probes, ends = [], []
        for session, state in self._open.items():
            if reason := self._overdue(state, now):
                ends.append(End(session, reason))
            elif state.dpid is not None and not state.probed and now - state.heard > self._limits.silence_s:
                state.probed = True
                probes.append(session)
        for end in ends:
            self.closed(end.session)
        return probes, ends

    def _resume(self, now: float) -> None:
        """If this process stood still since the last call, leave out that time at every session.

        Every call does so first. Otherwise a time after the pause would be moved as well, and a holder that
        was heard before a claim would seem to have been heard after it, or the other way round.
        """
        called = self._called
        self._called = now if called is None else max(called, now)
        if called is None or (stood_still_s := now - called - _LONGEST_GAP_S) <= 0:
            return
        self._resumed, self._stood_still_s = now, stood_still_s
        for state in self._open.values():
            state.opened += stood_still_s
            state.heard += stood_still_s
            state.answered += stood_still_s
            if state.claimed is not None:
                state.claimed += stood_still_s
            if state.blocked_since is not None:
                state.blocked_since += stood_still_s

    def _overdue(self, state: _Session, now: float) -> str:
        """Why to end a session; empty to keep it."""
        limits = self._limits
        if state.dpid is None and now - state.opened > limits.handshake_s:
            return f"it did not complete its handshake in {limits.handshake_s:g} s"
        if now - state.heard > 2 * limits.silence_s:
            return f"it sent nothing for {2 * limits.silence_s:g} s and did not answer an echo request"
        if state.blocked_since is not None and now - state.blocked_since > limits.most_blocked_s:
            return f"it took no message for {limits.most_blocked_s:g} s"
        if state.waits_s > limits.most_waits_s:
            return f"it let messages wait for more than {limits.most_waits_s:g} s in a minute"
        return ""
