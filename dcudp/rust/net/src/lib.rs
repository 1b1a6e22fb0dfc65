//! DCUDP on Linux: sockets, packet protection, file transfer, and the C interface.
//!
//! `dcudp-proto` is the protocol. This crate gives it a UDP socket, a clock and keys, and runs it in one thread for
//! each node (`node.rs`, `event_loop.rs`). `ffi.rs` is the interface for C, described by `dcudp/dcudp.h`.
#![deny(unsafe_op_in_unsafe_fn)]

mod channel;
mod connection;
mod event;
mod event_loop;
pub mod ffi;
mod files;
mod key;
mod load;
mod node;
mod pacing;
mod path;
mod protect;
mod socket;
mod sys;
mod watch;

#[cfg(test)]
mod testing;
