//! Hostile datagrams for both ends of a connection, and checks after each round of what must hold.
//!
//! Half of the datagrams go to endpoints with a key: there only messages that were sent may arrive, whole and
//! in order. The other half go to endpoints without protection, so that they reach the code behind it. There
//! a forged shutdown may end the connection, and a new one begins. Datagrams are random bytes, mutated,
//! truncated, extended, replayed and spoofed copies of real ones, and well-formed headers with random bodies.

use std::collections::VecDeque;

use super::keys::Keys;
use super::{address, Rng};
use dcudp_proto::{Config, ConnectionId, Ecn, Endpoint, Event, Plain, ProtectFactory};

/// Hostile datagrams between two checks.
const ROUND: u64 = 1000;
const CORPUS: usize = 256;
/// Sequence numbers wrap early.
const INITIAL: u32 = 0x7fff_ff00;

fn config() -> Config {
    Config {
        receive_window_packets: 256,
        send_buffer_bytes: 1 << 17,
        max_connections: 64,
        initial_sequence: Some(INITIAL),
        ..Config::default()
    }
}

struct Pair {
    keyed: bool,
    ends: [Endpoint; 2],
    now: u64,
    id: Option<ConnectionId>,
    peer_number: [u32; 2],
    corpus: VecDeque<(usize, Vec<u8>)>,
    sent: VecDeque<Vec<u8>>,
    arrived: u64,
    connections: u64,
    largest_bytes: usize,
}

fn endpoint(keyed: bool, server: bool) -> Endpoint {
    let factory: Box<dyn ProtectFactory + Send> = if keyed { Box::new(Keys(1)) } else { Box::new(Plain) };
    Endpoint::new(config(), server, [1 + u8::from(server); 32], factory).expect("a valid configuration")
}

impl Pair {
    fn new(keyed: bool) -> Pair {
        Pair {
            keyed,
            ends: [endpoint(keyed, true), endpoint(keyed, false)],
            now: 1_000_000,
            id: None,
            peer_number: [0; 2],
            corpus: VecDeque::new(),
            sent: VecDeque::new(),
            arrived: 0,
            connections: 0,
            largest_bytes: 0,
        }
    }

    /// Carries datagrams between the ends for some milliseconds.
    fn pump(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds * 4 {
            self.now += 250;
            for from in [0, 1] {
                while let Some(transmit) = self.ends[from].poll_transmit(self.now) {
                    if self.corpus.len() == CORPUS {
                        self.corpus.pop_front();
                    }
                    self.corpus.push_back((1 - from, transmit.contents.clone()));
                    if transmit.to == address(1 - from) {
                        self.ends[1 - from].handle(self.now, address(from), transmit.ecn, &transmit.contents);
                    }
                }
                self.read(from);
            }
        }
    }

    fn read(&mut self, end: usize) {
        while let Some((id, event)) = self.ends[end].poll_event(self.now) {
            match event {
                Event::Connected { .. } => {
                    self.peer_number[end] = id.0;
                    if end == 1 {
                        self.id = Some(id);
                    }
                }
                Event::Closed { reason, .. } => {
                    assert!(!self.keyed, "hostile datagrams ended an authenticated connection: {reason:?}");
                    if self.id == Some(id) {
                        self.id = None;
                    }
                }
                Event::Message { data, .. } if self.keyed => {
                    assert_eq!(self.sent.pop_front(), Some(data), "a message arrived that was not sent");
                    self.arrived += 1;
                }
                _ => {}
            }
        }
    }

    fn work(&mut self, rng: &mut Rng) {
        // Without a key hostile reports stop a connection sooner or later. Each new one is fuzzed in a fresh
        // state.
        if let (false, Some(id), 0) = (self.keyed, self.id, rng.below(10)) {
            self.ends[1].abort(self.now, id);
            self.pump(5);
        }
        if self.id.is_none() {
            self.connections += 1;
            // Old connections of hostile rounds may fill the endpoint until their timeouts.
            if self.ends[1].connect(self.now, address(0)).is_err() {
                self.ends = [endpoint(self.keyed, true), endpoint(self.keyed, false)];
                self.ends[1].connect(self.now, address(0)).expect("an empty endpoint");
            }
        }
        self.pump(5);
        if let Some(id) = self.id {
            for _ in 0..4 {
                let length = rng.below(5000) as usize;
                let data = rng.bytes(length);
                if self.ends[1].send_message(self.now, id, &data).is_ok() && self.keyed {
                    self.sent.push_back(data);
                }
            }
        }
    }

    fn check(&mut self) {
        for end in &self.ends {
            let statistics = end.endpoint_statistics();
            // 64 connections with full windows.
            let limit = 64 * 256 * (1452 + 64);
            assert!(statistics.receive_bytes <= limit && statistics.connections <= 64, "{statistics:?}");
            self.largest_bytes = self.largest_bytes.max(statistics.receive_bytes);
        }
        if let Some(statistics) = self.id.and_then(|id| self.ends[1].statistics(id)) {
            assert!(statistics.send_buffer_bytes <= 1 << 17, "{statistics:?}");
        }
    }

    fn hostile(&mut self, rng: &mut Rng) {
        let picked = rng.below(self.corpus.len().max(1) as u64) as usize;
        let (mut to, mut bytes) = self.corpus.get(picked).cloned().unwrap_or((0, vec![0; 16]));
        let mut from = address(1 - to);
        match rng.below(16) {
            0 => {
                let length = rng.below(200) as usize;
                bytes = rng.bytes(length);
            }
            1 => bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize),
            2 => {
                let length = rng.below(600) as usize;
                bytes.extend_from_slice(&rng.bytes(length));
            }
            3 => from = address(2 + rng.below(1000) as usize),
            4 => to = 1 - to,
            5 => {} // A replay.
            6..=9 => {
                // A well-formed header of this connection with a random body.
                let length = rng.below(160) as usize;
                bytes = rng.bytes(16 + length);
                bytes[4] = (bytes[4] & 0xe0) | rng.below(8) as u8;
                bytes[5] = 1 << 4;
                bytes[12..16].copy_from_slice(&self.peer_number[to].to_be_bytes());
                if length > 24 {
                    bytes[38] = 0;
                    bytes[39] = rng.below(((length - 24) / 4) as u64 + 1) as u8;
                }
            }
            10 => {
                // One of the first data packets, with flags that contradict others.
                let flags = (rng.below(8) as u8) << 2;
                bytes = (INITIAL + rng.below(12) as u32).to_be_bytes().to_vec();
                bytes.extend_from_slice(&[flags, 0, 0, rng.below(2) as u8]);
                bytes.extend_from_slice(&[0; 4]);
                bytes.extend_from_slice(&self.peer_number[to].to_be_bytes());
            }
            _ => {
                // A few bytes of a real packet, near the header, changed; for the connection that is open
                // now.
                if bytes.len() >= 16 && bytes[12..16] != [0; 4] {
                    bytes[12..16].copy_from_slice(&self.peer_number[to].to_be_bytes());
                }
                for _ in 0..1 + rng.below(4) {
                    let at = rng.below(bytes.len().min(60) as u64) as usize;
                    bytes[at] = rng.word() as u8;
                }
            }
        }
        if rng.below(20) == 0 {
            self.now += rng.below(300);
        }
        let ecn = Ecn::from_bits(rng.below(4) as u8);
        self.ends[to].handle(self.now, from, ecn, &bytes);
        self.read(to);
    }
}

/// Feeds `count` datagrams, and returns what happened. Panics if something arrives that must not, or memory
/// grows.
pub fn run(count: u64, seed: u64) -> String {
    let mut rng = Rng::new(seed);
    let mut pairs = [Pair::new(true), Pair::new(false)];
    let mut fed = 0;
    while fed < count {
        for pair in &mut pairs {
            pair.work(&mut rng);
            for _ in 0..ROUND.min(count - fed) {
                pair.hostile(&mut rng);
            }
            fed += ROUND.min(count - fed);
            pair.pump(5);
            pair.check();
        }
    }
    format!(
        "{fed} hostile datagrams with seed {seed}: {} messages arrived as sent, {} connections with a key and \
         {} without, at most {} received bytes held",
        pairs[0].arrived, pairs[0].connections, pairs[1].connections, pairs[1].largest_bytes
    )
}
