//! DCUDP on Linux: sockets, packet protection, file transfer, and the C interface.
//!
//! `dcudp-proto` is the protocol. This crate gives it a UDP socket, a clock and keys, and runs it in one thread for
//! each node (`node.rs`, `event_loop.rs`). `ffi.rs` is the interface for C, described by `dcudp/dcudp.h`.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod channel;
pub mod connection;
pub mod event;
pub mod event_loop;
pub mod ffi;
pub mod files;
pub mod key;
pub mod load;
pub mod node;
pub mod pacing;
pub mod path;
pub mod protect;
pub mod socket;
pub mod sys;
pub mod watch;

#[cfg(test)]
mod testing;
