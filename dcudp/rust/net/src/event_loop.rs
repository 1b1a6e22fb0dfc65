//! The thread of a node: it moves packets between the socket and the protocol, and runs transfers.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use dcudp_proto::{CloseReason, ConnectionId, Endpoint, Event, Micros, SendError, Statistics, Transmit};

use crate::connection::{Connection, Services};
use crate::event::AppEvent;
use crate::files::folder::Folder;
use crate::key::reason;
use crate::node::{NodeStatistics, Shared};
use crate::pacing::Lateness;
use crate::socket::{Sent, UdpSocket};
use crate::sys::{self, Poll, Ready};

const SOCKET: u64 = 1;
const WAKE: u64 = 2;
/// How many receive calls a turn makes, so that sending is not held up.
const RECEIVES_MAX: usize = 8;
/// How many packets go to the socket at once.
const BATCH_PACKETS: usize = 256;
/// How many batches a turn sends, so that receiving is not held up.
const BATCHES_MAX: usize = 4;
/// The least time between two turns that only send: at high rates several packets share a system call.
const TICK_US: Micros = 50;
/// How often the loop looks whether data still arrives.
const LOOK_US: Micros = 500_000;

/// The state of a node's thread.
pub struct EventLoop {
    endpoint: Endpoint,
    socket: UdpSocket,
    poll: Poll,
    shared: Arc<Shared>,
    services: Services,
    connections: HashMap<ConnectionId, Connection>,
    /// Connections that may have something to do.
    active: HashSet<ConnectionId>,
    outgoing: VecDeque<Transmit>,
    /// The socket's buffer was full.
    blocked: bool,
    lateness: Lateness,
    /// When the last wait began.
    asked_us: Micros,
    next_look_us: Micros,
    stopping: bool,
}

impl EventLoop {
    pub fn new(
        endpoint: Endpoint,
        socket: UdpSocket,
        shared: Arc<Shared>,
        folder: Option<Arc<Folder>>,
        counts_load: bool,
    ) -> io::Result<EventLoop> {
        let poll = Poll::new()?;
        let readable = Ready { readable: true, writable: false };
        poll.add(socket.fd(), SOCKET, readable)?;
        poll.add(shared.wake.fd(), WAKE, readable)?;
        let waker = Arc::clone(&shared);
        let services = Services { folder, counts_load, notify: Arc::new(move || waker.wake.set()) };
        Ok(EventLoop {
            endpoint,
            socket,
            poll,
            shared,
            services,
            connections: HashMap::new(),
            active: HashSet::new(),
            outgoing: VecDeque::with_capacity(BATCH_PACKETS),
            blocked: false,
            lateness: Lateness::default(),
            asked_us: 0,
            next_look_us: 0,
            stopping: false,
        })
    }

    /// Run until the application stops the node.
    pub fn run(mut self) {
        sys::request_exact_waits();
        while !self.stopping {
            if let Err(error) = self.turn() {
                let why = format!("the socket failed: {}", reason(&error));
                self.shared.events.push(0, AppEvent::Broken(why));
                return;
            }
        }
    }

    fn turn(&mut self) -> io::Result<()> {
        self.receive()?;
        for command in self.shared.take_commands() {
            command(self);
        }
        self.take_events();
        let mut busy = self.work();
        self.look_for_black_holes();
        busy |= self.transmit();
        // Timers run while packets are taken, and may cause events.
        busy |= self.take_events();
        let timeout = if busy { Some(0) } else { self.timeout() };
        if self.stopping {
            // What one turn sends may not be all: each peer gets its shutdown.
            while self.transmit() {}
            return Ok(());
        }
        for (name, ready) in self.poll.wait(timeout)? {
            if name == WAKE {
                self.shared.wake.clear();
            } else if ready.writable {
                self.set_blocked(false)?;
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        for _ in 0..RECEIVES_MAX {
            let (endpoint, now) = (&mut self.endpoint, sys::now_us());
            if !self.socket.receive(|route, ecn, datagram| endpoint.handle(now, route, ecn, datagram))? {
                break;
            }
        }
        Ok(())
    }

    fn timeout(&mut self) -> Option<u64> {
        if self.blocked {
            return None;
        }
        let now = sys::now_us();
        self.asked_us = now;
        self.endpoint.poll_timeout().map(|at| at.saturating_sub(now).max(TICK_US))
    }

    /// Returns whether there were events.
    fn take_events(&mut self) -> bool {
        let mut any = false;
        // An application that does not read holds up the peers, because unread messages fill their windows.
        while !self.shared.events.is_full() {
            let (id, event) = match self.endpoint.poll_event(sys::now_us()) {
                Some(next) => next,
                None => break,
            };
            any = true;
            self.take_event(id, event);
        }
        any
    }

    fn take_event(&mut self, id: ConnectionId, event: Event) {
        let now = sys::now_us();
        match event {
            Event::Connected { peer, incoming } => {
                self.connections.entry(id).or_insert_with(|| Connection::new(peer, self.services.clone()));
                self.report(id, AppEvent::Connected { peer, incoming });
            }
            Event::Message { data, .. } => {
                let cpu_us = sys::thread_cpu_us();
                let taken = self.connections.get_mut(&id).map(|one| one.receive(data, now, cpu_us));
                self.active.insert(id);
                self.report_all(id);
                if let Some(Err(_)) = taken {
                    self.endpoint.abort(now, id);
                }
            }
            Event::Writable => self.report(id, AppEvent::Writable),
            Event::ModeChanged(mode) => self.report(id, AppEvent::ModeChanged(mode)),
            Event::Closed { reason, unconfirmed_bytes } => {
                let (error, text) = self.describe(id, &reason);
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.end(&text);
                }
                self.report_all(id);
                self.connections.remove(&id);
                let error = match unconfirmed_bytes {
                    0 => error.then_some(text),
                    bytes => Some(format!("{text}: {bytes} bytes were not confirmed")),
                };
                self.report(id, AppEvent::Closed { error });
            }
        }
    }

    fn report(&self, id: ConnectionId, event: AppEvent) {
        self.shared.events.push(id.0, event);
    }

    fn report_all(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            for event in connection.take_events() {
                self.shared.events.push(id.0, event);
            }
        }
    }

    fn describe(&self, id: ConnectionId, ended: &CloseReason) -> (bool, String) {
        let peer = self.connections.get(&id).map(|connection| connection.peer);
        match (ended, &self.socket.last_refusal) {
            (CloseReason::HandshakeTimeout | CloseReason::Timeout, Some((to, error)))
                if peer == Some(*to) =>
            {
                (true, format!("no answer, and this host cannot send some packets: {}", reason(error)))
            }
            _ => describe(ended),
        }
    }

    /// Let each connection work that may have something to do. Returns whether there is more to do at once.
    fn work(&mut self) -> bool {
        let mut busy = false;
        let active: Vec<ConnectionId> = self.active.iter().copied().collect();
        for id in active {
            let now = sys::now_us();
            busy |= self.work_on(id, now);
            match self.connections.get_mut(&id) {
                Some(connection) if connection.closing && connection.may_close() => {
                    connection.closing = false;
                    self.endpoint.close(now, id);
                }
                Some(connection) if connection.closing || connection.has_work() => {}
                _ => {
                    self.active.remove(&id);
                }
            }
        }
        busy
    }

    fn work_on(&mut self, id: ConnectionId, now: Micros) -> bool {
        let connection = match self.connections.get_mut(&id) {
            Some(connection) if connection.has_work() => connection,
            _ => return false,
        };
        let endpoint = &mut self.endpoint;
        // Transfers leave half of the buffer to the application's messages.
        let half = endpoint.config().send_buffer_bytes / 2;
        let room = endpoint.statistics(id).map_or(false, |now| now.send_buffer_bytes < half);
        let mut too_large = false;
        let mut send = |message: &[u8]| match endpoint.send_message(now, id, message) {
            Err(SendError::TooLarge(_)) => {
                too_large = true;
                false
            }
            result => result != Err(SendError::Full),
        };
        let busy = connection.work(now, room, &mut send);
        if too_large {
            // The peer's window is smaller than a record. No weir has such a window.
            endpoint.abort(now, id);
        }
        self.report_all(id);
        busy
    }

    /// If packets are repeated and none arrives, a link of the path may have become too small for them.
    ///
    /// Packets that are cut cannot be cut anew, because each has its sequence number. So they may be fragmented.
    fn look_for_black_holes(&mut self) {
        let now = sys::now_us();
        if now < self.next_look_us || self.socket.allows_fragments() {
            return;
        }
        self.next_look_us = now + LOOK_US;
        let endpoint = &self.endpoint;
        let is_stuck = self.connections.iter_mut().fold(false, |stuck, (id, connection)| {
            endpoint.statistics(*id).map_or(false, |now| connection.watch.is_stuck(&now)) || stuck
        });
        if is_stuck {
            // If the kernel refuses, the connection ends when its time is over.
            let _ = self.socket.allow_fragments();
        }
    }

    /// Send the packets that are due. Returns whether there are more.
    fn transmit(&mut self) -> bool {
        if let Some(due) = self.endpoint.poll_timeout() {
            self.lateness.add(due, self.asked_us, sys::now_us());
        }
        for _ in 0..BATCHES_MAX {
            if self.blocked {
                return false;
            }
            let now = sys::now_us();
            while self.outgoing.len() < BATCH_PACKETS {
                match self.endpoint.poll_transmit(now) {
                    Some(packet) => self.outgoing.push_back(packet),
                    None => break,
                }
            }
            let whole = self.outgoing.len() == BATCH_PACKETS;
            if self.socket.send(&mut self.outgoing) == Sent::Full {
                // If epoll refuses, the next turn tries again.
                let _ = self.set_blocked(true);
            }
            if !whole {
                return false;
            }
        }
        true
    }

    fn set_blocked(&mut self, blocked: bool) -> io::Result<()> {
        self.poll.change(self.socket.fd(), SOCKET, Ready { readable: true, writable: blocked })?;
        self.blocked = blocked;
        Ok(())
    }

    pub fn connect(&mut self, to: SocketAddr) -> Result<u32, String> {
        let id = self.endpoint.connect(sys::now_us(), to).map_err(|error| error.to_string())?;
        self.connections.insert(id, Connection::new(to, self.services.clone()));
        Ok(id.0)
    }

    pub fn send(&mut self, id: ConnectionId, message: &[u8]) -> Result<(), SendError> {
        self.endpoint.send_message(sys::now_us(), id, message).map(|_| ())
    }

    pub fn send_file(&mut self, id: ConnectionId, path: &Path, name: &str) -> Result<u32, String> {
        self.connection(id)?.send_file(path, name)
    }

    pub fn send_load(&mut self, id: ConnectionId, duration_us: Micros) -> Result<(), String> {
        self.connection(id)?.send_load(sys::now_us().saturating_add(duration_us))
    }

    /// A connection that is about to have something to do.
    fn connection(&mut self, id: ConnectionId) -> Result<&mut Connection, String> {
        self.active.insert(id);
        self.connections.get_mut(&id).ok_or_else(|| "the connection is closed".to_owned())
    }

    pub fn close(&mut self, id: ConnectionId) {
        if let Ok(connection) = self.connection(id) {
            connection.closing = true;
        }
    }

    pub fn abort(&mut self, id: ConnectionId) {
        self.endpoint.abort(sys::now_us(), id);
    }

    pub fn statistics(&mut self, id: ConnectionId) -> Option<Statistics> {
        self.endpoint.statistics(id)
    }

    pub fn node_statistics(&self) -> NodeStatistics {
        NodeStatistics {
            socket: self.socket.counters,
            lateness: self.lateness.clone(),
            cpu_us: sys::thread_cpu_us(),
            segments: self.socket.sends_segments(),
            txtime: self.socket.uses_txtime(),
            fragments: self.socket.allows_fragments(),
        }
    }

    /// End every connection, inform the peers, and let `run` return.
    pub fn stop(&mut self) {
        let now = sys::now_us();
        for id in self.connections.keys() {
            self.endpoint.abort(now, *id);
        }
        self.stopping = true;
    }
}

/// Whether a connection ended with an error, and the sentence that states it.
fn describe(reason: &CloseReason) -> (bool, String) {
    let text = match reason {
        CloseReason::Local => return (false, "the connection was closed".to_owned()),
        CloseReason::Peer => return (false, "the peer closed the connection".to_owned()),
        CloseReason::LocalUnacknowledged => "this end did not wait any longer".to_owned(),
        CloseReason::PeerAborted => "the peer ended the connection".to_owned(),
        CloseReason::Timeout => "the peer vanished: it sent nothing for too long".to_owned(),
        CloseReason::HandshakeTimeout => {
            "no answer: is the peer listening there, and do both ends use the same key file?".to_owned()
        }
        CloseReason::Version(version) => {
            format!("the peer speaks version {version} of DCUDP: use the same version of weir at both ends")
        }
        CloseReason::Authentication => {
            "the peer has another key: use the same key file at both ends".to_owned()
        }
        CloseReason::Busy => "the peer has as many connections as it allows: try again later".to_owned(),
    };
    (true, text)
}
