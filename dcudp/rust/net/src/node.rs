//! A node: one UDP port with all its connections, served by a thread of its own.

use std::io;
use std::net::SocketAddr;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};

use dcudp_proto::{Config, ConnectionId, Endpoint, Micros, Plain, ProtectFactory, SendError, Statistics};

use crate::channel;
use crate::event::{AppEvent, EventQueue};
use crate::event_loop::EventLoop;
use crate::files::folder::Folder;
use crate::key::{self, reason, Key};
use crate::path;
use crate::protect::PresharedKey;
use crate::socket::{Offloads, UdpSocket};
use crate::sys::{self, Wake};

/// How much an application may leave unread. Then the node stops reading, and peers stop sending.
const UNREAD_BYTES_MAX: usize = 16 << 20;
/// The bytes of a connection's receive window, and its least packets: jumbo frames may fall back to small packets.
const WINDOW_BYTES: usize = 12 << 20;
const WINDOW_PACKETS_MIN: usize = 4_096;
/// How long before its time a packet goes to the kernel if fq sends it on time.
const TXTIME_AHEAD_US: Micros = 2_000;

/// How to open a node.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the socket is bound.
    pub bind: SocketAddr,
    /// The peer that the application will connect to, if it is known: its path decides about MTU and SO_TXTIME.
    pub peer: Option<SocketAddr>,
    /// Accept connections.
    pub listens: bool,
    /// The file of the pre-shared key. Without one, only loopback is allowed.
    pub key_file: Option<PathBuf>,
    /// The folder for received files. Without one, offers are refused.
    pub folder: Option<PathBuf>,
    /// Count the load of a peer's measurement.
    pub counts_load: bool,
    pub offloads: Offloads,
    /// Use SO_TXTIME where the interface has fq.
    pub txtime: bool,
    /// The protocol's settings. An `mtu_bytes` of 0 means what the interface allows.
    pub protocol: Config,
}

/// Counters of a node.
#[derive(Debug, Clone, Default)]
pub struct NodeStatistics {
    pub socket: crate::socket::Counters,
    pub lateness: crate::pacing::Lateness,
    /// CPU time of the node's thread.
    pub cpu_us: u64,
    /// The kernel divides joined packets (UDP_SEGMENT).
    pub segments: bool,
    /// The qdisc fq sends packets at their times (SO_TXTIME).
    pub txtime: bool,
    /// Packets may be fragmented, because a path's MTU shrank.
    pub fragments: bool,
}

pub type Command = Box<dyn FnOnce(&mut EventLoop) + Send>;

/// What the node's thread and the application share.
pub struct Shared {
    /// What the thread still has to run; None after its end.
    commands: Mutex<Option<Vec<Command>>>,
    pub wake: Wake,
    pub events: EventQueue,
}

impl Shared {
    fn new() -> io::Result<Shared> {
        let commands = Mutex::new(Some(Vec::new()));
        Ok(Shared { commands, wake: Wake::new()?, events: EventQueue::new(UNREAD_BYTES_MAX)? })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Command>>> {
        self.commands.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Let the thread run a command. After the thread's end the command is dropped.
    fn run(&self, command: Command) {
        if let Some(commands) = self.lock().as_mut() {
            commands.push(command);
            self.wake.set();
        }
    }

    pub fn take_commands(&self) -> Vec<Command> {
        self.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn end(&self) {
        *self.lock() = None;
    }
}

/// An open node. Dropping it ends its connections at once.
pub struct Node {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread. A child made by fork(2) has a copy of the memory and not the thread.
    process: u32,
    local: SocketAddr,
    is_protected: bool,
}

impl Node {
    /// Open a socket and start the thread. The error is a sentence that names the remedy.
    pub fn open(options: Options) -> Result<Node, String> {
        let factory = protection(&options)?;
        let folder = options.folder.as_deref().map(Folder::open).transpose()?.map(Arc::new);
        let failed = |error: io::Error| format!("cannot open the node: {}", reason(&error));
        let mut socket = UdpSocket::bind(options.bind, options.offloads).map_err(|error| {
            format!("cannot listen on {}: {}; choose another address or port", options.bind, reason(&error))
        })?;
        let mut config = options.protocol.clone();
        if config.mtu_bytes == 0 {
            config.mtu_bytes = match options.peer {
                Some(peer) => path::payload_bytes_towards(peer),
                None => path::payload_bytes_at(options.bind),
            };
        }
        config.receive_window_packets =
            (WINDOW_BYTES / config.mtu_bytes.max(1)).max(WINDOW_PACKETS_MIN) as u32;
        if options.txtime && options.peer.map_or(false, path::sends_on_time) && socket.use_txtime().is_ok() {
            config.pacing_ahead_us = TXTIME_AHEAD_US;
        }
        let mut seed = [0; 32];
        sys::random(&mut seed).map_err(failed)?;
        let endpoint = Endpoint::new(config, options.listens, seed, factory)
            .map_err(|error| format!("cannot open the node: {error}"))?;
        let shared = Arc::new(Shared::new().map_err(failed)?);
        let local = socket.local();
        let event_loop = EventLoop::new(endpoint, socket, Arc::clone(&shared), folder, options.counts_load)
            .map_err(failed)?;
        let reporter = Arc::clone(&shared);
        let work = move || {
            if panic::catch_unwind(AssertUnwindSafe(|| event_loop.run())).is_err() {
                let why = "the node's thread failed: please report the message that it printed";
                reporter.events.push(0, AppEvent::Broken(why.to_owned()));
            }
            reporter.end();
        };
        let thread = Builder::new().name("dcudp".to_owned()).spawn(work).map_err(failed)?;
        Ok(Node {
            shared,
            thread: Some(thread),
            process: process::id(),
            local,
            is_protected: options.key_file.is_some(),
        })
    }

    fn is_of_this_process(&self) -> bool {
        self.process == process::id()
    }

    /// The address of the socket. Its port is the one that the kernel chose.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    pub fn events(&self) -> &EventQueue {
        &self.shared.events
    }

    /// The next event, or None. A child process gets none: it would take the event's signal from its parent.
    pub fn next_event(&self) -> Option<(u32, AppEvent)> {
        if !self.is_of_this_process() {
            return None;
        }
        let (connection, event, has_room_again) = self.shared.events.pop()?;
        if has_room_again {
            self.shared.wake.set();
        }
        Some((connection, event))
    }

    /// Run something in the node's thread, and wait for its result.
    fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut EventLoop) -> R + Send + 'static,
    ) -> Result<R, String> {
        if !self.is_of_this_process() {
            return Err("the node belongs to the parent process: open another one after the fork".to_owned());
        }
        let (send, receive) = mpsc::channel();
        self.shared.run(Box::new(move |event_loop| {
            let _ = send.send(work(event_loop));
        }));
        receive.recv().map_err(|_| "the node is closed".to_owned())
    }

    /// Begin a connection. Returns its number; `Connected` or `Closed` follows.
    pub fn connect(&self, to: SocketAddr) -> Result<u32, String> {
        if to.is_ipv4() != self.local.is_ipv4() {
            return Err(format!("{to} and this node's address {} are of different IP versions", self.local));
        }
        if !self.is_protected && !to.ip().is_loopback() {
            return Err(needs_key(to));
        }
        self.call(move |event_loop| event_loop.connect(to))?
    }

    /// Send a message. Err(SendError::Full): wait for `Writable`.
    pub fn send_message(&self, connection: u32, bytes: &[u8]) -> Result<(), SendError> {
        self.send(connection, channel::message(bytes))
    }

    /// Send bytes of a stream; `last` ends this direction of it.
    pub fn send_stream(
        &self,
        connection: u32,
        stream: u32,
        last: bool,
        bytes: &[u8],
    ) -> Result<(), SendError> {
        self.send(connection, channel::stream(stream, last, bytes))
    }

    fn send(&self, connection: u32, message: Vec<u8>) -> Result<(), SendError> {
        let id = ConnectionId(connection);
        self.call(move |event_loop| event_loop.send(id, &message)).unwrap_or(Err(SendError::Closed))
    }

    /// Begin to send a file under a name. Returns the number of the transfer.
    pub fn send_file(&self, connection: u32, path: &Path, name: &str) -> Result<u32, String> {
        let (path, name) = (path.to_owned(), name.to_owned());
        self.call(move |event_loop| event_loop.send_file(ConnectionId(connection), &path, &name))?
    }

    /// Send as much as the protocol allows for some time. `LoadDone` or `LoadRefused` follows.
    pub fn send_load(&self, connection: u32, duration_us: Micros) -> Result<(), String> {
        self.call(move |event_loop| event_loop.send_load(ConnectionId(connection), duration_us))?
    }

    /// End a connection after its data has arrived. `Closed` follows.
    pub fn close_connection(&self, connection: u32) {
        let _ = self.call(move |event_loop| event_loop.close(ConnectionId(connection)));
    }

    /// End a connection at once.
    pub fn abort_connection(&self, connection: u32) {
        let _ = self.call(move |event_loop| event_loop.abort(ConnectionId(connection)));
    }

    /// Counters of a connection; None after its end.
    pub fn statistics(&self, connection: u32) -> Option<Statistics> {
        self.call(move |event_loop| event_loop.statistics(ConnectionId(connection))).ok()?
    }

    pub fn node_statistics(&self) -> NodeStatistics {
        self.call(|event_loop| event_loop.node_statistics()).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            return;
        }
        self.shared.run(Box::new(EventLoop::stop));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn needs_key(address: SocketAddr) -> String {
    format!("{address} is not loopback, so packets must be protected: give a key file, which weir dcudp key makes")
}

fn protection(options: &Options) -> Result<Box<dyn ProtectFactory + Send>, String> {
    if let Some(path) = &options.key_file {
        let key: Key = key::read(path)?;
        return Ok(Box::new(PresharedKey(key)));
    }
    match [Some(options.bind).filter(|_| options.listens), options.peer]
        .into_iter()
        .flatten()
        .find(|address| !address.ip().is_loopback())
    {
        Some(address) => Err(needs_key(address)),
        None => Ok(Box::new(Plain)),
    }
}
