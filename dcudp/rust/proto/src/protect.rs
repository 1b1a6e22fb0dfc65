//! Packet protection: what the protocol asks of an AEAD, and the form without one for loopback.

use std::error::Error;
use std::fmt;

/// Bytes of each side's random nonce in the handshake.
pub const NONCE_BYTES: usize = 16;

/// Why a packet was not opened. The packet is counted and dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectError {
    /// The packet is too short, or its tag does not fit the key, the header or the payload.
    Forged,
    /// The packet was opened before, or is older than the window of replays.
    Replayed,
}

impl fmt::Display for ProtectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProtectError::Forged => "the packet does not fit this connection's key",
            ProtectError::Replayed => "the packet is a replay",
        })
    }
}

impl Error for ProtectError {}

/// The protection of one direction pair of one connection.
///
/// A retransmitted data packet repeats its sequence number with other header bits. So an implementation
/// must not derive its nonce from the header: it counts sealed packets and sends the count in the payload.
pub trait Protect {
    /// Encrypts `payload` in place and appends what `open` needs. `header` is authenticated, not changed.
    fn seal(&mut self, header: &[u8], payload: &mut Vec<u8>);

    /// Reverses `seal`. On an error the content of `payload` is undefined.
    fn open(&mut self, header: &[u8], payload: &mut Vec<u8>) -> Result<(), ProtectError>;

    /// Bytes by which `seal` lengthens a payload.
    fn overhead(&self) -> usize;
}

/// Which key is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The initiator seals its CONFIRM, and the responder opens it. The responder seals nothing with this
    /// key, and `peer_id` (of the initiator) or `local_id` (of the responder) is 0: no id is chosen at that
    /// time.
    Confirm,
    /// Everything from ACCEPT on.
    Traffic,
}

/// Makes the protection of a connection, for example by HKDF from a pre-shared key and the nonces.
pub trait ProtectFactory {
    /// `nonces` are the initiator's and the responder's, in this order at both ends. The two ends must derive
    /// different keys for the two directions.
    fn for_connection(
        &self,
        stage: Stage,
        initiator: bool,
        local_id: u32,
        peer_id: u32,
        nonces: [&[u8; NONCE_BYTES]; 2],
    ) -> Box<dyn Protect + Send>;
}

/// No protection. For loopback and tests only.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain;

impl Protect for Plain {
    fn seal(&mut self, _header: &[u8], _payload: &mut Vec<u8>) {}

    fn open(&mut self, _header: &[u8], _payload: &mut Vec<u8>) -> Result<(), ProtectError> {
        Ok(())
    }

    fn overhead(&self) -> usize {
        0
    }
}

impl ProtectFactory for Plain {
    fn for_connection(
        &self,
        _stage: Stage,
        _initiator: bool,
        _local_id: u32,
        _peer_id: u32,
        _nonces: [&[u8; NONCE_BYTES]; 2],
    ) -> Box<dyn Protect + Send> {
        Box::new(Plain)
    }
}
