//! An endpoint: all connections of one UDP port, and the handshake.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;

use crate::{Config, ConfigError, Ecn, Micros, ProtectFactory};

/// This host's number of a connection. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u32);

/// The position of a message among those sent on its connection, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(pub u64);

/// A datagram to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// The destination.
    pub to: SocketAddr,
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
    /// The peer closed after all its data was acknowledged.
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
    },
}

/// Why a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// The send buffer is full. Try again after `Event::Writable`.
    Full,
    /// The message is larger than the peer's window or this host's send buffer can ever hold; the limit in bytes.
    TooLarge(usize),
    /// The connection is closed, is closing, or never existed.
    Closed,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Full => f.write_str("the send buffer is full: wait until the connection is writable"),
            SendError::TooLarge(limit) => write!(f, "the message is too large: send at most {limit} bytes in one"),
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
    /// Entries into the Congestion Mode of the direction to the peer.
    pub congestion_entries: u64,
    /// Timeouts without feedback.
    pub timeouts: u64,
    /// True if data packets arrive without the ECT codepoint: the path erases ECN.
    pub ecn_bleached: bool,
}

/// All connections of one UDP port.
///
/// Timers run inside `poll_transmit`. A caller that has nothing to receive calls it at `poll_timeout`.
pub struct Endpoint {
    config: Config,
}

impl Endpoint {
    /// `server` accepts incoming handshakes. `rng_seed` must be secret and different for each endpoint.
    pub fn new(
        config: Config,
        _server: bool,
        _rng_seed: [u8; 32],
        _factory: Box<dyn ProtectFactory + Send>,
    ) -> Result<Endpoint, ConfigError> {
        config.check()?;
        Ok(Endpoint { config })
    }

    /// Begins a handshake.
    pub fn connect(&mut self, _now: Micros, _to: SocketAddr) -> Result<ConnectionId, ConnectError> {
        todo!()
    }

    /// Takes a datagram from the network. Anything malformed, forged or unexpected is counted and dropped.
    pub fn handle(&mut self, _now: Micros, _from: SocketAddr, _ecn: Ecn, _datagram: &[u8]) {
        todo!()
    }

    /// Runs timers that are due, and returns the next datagram to send.
    pub fn poll_transmit(&mut self, _now: Micros) -> Option<Transmit> {
        todo!()
    }

    /// When to call `poll_transmit` next at the latest. The time can be in the past.
    pub fn poll_timeout(&self) -> Option<Micros> {
        todo!()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<(ConnectionId, Event)> {
        todo!()
    }

    /// Takes a message for sending.
    pub fn send_message(&mut self, _now: Micros, _id: ConnectionId, _data: &[u8]) -> Result<MessageId, SendError> {
        todo!()
    }

    /// The largest message that `send_message` takes on this connection.
    pub fn max_message_bytes(&self, _id: ConnectionId) -> Option<usize> {
        todo!()
    }

    /// Counters and state of a connection; None after its end.
    pub fn statistics(&self, _id: ConnectionId) -> Option<Statistics> {
        todo!()
    }

    /// Closes a connection after all its data is acknowledged. `Event::Closed` follows.
    pub fn close(&mut self, _now: Micros, _id: ConnectionId) {
        todo!()
    }

    /// Ends a connection at once; data that is not acknowledged is lost. `Event::Closed` follows.
    pub fn abort(&mut self, _now: Micros, _id: ConnectionId) {
        todo!()
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
