//! What a node reports to its application, and the queue between the two.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;

use dcudp_proto::Mode;

use crate::files::record::Hash;
use crate::load::Measured;
use crate::sys::Wake;

/// Content that an event holds, from `start` on. The bytes before are the channel's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub data: Vec<u8>,
    pub start: usize,
}

impl Content {
    pub fn bytes(&self) -> &[u8] {
        &self.data[self.start..]
    }
}

/// A file transfer's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileState {
    pub transfer: u32,
    /// This host receives the file.
    pub incoming: bool,
    pub name: String,
    pub size: u64,
    /// Bytes that the receiver has.
    pub done: u64,
    /// Bytes that the receiver had before.
    pub resumed: u64,
    pub hash: Hash,
}

/// What happened, with the connection's number. 0: the node itself.
#[derive(Debug, Clone, PartialEq)]
pub enum AppEvent {
    Connected {
        peer: SocketAddr,
        incoming: bool,
    },
    Message(Content),
    Stream {
        stream: u32,
        last: bool,
        content: Content,
    },
    /// A message that did not fit can be sent now.
    Writable,
    ModeChanged(Mode),
    FileProgress(FileState),
    FileDone(FileState),
    FileFailed(FileState, String),
    LoadDone(Measured),
    LoadRefused,
    /// The connection ended; an error if it did not end as both sides wished.
    Closed {
        error: Option<String>,
    },
    /// The node ended with an error. No event follows.
    Broken(String),
}

impl AppEvent {
    fn weight(&self) -> usize {
        const EVENT_BYTES: usize = 256;
        match self {
            AppEvent::Message(content) | AppEvent::Stream { content, .. } => EVENT_BYTES + content.data.len(),
            _ => EVENT_BYTES,
        }
    }
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<(u32, AppEvent)>,
    bytes: usize,
}

/// Events that the application has not read. `ready` is readable while there are any.
#[derive(Debug)]
pub struct EventQueue {
    waiting: Mutex<Waiting>,
    limit_bytes: usize,
    pub ready: Wake,
}

impl EventQueue {
    pub fn new(limit_bytes: usize) -> io::Result<EventQueue> {
        Ok(EventQueue { waiting: Mutex::default(), limit_bytes, ready: Wake::new()? })
    }

    pub fn push(&self, connection: u32, event: AppEvent) {
        let mut waiting = self.lock();
        waiting.bytes += event.weight();
        waiting.events.push_back((connection, event));
        if waiting.events.len() == 1 {
            self.ready.set();
        }
    }

    /// Whether the queue holds as many bytes as it may.
    pub fn is_full(&self) -> bool {
        self.lock().bytes >= self.limit_bytes
    }

    /// The next event, and whether the queue was full and now has room again.
    pub fn pop(&self) -> Option<(u32, AppEvent, bool)> {
        let mut waiting = self.lock();
        let (connection, event) = waiting.events.pop_front()?;
        let was_full = waiting.bytes >= self.limit_bytes;
        waiting.bytes -= event.weight();
        if waiting.events.is_empty() {
            self.ready.clear();
        }
        Some((connection, event, was_full && waiting.bytes < self.limit_bytes))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Poll, Ready};

    #[test]
    fn the_queue_is_readable_while_it_holds_events_and_full_beyond_its_limit() {
        let queue = EventQueue::new(1_000).unwrap();
        let poll = Poll::new().unwrap();
        poll.add(queue.ready.fd(), 0, Ready { readable: true, writable: false }).unwrap();
        let is_ready = || !poll.wait(Some(0)).unwrap().is_empty();
        assert!(!is_ready());
        let content = Content { data: vec![0; 900], start: 1 };
        queue.push(1, AppEvent::Message(content.clone()));
        queue.push(2, AppEvent::Writable);
        assert!(is_ready() && queue.is_full());
        assert_eq!(queue.pop(), Some((1, AppEvent::Message(content), true)));
        assert!(is_ready() && !queue.is_full());
        assert_eq!(queue.pop(), Some((2, AppEvent::Writable, false)));
        assert!(!is_ready());
        assert_eq!(queue.pop(), None);
    }
}
