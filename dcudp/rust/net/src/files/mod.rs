//! File transfer over messages: an offer, an answer, the data, and a confirmation.
//!
//! The sender hashes the file first (SHA-256) and offers name, size and hash. The receiver answers with how much
//! of the file it has in a partial file, and with the hash of that part. If the sender's file begins with the
//! same bytes, the data begins there, else at 0. The receiver compares the hash of the whole, writes it to the
//! disk (fsync), gives it its final name and confirms. A file never has its final name before that.
//!
//! A transfer does no I/O of its own accord: the event loop calls `step`, which does a bounded amount of work.

pub mod folder;
mod hasher;
pub mod name;
pub mod receiver;
pub mod record;
pub mod sender;

/// How many bytes a call of `step` hashes at most: less than a millisecond of work.
pub const SLICE_BYTES: usize = 256 << 10;

/// What a call of `step` did.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// It worked, and has more to do now.
    Busy,
    /// It waits for the peer.
    Idle,
    /// A record for the peer.
    Send(Vec<u8>),
    /// The transfer is complete. The record, if any, is for the peer.
    Done(Option<Vec<u8>>),
    /// The transfer has ended with an error.
    Failed(String),
}

#[cfg(test)]
mod tests;
