//! An endpoint: all connections of one UDP port.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::config::BASE_MTU_BYTES;
use crate::connection::{Connection, Opening, Queued};
use crate::handshake::{self, Answer, Calling};
use crate::incoming::PLACE_BYTES;
use crate::random::{CookieJar, Random};
use crate::seq::Seq;
use crate::wire::{ControlType, Handshake, Header, Refusal, Step};
use crate::{Config, ConfigError, Ecn, Micros, ProtectFactory, Stage};

/// Answers of handshakes that wait for `poll_transmit`. More are dropped; the initiator asks again.
const MAX_ANSWERS: usize = 1024;

/// This host's number of a connection. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u32);

/// The position of a message among those sent on its connection, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(pub u64);

/// The two ends of a datagram's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The peer's address.
    pub peer: SocketAddr,
    /// This host's address, if the socket is bound to all addresses and the peer has chosen one.
    pub local: Option<SocketAddr>,
}

impl From<SocketAddr> for Route {
    fn from(peer: SocketAddr) -> Route {
        Route { peer, local: None }
    }
}

impl Route {
    /// A datagram of a handshake that takes this way back.
    pub(crate) fn handshake(&self, now: Micros, contents: Vec<u8>) -> Transmit {
        self.transmit(Ecn::NotEct, contents, now)
    }

    /// A datagram that takes this way back.
    pub(crate) fn transmit(&self, ecn: Ecn, contents: Vec<u8>, not_before_us: Micros) -> Transmit {
        Transmit { to: self.peer, from: self.local, ecn, contents, not_before_us }
    }
}

/// A datagram to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// The destination.
    pub to: SocketAddr,
    /// The source; None is the one that the socket or the kernel chooses.
    pub from: Option<SocketAddr>,
    /// The ECN field to set.
    pub ecn: Ecn,
    /// The UDP payload.
    pub contents: Vec<u8>,
    /// The time before which the datagram must not leave.
    pub not_before_us: Micros,
}

/// The mode of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The sender sends at the application's rate, and the receiver sends no ACKs.
    Udp,
    /// The sender's rate follows ACKs.
    Congestion,
}

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloseReason {
    /// This host called `close`, and all data was acknowledged.
    Local,
    /// This host called `close`, and `linger_us` ended before all data was acknowledged.
    LocalUnacknowledged,
    /// The peer closed after all its data was acknowledged. Data of this host may be unconfirmed.
    Peer,
    /// The peer ended the connection early.
    PeerAborted,
    /// No packet of the peer for `dead_after_us`.
    Timeout,
    /// The handshake did not end within `handshake_timeout_us`.
    HandshakeTimeout,
    /// The peer does not speak this version of the protocol; the peer's version.
    Version(u8),
    /// The peer refused: the keys differ.
    Authentication,
    /// The peer refused: it has as many connections as it allows.
    Busy,
}

/// What happened on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The handshake is complete.
    Connected {
        /// The peer's address.
        peer: SocketAddr,
        /// True if the peer began the handshake.
        incoming: bool,
    },
    /// A whole message arrived. Reading the event frees its place in the receive window.
    Message {
        /// The position among the peer's messages.
        id: MessageId,
        /// The content.
        data: Vec<u8>,
    },
    /// `send_message` returned `Full`, and there is space again.
    Writable,
    /// The mode of the direction from this host to the peer changed.
    ModeChanged(Mode),
    /// The connection ended. No event of it follows.
    Closed {
        /// Why.
        reason: CloseReason,
        /// Bytes of messages that this host accepted for sending and the peer did not acknowledge as a whole.
        unconfirmed_bytes: usize,
    },
}

/// Why a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// The send buffer is full. Try again after `Event::Writable`.
    Full,
    /// The message is larger than the peer's window or this host's send buffer can ever hold; the limit in
    /// bytes.
    TooLarge(usize),
    /// The connection is closed, is closing, or never existed.
    Closed,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Full => f.write_str("the send buffer is full: wait until the connection is writable"),
            SendError::TooLarge(limit) => {
                write!(f, "the message is too large: send at most {limit} bytes in one")
            }
            SendError::Closed => f.write_str("the connection is closed"),
        }
    }
}

impl Error for SendError {}

/// Why a connection was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectError {
    /// There are `max_connections` connections.
    Busy,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the endpoint has as many connections as max_connections allows: close one, or raise it")
    }
}

impl Error for ConnectError {}

/// Counters and state of one connection.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// The mode of the direction to the peer.
    pub mode: Mode,
    /// The rate that pacing allows, in packets per second.
    pub rate_pps: f64,
    /// The smoothed RTT.
    pub rtt_us: Micros,
    /// The least RTT: RTT_idle of the paper.
    pub rtt_idle_us: Micros,
    /// The UDP payload that the handshake proved.
    pub mtu_bytes: usize,
    /// The free window that the peer advertised, in packets.
    pub peer_window_packets: u32,
    /// Bytes in the send buffer: not sent, or not acknowledged.
    pub send_buffer_bytes: usize,
    /// Bytes in the receive buffer and in events that the caller has not read.
    pub receive_buffer_bytes: usize,
    /// Data packets sent, retransmissions included.
    pub data_sent: u64,
    /// Data packets sent again.
    pub retransmitted: u64,
    /// Data packets that the peer acknowledged.
    pub acknowledged: u64,
    /// Data packets received, duplicates included.
    pub data_received: u64,
    /// Data packets received more than once.
    pub duplicates: u64,
    /// Data packets that the receiver reported or found as lost.
    pub lost: u64,
    /// Data packets received with CE.
    pub ce_received: u64,
    /// Control packets sent.
    pub control_sent: u64,
    /// Packets received and not used: forged, malformed, beyond the window, or of an unknown type.
    pub dropped: u64,
    /// Entries into the Congestion Mode of the direction to the peer.
    pub congestion_entries: u64,
    /// Timeouts without feedback.
    pub timeouts: u64,
    /// True if data packets arrive without the ECT codepoint: the path erases ECN.
    pub ecn_bleached: bool,
}

/// Counters of datagrams that belong to no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EndpointStatistics {
    /// Open connections, half-open ones included.
    pub connections: usize,
    /// Bytes of received data over all connections, with those of messages that the caller has not read. Each
    /// packet counts as 64 more.
    pub receive_bytes: usize,
    /// Datagrams that are no packet of a connection from its peer, and no valid handshake.
    pub stray: u64,
    /// Handshakes that were refused.
    pub refused: u64,
}

enum Phase {
    Calling(Box<Calling>),
    Open(Box<Connection>),
}

struct Incoming {
    answer: Answer,
    confirmed: bool,
    until_us: Micros,
}

struct Entry {
    phase: Phase,
    incoming: Option<Incoming>,
    wakeup_us: Micros,
    accounted_bytes: usize,
}

impl Entry {
    fn new(phase: Phase, incoming: Option<Incoming>) -> Entry {
        Entry { phase, incoming, wakeup_us: 0, accounted_bytes: 0 }
    }

    /// A responder announces a connection once an authentic packet shows that the initiator has the key.
    fn is_announced(&self) -> bool {
        self.incoming.as_ref().map_or(true, |incoming| incoming.confirmed)
    }

    fn next_wakeup_us(&self) -> Micros {
        let wakeup_us = match &self.phase {
            Phase::Calling(calling) => calling.next_us(),
            Phase::Open(connection) => connection.next_wakeup_us(),
        };
        match &self.incoming {
            Some(incoming) if !incoming.confirmed => wakeup_us.min(incoming.until_us),
            _ => wakeup_us,
        }
    }
}

/// All connections of one UDP port.
///
/// Timers run inside `poll_transmit`. A caller that has nothing to receive calls it at `poll_timeout`.
pub struct Endpoint {
    config: Arc<Config>,
    server: bool,
    factory: Box<dyn ProtectFactory + Send>,
    random: Random,
    cookies: CookieJar,
    entries: HashMap<u32, Entry>,
    incoming: HashMap<(SocketAddr, u32), u32>,
    schedule: BTreeSet<(Micros, u32)>,
    answers: VecDeque<Transmit>,
    events: VecDeque<(ConnectionId, Queued)>,
    held_bytes: usize,
    favoured: Option<u32>,
    stray: u64,
    refused: u64,
}

impl Endpoint {
    /// `server` accepts incoming handshakes. `rng_seed` must be secret and different for each endpoint.
    pub fn new(
        config: Config,
        server: bool,
        rng_seed: [u8; 32],
        factory: Box<dyn ProtectFactory + Send>,
    ) -> Result<Endpoint, ConfigError> {
        config.check()?;
        let (mut first, mut second) = ([0; 16], [0; 16]);
        first.copy_from_slice(&rng_seed[..16]);
        second.copy_from_slice(&rng_seed[16..]);
        Ok(Endpoint {
            config: Arc::new(config),
            server,
            factory,
            random: Random::new(first),
            cookies: CookieJar::new(second),
            entries: HashMap::new(),
            incoming: HashMap::new(),
            schedule: BTreeSet::new(),
            answers: VecDeque::new(),
            events: VecDeque::new(),
            held_bytes: 0,
            favoured: None,
            stray: 0,
            refused: 0,
        })
    }

    fn new_id(&mut self) -> u32 {
        loop {
            let id = self.random.word();
            if id != 0 && !self.entries.contains_key(&id) {
                return id;
            }
        }
    }

    fn new_sequence(&mut self) -> Seq {
        Seq::new(self.config.initial_sequence.unwrap_or_else(|| self.random.word()))
    }

    /// Begins a handshake.
    pub fn connect(&mut self, now: Micros, to: SocketAddr) -> Result<ConnectionId, ConnectError> {
        if self.entries.len() >= self.config.max_connections {
            return Err(ConnectError::Busy);
        }
        let id = self.new_id();
        let initial_sequence = self.new_sequence();
        let calling = Calling::new(now, &self.config, to, id, self.random.bytes(), initial_sequence);
        self.entries.insert(id, Entry::new(Phase::Calling(Box::new(calling)), None));
        self.settle(now, id);
        Ok(ConnectionId(id))
    }

    /// Takes a datagram from the network. Anything malformed, forged or unexpected is counted and dropped. Answers
    /// of a handshake, and the connection of a responder, have the source to which the peer sent the handshake.
    pub fn handle(&mut self, now: Micros, route: impl Into<Route>, ecn: Ecn, datagram: &[u8]) {
        let route = route.into();
        let from = route.peer;
        let used = match Header::decode(datagram) {
            Ok(Header::Control(header)) if header.kind == ControlType::Handshake => {
                match Handshake::decode(&datagram[crate::wire::HEADER_BYTES..]) {
                    Ok(body) if header.connection == 0 => {
                        self.on_call(now, route, header.version, &body, datagram)
                    }
                    Ok(body) => self.on_answer(now, from, header.connection, header.version, &body, datagram),
                    Err(_) => false,
                }
            }
            Ok(Header::Control(header)) => self.on_packet(now, from, ecn, header.connection, datagram),
            Ok(Header::Data(header)) => self.on_packet(now, from, ecn, header.connection, datagram),
            Err(_) => false,
        };
        if !used {
            self.stray += 1;
        }
    }

    /// True if a connection holds less than what is free of the memory of all connections. So many connections
    /// that hold as much as they can leave some of it to another one.
    fn has_room(&self, id: u32) -> bool {
        let free_bytes = self.config.total_receive_bytes.saturating_sub(self.held_bytes);
        self.connection(ConnectionId(id)).map_or(false, |it| it.receive_bytes() < free_bytes)
    }

    /// True if a connection without room may store more, up to its window, until its messages are complete. One
    /// at a time may: otherwise incomplete messages could wait for each other's memory.
    fn may_exceed(&self, id: u32) -> bool {
        let incomplete =
            |id: u32| self.connection(ConnectionId(id)).map_or(false, |it| it.unassembled_bytes() > 0);
        let other = self.favoured.filter(|it| *it != id && !self.has_room(*it) && incomplete(*it));
        other.is_none() && incomplete(id)
    }

    fn on_packet(&mut self, now: Micros, from: SocketAddr, ecn: Ecn, id: u32, datagram: &[u8]) -> bool {
        let has_room = self.has_room(id);
        let may_store = has_room || self.may_exceed(id);
        let entry = match self.entries.get_mut(&id) {
            Some(entry) => entry,
            None => return false,
        };
        let connection = match &mut entry.phase {
            Phase::Open(connection) if connection.peer() == from => connection,
            _ => return false,
        };
        let authentic = connection.handle(now, ecn, datagram, may_store);
        if authentic && may_store && !has_room {
            self.favoured = Some(id);
        }
        if let (true, Some(incoming)) = (authentic, &mut entry.incoming) {
            if !incoming.confirmed {
                incoming.confirmed = true;
                let event = Event::Connected { peer: from, incoming: true };
                self.events.push_back((ConnectionId(id), Queued { event, packets: 0 }));
            }
        }
        self.settle(now, id);
        true
    }

    /// REQUEST or CONFIRM of an initiator. Nothing is stored before the cookie returns and the key fits.
    fn on_call(&mut self, now: Micros, route: Route, version: u8, body: &Handshake, datagram: &[u8]) -> bool {
        if !self.server || body.id == 0 {
            return false;
        }
        if version != crate::wire::VERSION {
            self.refuse(now, route, body, Refusal::Version);
            return true;
        }
        match body.step {
            Step::Request => {
                let contents = handshake::cookie(now, &self.cookies, route.peer, body);
                self.answer(route.handshake(now, contents));
                true
            }
            Step::Confirm => self.on_confirm(now, route, body, datagram),
            _ => false,
        }
    }

    fn on_confirm(&mut self, now: Micros, route: Route, body: &Handshake, datagram: &[u8]) -> bool {
        let from = route.peer;
        if datagram.len() < BASE_MTU_BYTES || !handshake::returns_cookie(now, &self.cookies, from, body) {
            return false;
        }
        if !handshake::opens(self.factory.as_ref(), body, datagram) {
            self.refuse(now, route, body, Refusal::Authentication);
            return true;
        }
        let known = self.incoming.get(&(from, body.id)).copied();
        let id = match known {
            Some(id) => id,
            None if self.entries.len() >= self.config.max_connections => {
                self.refuse(now, route, body, Refusal::Busy);
                return true;
            }
            None => self.accept(now, route, body, datagram.len()),
        };
        self.repeat_accept(now, id, body, datagram.len())
    }

    fn accept(&mut self, now: Micros, route: Route, body: &Handshake, length: usize) -> u32 {
        let id = self.new_id();
        let responder_nonce = self.random.bytes();
        let initial_sequence = self.new_sequence();
        let nonces = [&body.initiator_nonce, &responder_nonce];
        let opening = Opening {
            peer_id: body.id,
            route,
            initial_sequence,
            peer_initial_sequence: body.initial_sequence,
            peer_window_packets: body.window_packets,
            mtu_bytes: length.min(self.config.mtu_bytes),
            rtt_us: Some(now - body.cookie_time_us),
            control_sequence: Seq::new(self.random.word()),
            protect: self.factory.for_connection(Stage::Traffic, false, id, body.id, nonces),
        };
        let answer = Answer { id, initial_sequence, initiator_nonce: body.initiator_nonce, responder_nonce };
        let connection = Connection::new(now, Arc::clone(&self.config), opening);
        let until_us = now + self.config.handshake_timeout_us;
        let incoming = Incoming { answer, confirmed: false, until_us };
        self.entries.insert(id, Entry::new(Phase::Open(Box::new(connection)), Some(incoming)));
        self.incoming.insert((route.peer, body.id), id);
        self.settle(now, id);
        id
    }

    /// An ACCEPT as long as the CONFIRM, so that it proves the same size in the other direction.
    fn repeat_accept(&mut self, now: Micros, id: u32, body: &Handshake, length: usize) -> bool {
        let window = self.config.receive_window_packets;
        let length = length.min(self.config.mtu_bytes);
        let entry = match self.entries.get_mut(&id) {
            Some(entry) => entry,
            None => return false,
        };
        match (&mut entry.phase, &entry.incoming) {
            (Phase::Open(connection), Some(incoming))
                if !incoming.confirmed && incoming.answer.initiator_nonce == body.initiator_nonce =>
            {
                connection.lower_mtu(length);
                let accept = connection.accept(now, &incoming.answer, window, length);
                self.answer(accept);
                true
            }
            _ => false,
        }
    }

    fn refuse(&mut self, now: Micros, route: Route, body: &Handshake, refusal: Refusal) {
        self.refused += 1;
        self.answer(route.handshake(now, handshake::refusal(body, refusal)));
    }

    fn answer(&mut self, transmit: Transmit) {
        if self.answers.len() < MAX_ANSWERS {
            self.answers.push_back(transmit);
        }
    }

    /// COOKIE, ACCEPT or REFUSE of a responder.
    fn on_answer(
        &mut self,
        now: Micros,
        from: SocketAddr,
        id: u32,
        version: u8,
        body: &Handshake,
        datagram: &[u8],
    ) -> bool {
        let calling = match self.entries.get_mut(&id).map(|entry| &mut entry.phase) {
            Some(Phase::Calling(calling)) if calling.fits(from, body) => calling,
            _ => return false,
        };
        let used = match body.step {
            Step::Cookie => calling.on_cookie(now, self.factory.as_ref(), body),
            Step::Refuse => match calling.on_refuse(version, body.refusal) {
                Some(reason) => {
                    self.end_call(id, reason);
                    true
                }
                None => false,
            },
            Step::Accept => {
                let control_sequence = Seq::new(self.random.word());
                match calling.on_accept(
                    now,
                    &self.config,
                    self.factory.as_ref(),
                    body,
                    datagram,
                    control_sequence,
                ) {
                    Some(opening) => {
                        self.open_call(now, id, opening);
                        true
                    }
                    None => false,
                }
            }
            Step::Request | Step::Confirm => false,
        };
        self.settle(now, id);
        used
    }

    fn open_call(&mut self, now: Micros, id: u32, opening: Opening) {
        let peer = opening.route.peer;
        let mut connection = Connection::new(now, Arc::clone(&self.config), opening);
        connection.greet();
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.phase = Phase::Open(Box::new(connection));
        }
        let event = Event::Connected { peer, incoming: false };
        self.events.push_back((ConnectionId(id), Queued { event, packets: 0 }));
    }

    fn end_call(&mut self, id: u32, reason: CloseReason) {
        self.remove(id);
        // Before the end of the handshake no message is accepted.
        let event = Event::Closed { reason, unconfirmed_bytes: 0 };
        self.events.push_back((ConnectionId(id), Queued { event, packets: 0 }));
    }

    fn remove(&mut self, id: u32) {
        if let Some(entry) = self.entries.remove(&id) {
            self.schedule.remove(&(entry.wakeup_us, id));
            if let Phase::Open(connection) = &entry.phase {
                // Messages that the caller has not read stay counted until it reads them.
                self.held_bytes -= connection.unassembled_bytes();
                if entry.incoming.is_some() {
                    self.incoming.remove(&(connection.peer(), connection.peer_id()));
                }
            }
        }
    }

    /// After any call on a connection: its events, its memory, its next time, its end.
    fn settle(&mut self, now: Micros, id: u32) {
        self.settle_after(now, id, 0);
    }

    fn settle_after(&mut self, now: Micros, id: u32, earliest_us: Micros) {
        let entry = match self.entries.get_mut(&id) {
            Some(entry) => entry,
            None => return,
        };
        let announced = entry.is_announced();
        let mut ended = false;
        if let Phase::Open(connection) = &mut entry.phase {
            self.held_bytes = self.held_bytes + connection.receive_bytes() - entry.accounted_bytes;
            entry.accounted_bytes = connection.receive_bytes();
            while let Some(queued) = connection.pop_event() {
                if announced {
                    self.events.push_back((ConnectionId(id), queued));
                }
            }
            let expired = entry.incoming.as_ref().map_or(false, |i| !i.confirmed && now >= i.until_us);
            ended = connection.is_ended() || expired;
        }
        if ended {
            self.remove(id);
            return;
        }
        let wakeup_us = entry.next_wakeup_us().max(earliest_us);
        if wakeup_us != entry.wakeup_us || !self.schedule.contains(&(wakeup_us, id)) {
            self.schedule.remove(&(entry.wakeup_us, id));
            entry.wakeup_us = wakeup_us;
            self.schedule.insert((wakeup_us, id));
        }
    }

    /// Runs timers that are due, and returns the next datagram to send.
    pub fn poll_transmit(&mut self, now: Micros) -> Option<Transmit> {
        if let Some(answer) = self.answers.pop_front() {
            return Some(answer);
        }
        loop {
            let (wakeup_us, id) = *self.schedule.iter().next()?;
            if wakeup_us > now {
                return None;
            }
            let entry = self.entries.get_mut(&id)?;
            let transmit = match &mut entry.phase {
                Phase::Open(connection) => connection.poll_transmit(now),
                Phase::Calling(calling) => match calling.poll(now) {
                    Ok(transmit) => transmit,
                    Err(reason) => {
                        self.end_call(id, reason);
                        continue;
                    }
                },
            };
            // A connection with nothing to send now must not be asked again before the time moves.
            let earliest_us = if transmit.is_none() { now + 1 } else { 0 };
            self.settle_after(now, id, earliest_us);
            if transmit.is_some() {
                return transmit;
            }
        }
    }

    /// When to call `poll_transmit` next at the latest. The time can be in the past.
    pub fn poll_timeout(&self) -> Option<Micros> {
        if !self.answers.is_empty() {
            return Some(0);
        }
        self.schedule.iter().next().map(|(wakeup_us, _)| *wakeup_us)
    }

    /// The next event. A message occupies the receive window until then.
    pub fn poll_event(&mut self, now: Micros) -> Option<(ConnectionId, Event)> {
        let (id, queued) = self.events.pop_front()?;
        let mut event = queued.event;
        let connection = match self.entries.get_mut(&id.0).map(|entry| &mut entry.phase) {
            Some(Phase::Open(connection)) => Some(connection),
            _ => None,
        };
        match (&mut event, connection) {
            (Event::Message { data, .. }, Some(connection)) => connection.on_read(queued.packets, data.len()),
            (Event::Message { data, .. }, None) => {
                self.held_bytes -= data.len() + queued.packets as usize * PLACE_BYTES;
            }
            (Event::ModeChanged(mode), Some(connection)) => *mode = connection.on_mode_read(),
            _ => {}
        }
        self.settle(now, id.0);
        Some((id, event))
    }

    fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        match self.entries.get(&id.0).map(|entry| &entry.phase) {
            Some(Phase::Open(connection)) => Some(connection),
            _ => None,
        }
    }

    /// Takes a message for sending. Before `Event::Connected` the error is `Closed`.
    pub fn send_message(
        &mut self,
        now: Micros,
        id: ConnectionId,
        data: &[u8],
    ) -> Result<MessageId, SendError> {
        let result = match self.entries.get_mut(&id.0).map(|entry| &mut entry.phase) {
            Some(Phase::Open(connection)) => connection.send_message(now, data),
            _ => Err(SendError::Closed),
        };
        self.settle(now, id.0);
        result
    }

    /// The largest message that `send_message` takes on this connection; None if it is not open.
    pub fn max_message_bytes(&self, id: ConnectionId) -> Option<usize> {
        self.connection(id).map(Connection::max_message_bytes)
    }

    /// Counters and state of a connection; None before it is open and after its end.
    pub fn statistics(&self, id: ConnectionId) -> Option<Statistics> {
        self.connection(id).map(Connection::statistics)
    }

    /// Counters of the endpoint.
    pub fn endpoint_statistics(&self) -> EndpointStatistics {
        EndpointStatistics {
            connections: self.entries.len(),
            receive_bytes: self.held_bytes,
            stray: self.stray,
            refused: self.refused,
        }
    }

    /// Closes a connection after all its data is acknowledged. `Event::Closed` follows. Data that the peer
    /// still sends is lost, and the peer's `Event::Closed` counts it: an application that needs it waits for it
    /// before it closes.
    pub fn close(&mut self, now: Micros, id: ConnectionId) {
        self.stop(now, id, Connection::close);
    }

    /// Ends a connection at once; data that is not acknowledged is lost. `Event::Closed` follows and counts it.
    pub fn abort(&mut self, now: Micros, id: ConnectionId) {
        self.stop(now, id, Connection::abort);
    }

    fn stop(&mut self, now: Micros, id: ConnectionId, how: fn(&mut Connection, Micros)) {
        match self.entries.get_mut(&id.0).map(|entry| &mut entry.phase) {
            Some(Phase::Open(connection)) => how(connection, now),
            Some(Phase::Calling(_)) => self.end_call(id.0, CloseReason::Local),
            None => {}
        }
        self.settle(now, id.0);
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
