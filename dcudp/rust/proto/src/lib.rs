//! DCUDP, a reliable UDP transport for data centers that reacts to ECN (Ye, Mhamdi and Hamdi, CloudNet 2014).
//!
//! This crate has no sockets, clocks or threads. A caller gives it datagrams and the time, and asks for
//! datagrams to send, the time of the next call, and events. See `dcudp/WIRE.md` for the wire format and
//! `dcudp/README.md` for the choices where the paper is silent.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod config;
mod connection;
pub mod endpoint;
mod handshake;
mod incoming;
#[cfg(test)]
mod model_check;
pub mod observer;
mod outgoing;
pub mod protect;
mod random;
pub mod sender;
pub mod seq;
pub mod wire;

pub use config::{Config, ConfigError};
pub use endpoint::{
    CloseReason, ConnectError, ConnectionId, Endpoint, EndpointStatistics, Event, MessageId, Mode, Route,
    SendError, Statistics, Transmit,
};
pub use protect::{Plain, Protect, ProtectError, ProtectFactory, Stage};

/// Monotonic time of this host in microseconds.
pub type Micros = u64;

/// The ECN field of an IP packet (RFC 3168).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// 00: the transport does not support ECN.
    NotEct,
    /// 10
    Ect0,
    /// 01
    Ect1,
    /// 11: congestion experienced.
    Ce,
}

impl Ecn {
    /// From the two low bits of the traffic class.
    pub fn from_bits(bits: u8) -> Ecn {
        match bits & 3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// The two low bits of the traffic class.
    pub fn bits(self) -> u8 {
        match self {
            Ecn::NotEct => 0,
            Ecn::Ect1 => 1,
            Ecn::Ect0 => 2,
            Ecn::Ce => 3,
        }
    }
}
