//! A discrete-event network for tests: hosts, one bottleneck with an ECN ramp, loss, reordering and
//! duplication.
//!
//! Everything is deterministic: time is simulated, and random numbers come from a seed.
#![allow(dead_code)]

pub mod fuzz;
pub mod keys;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};

use dcudp_proto::{Config, ConnectionId, Ecn, Endpoint, Event, Plain, SendError, Transmit};

/// xorshift64*, enough for test inputs.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        (self.word() >> 11) % limit
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        ((self.word() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.word() >> 32) as u8).collect()
    }
}

/// What the network does. Delays are one way, in microseconds.
#[derive(Clone)]
pub struct Network {
    pub delay_us: u64,
    pub loss: f64,
    pub duplication: f64,
    pub reordering: f64,
    /// Extra delay of a reordered packet.
    pub reorder_us: u64,
    /// The link to host 0; None is a link without a queue.
    pub bottleneck_bps: Option<u64>,
    pub queue_packets: usize,
    pub th_min: f64,
    pub th_max: f64,
    pub marks: bool,
    /// A switch that erases ECN.
    pub bleaches: bool,
    /// Larger datagrams vanish.
    pub path_mtu: usize,
    /// Extra one-way delay of each host.
    pub host_delay_us: Vec<u64>,
}

impl Network {
    pub fn plain(delay_us: u64) -> Network {
        Network {
            delay_us,
            loss: 0.0,
            duplication: 0.0,
            reordering: 0.0,
            reorder_us: 0,
            bottleneck_bps: None,
            queue_packets: usize::MAX,
            th_min: 1.0,
            th_max: 15.0,
            marks: true,
            bleaches: false,
            path_mtu: 65_507,
            host_delay_us: Vec::new(),
        }
    }

    /// The paper's figure 5: 1 Gbit/s towards the receiver, RTT_idle 100 us, a 4 MB buffer.
    pub fn paper() -> Network {
        Network { bottleneck_bps: Some(1_000_000_000), queue_packets: 2700, ..Network::plain(50) }
    }
}

/// What happened at the bottleneck.
#[derive(Default, Clone)]
pub struct QueueStatistics {
    pub drops: u64,
    pub marked: u64,
    pub passed: u64,
    /// Packets that passed and are not data.
    pub control: u64,
    pub longest: usize,
    pub samples: Vec<(u64, usize)>,
}

struct Flying {
    from: SocketAddr,
    packet: Transmit,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Arrive(usize),
    Dequeue,
}

/// A sending application: messages as fast as `rate_bps` and the endpoint allow.
pub struct Flow {
    pub host: usize,
    pub id: ConnectionId,
    pub message_bytes: usize,
    pub rate_bps: Option<u64>,
    pub from_us: u64,
    pub until_us: u64,
    pub sent_bytes: u64,
    pub limit_bytes: u64,
}

pub struct Host {
    pub endpoint: Endpoint,
    pub address: SocketAddr,
    /// The host's clock is the simulation's plus this.
    pub clock_us: u64,
    pub paused_until_us: u64,
    pub gone: bool,
    pub reads: bool,
    pub inbox: VecDeque<(SocketAddr, Ecn, Vec<u8>)>,
    pub events: Vec<(u64, ConnectionId, Event)>,
    /// Bytes of messages by connection and millisecond.
    pub bins: HashMap<ConnectionId, Vec<u64>>,
    /// Messages are counted in `bins`, and their content is dropped.
    pub counts_only: bool,
}

pub struct Sim {
    pub now_us: u64,
    now_ns: u64,
    pub network: Network,
    pub hosts: Vec<Host>,
    pub flows: Vec<Flow>,
    pub queue: QueueStatistics,
    pub rng: Rng,
    pub datagrams: u64,
    /// Data packets that hosts sent.
    pub data: u64,
    waiting: VecDeque<Flying>,
    busy: bool,
    heap: BinaryHeap<Reverse<(u64, u64, What)>>,
    flying: HashMap<usize, (usize, Flying)>,
    next_key: usize,
    order: u64,
}

/// What each packet has besides its UDP payload: 42 bytes of Ethernet, IP and UDP, and 24 of packet protection.
const AROUND_BYTES: usize = 66;
/// The UDP payload of a full data packet.
const PAYLOAD_BYTES: usize = 1416;

/// Rates are those of the UDP payload of full data packets. Smaller packets cost more than their payload.
fn serialisation_ns(bytes: usize, bps: u64) -> u64 {
    let full_ns = PAYLOAD_BYTES as u64 * 8 * 1_000_000_000 / bps;
    full_ns * (bytes + AROUND_BYTES) as u64 / (PAYLOAD_BYTES + AROUND_BYTES) as u64
}

pub fn address(host: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, (host >> 8) as u8, host as u8), 4000))
}

impl Sim {
    pub fn new(network: Network, seed: u64) -> Sim {
        Sim {
            now_us: 0,
            now_ns: 0,
            network,
            hosts: Vec::new(),
            flows: Vec::new(),
            queue: QueueStatistics::default(),
            rng: Rng::new(seed),
            datagrams: 0,
            data: 0,
            waiting: VecDeque::new(),
            busy: false,
            heap: BinaryHeap::new(),
            flying: HashMap::new(),
            next_key: 0,
            order: 0,
        }
    }

    /// Adds a host; host 0 is behind the bottleneck.
    pub fn host(&mut self, config: Config, server: bool) -> usize {
        self.host_with(config, server, Box::new(Plain))
    }

    pub fn host_with(
        &mut self,
        config: Config,
        server: bool,
        factory: Box<dyn dcudp_proto::ProtectFactory + Send>,
    ) -> usize {
        let index = self.hosts.len();
        let mut seed = [0; 32];
        seed.copy_from_slice(&self.rng.bytes(32));
        self.hosts.push(Host {
            endpoint: Endpoint::new(config, server, seed, factory).expect("a valid configuration"),
            address: address(index),
            clock_us: 1_000_000 * (index as u64 + 1),
            paused_until_us: 0,
            gone: false,
            reads: true,
            inbox: VecDeque::new(),
            events: Vec::new(),
            bins: HashMap::new(),
            counts_only: false,
        });
        index
    }

    pub fn clock(&self, host: usize) -> u64 {
        self.now_us + self.hosts[host].clock_us
    }

    pub fn connect(&mut self, host: usize, to: usize) -> ConnectionId {
        let (now, address) = (self.clock(host), self.hosts[to].address);
        self.hosts[host].endpoint.connect(now, address).expect("a free connection")
    }

    pub fn send(&mut self, host: usize, id: ConnectionId, data: &[u8]) -> Result<(), SendError> {
        let now = self.clock(host);
        self.hosts[host].endpoint.send_message(now, id, data).map(drop)
    }

    pub fn flow(
        &mut self,
        host: usize,
        id: ConnectionId,
        rate_bps: Option<u64>,
        from_us: u64,
        until_us: u64,
    ) {
        self.flows.push(Flow {
            host,
            id,
            message_bytes: 1400,
            rate_bps,
            from_us,
            until_us,
            sent_bytes: 0,
            limit_bytes: u64::MAX,
        });
    }

    fn schedule(&mut self, at_ns: u64, what: What) {
        self.order += 1;
        self.heap.push(Reverse((at_ns, self.order, what)));
    }

    fn launch(&mut self, from: usize, packet: Transmit) {
        self.datagrams += 1;
        self.data += u64::from(packet.contents[0] & 0x80 == 0);
        assert!(
            packet.not_before_us <= self.clock(from) + self.hosts[from].endpoint.config().pacing_ahead_us
        );
        let to = match self.hosts.iter().position(|host| host.address == packet.to) {
            Some(to) => to,
            None => return,
        };
        if packet.contents.len() > self.network.path_mtu || self.rng.chance(self.network.loss) {
            return;
        }
        let copies = if self.rng.chance(self.network.duplication) { 2 } else { 1 };
        for _ in 0..copies {
            let mut delay_us = self.network.delay_us;
            delay_us += self.network.host_delay_us.get(from).copied().unwrap_or(0);
            delay_us += self.network.host_delay_us.get(to).copied().unwrap_or(0);
            if self.rng.chance(self.network.reordering) {
                delay_us += 1 + self.rng.below(self.network.reorder_us.max(1));
            }
            let flying = Flying { from: self.hosts[from].address, packet: packet.clone() };
            if to == 0 && self.network.bottleneck_bps.is_some() {
                // Half of the delay lies before the switch. It does not change the order, so it is added
                // behind it.
                self.enqueue(flying);
            } else {
                self.fly(to, flying, delay_us * 1000);
            }
        }
    }

    fn fly(&mut self, to: usize, flying: Flying, delay_ns: u64) {
        let key = self.next_key;
        self.next_key += 1;
        self.flying.insert(key, (to, flying));
        self.schedule(self.now_ns + delay_ns, What::Arrive(key));
    }

    fn enqueue(&mut self, mut flying: Flying) {
        let length = self.waiting.len();
        if length >= self.network.queue_packets {
            self.queue.drops += 1;
            return;
        }
        let (low, high) = (self.network.th_min, self.network.th_max);
        let probability = ((length as f64 - low) / (high - low)).clamp(0.0, 1.0);
        if self.network.bleaches {
            flying.packet.ecn = Ecn::NotEct;
        }
        if self.network.marks && flying.packet.ecn != Ecn::NotEct && self.rng.chance(probability) {
            flying.packet.ecn = Ecn::Ce;
            self.queue.marked += 1;
        }
        self.waiting.push_back(flying);
        self.queue.longest = self.queue.longest.max(self.waiting.len());
        if !self.busy {
            self.transmit_next();
        }
    }

    fn transmit_next(&mut self) {
        if let (Some(first), Some(bps)) = (self.waiting.front(), self.network.bottleneck_bps) {
            self.busy = true;
            let at_ns = self.now_ns + serialisation_ns(first.packet.contents.len(), bps);
            self.schedule(at_ns, What::Dequeue);
        }
    }

    fn dequeue(&mut self) {
        self.busy = false;
        if let Some(flying) = self.waiting.pop_front() {
            self.queue.passed += 1;
            self.queue.control += u64::from(flying.packet.contents[0] & 0x80 != 0);
            let from = self.hosts.iter().position(|host| host.address == flying.from).unwrap_or(0);
            let extra_us = self.network.host_delay_us.get(from).copied().unwrap_or(0);
            let reorder_us = if self.rng.chance(self.network.reordering) {
                1 + self.rng.below(self.network.reorder_us.max(1))
            } else {
                0
            };
            self.fly(0, flying, (self.network.delay_us + extra_us + reorder_us) * 1000);
        }
        self.transmit_next();
    }

    fn feed_flows(&mut self) -> Option<u64> {
        let mut next = None;
        for flow in &mut self.flows {
            if flow.until_us <= self.now_us || flow.sent_bytes >= flow.limit_bytes {
                continue;
            }
            if flow.from_us > self.now_us {
                next = Some(next.map_or(flow.from_us, |at: u64| at.min(flow.from_us)));
                continue;
            }
            let host = &mut self.hosts[flow.host];
            if host.gone || host.paused_until_us > self.now_us {
                continue;
            }
            let clock = self.now_us + host.clock_us;
            let allowed = match flow.rate_bps {
                None => u64::MAX,
                Some(bps) => (self.now_us - flow.from_us) * bps / 8_000_000 + flow.message_bytes as u64,
            };
            let data = vec![0; flow.message_bytes];
            let mut full = false;
            while flow.sent_bytes + flow.message_bytes as u64 <= allowed.min(flow.limit_bytes) {
                if host.endpoint.send_message(clock, flow.id, &data).is_err() {
                    full = true;
                    break;
                }
                flow.sent_bytes += flow.message_bytes as u64;
            }
            if let (Some(bps), false) = (flow.rate_bps, full) {
                let at = self.now_us + (flow.message_bytes as u64 * 8_000_000 / bps).max(1);
                next = Some(next.map_or(at, |earlier: u64| earlier.min(at)));
            }
        }
        next
    }

    fn read_events(&mut self, index: usize) {
        let clock = self.clock(index);
        let now_us = self.now_us;
        let host = &mut self.hosts[index];
        if !host.reads {
            return;
        }
        while let Some((id, event)) = host.endpoint.poll_event(clock) {
            if let Event::Message { data, .. } = &event {
                let bins = host.bins.entry(id).or_default();
                let bin = (now_us / 1000) as usize;
                if bins.len() <= bin {
                    bins.resize(bin + 1, 0);
                }
                bins[bin] += data.len() as u64;
                if host.counts_only {
                    continue;
                }
            }
            host.events.push((now_us, id, event));
        }
    }

    fn flush_host(&mut self, index: usize) {
        if self.hosts[index].gone || self.hosts[index].paused_until_us > self.now_us {
            return;
        }
        while let Some((from, ecn, contents)) = self.hosts[index].inbox.pop_front() {
            let clock = self.clock(index);
            self.hosts[index].endpoint.handle(clock, from, ecn, &contents);
        }
        self.read_events(index);
        let clock = self.clock(index);
        while let Some(packet) = self.hosts[index].endpoint.poll_transmit(clock) {
            self.launch(index, packet);
        }
        self.read_events(index);
    }

    /// Runs until the given time.
    pub fn run_until(&mut self, until_us: u64) {
        loop {
            let flow_us = self.feed_flows();
            for index in 0..self.hosts.len() {
                self.flush_host(index);
            }
            let mut next_ns = until_us * 1000;
            if let Some(Reverse((at_ns, _, _))) = self.heap.peek() {
                next_ns = next_ns.min(*at_ns);
            }
            if let Some(at_us) = flow_us {
                next_ns = next_ns.min(at_us * 1000);
            }
            for host in self.hosts.iter().filter(|host| !host.gone) {
                if host.paused_until_us > self.now_us {
                    next_ns = next_ns.min(host.paused_until_us * 1000);
                } else if let Some(at) = host.endpoint.poll_timeout() {
                    let at_us = at.saturating_sub(host.clock_us).max(self.now_us + 1);
                    next_ns = next_ns.min(at_us * 1000);
                }
            }
            if next_ns >= until_us * 1000 {
                self.now_ns = until_us * 1000;
                self.now_us = until_us;
                return;
            }
            self.now_ns = next_ns.max(self.now_ns);
            self.now_us = self.now_ns / 1000;
            self.run_network();
        }
    }

    fn run_network(&mut self) {
        while let Some(Reverse((at_ns, _, _))) = self.heap.peek() {
            if *at_ns > self.now_ns {
                break;
            }
            match self.heap.pop() {
                Some(Reverse((_, _, What::Dequeue))) => self.dequeue(),
                Some(Reverse((_, _, What::Arrive(key)))) => {
                    if let Some((to, flying)) = self.flying.remove(&key) {
                        // A socket buffer of 4096 packets.
                        if self.hosts[to].inbox.len() < 4096 {
                            let packet = flying.packet;
                            self.hosts[to].inbox.push_back((flying.from, packet.ecn, packet.contents));
                        }
                    }
                }
                None => break,
            }
        }
        self.queue.samples.push((self.now_us, self.waiting.len()));
    }

    /// Runs until `done`, or fails the test at the given time.
    pub fn run_while(&mut self, limit_us: u64, mut goes_on: impl FnMut(&Sim) -> bool) {
        while goes_on(self) {
            assert!(self.now_us < limit_us, "not done after {limit_us} us");
            let step = self.now_us + 1000;
            self.run_until(step);
        }
    }

    /// The messages that a host received on all connections, in order.
    pub fn messages(&self, host: usize) -> Vec<Vec<u8>> {
        let messages = self.hosts[host].events.iter().filter_map(|(_, _, event)| match event {
            Event::Message { data, .. } => Some(data.clone()),
            _ => None,
        });
        messages.collect()
    }

    pub fn has_event(&self, host: usize, wanted: impl Fn(&Event) -> bool) -> bool {
        self.hosts[host].events.iter().any(|(_, _, event)| wanted(event))
    }

    /// Bytes that a host received on each connection between two times.
    pub fn received(&self, host: usize, from_us: u64, until_us: u64) -> Vec<u64> {
        let range = (from_us / 1000) as usize..(until_us / 1000) as usize;
        let sum = |bins: &Vec<u64>| range.clone().map(|bin| bins.get(bin).copied().unwrap_or(0)).sum();
        self.hosts[host].bins.values().map(sum).collect()
    }
}

/// Jain's index of fairness.
pub fn jain(values: &[u64]) -> f64 {
    let sum: f64 = values.iter().map(|value| *value as f64).sum();
    let squares: f64 = values.iter().map(|value| (*value as f64).powi(2)).sum();
    sum * sum / (values.len() as f64 * squares)
}

/// A receiver and senders that are connected to it.
pub fn connected(network: Network, config: &Config, senders: usize, seed: u64) -> (Sim, Vec<ConnectionId>) {
    let mut sim = Sim::new(network, seed);
    sim.host(config.clone(), true);
    let mut ids = Vec::new();
    for _ in 0..senders {
        let host = sim.host(config.clone(), false);
        ids.push(sim.connect(host, 0));
    }
    let count = |sim: &Sim| {
        let events = sim.hosts.iter().flat_map(|host| &host.events);
        events.filter(|(_, _, event)| matches!(event, Event::Connected { .. })).count()
    };
    sim.run_while(5_000_000, |sim| count(sim) < 2 * senders);
    (sim, ids)
}

/// Sends all messages, waiting for space where needed.
pub fn send_all(sim: &mut Sim, host: usize, id: ConnectionId, messages: &[Vec<u8>], limit_us: u64) {
    for message in messages {
        loop {
            match sim.send(host, id, message) {
                Ok(()) => break,
                Err(SendError::Full) => {
                    assert!(sim.now_us < limit_us, "the send buffer stayed full");
                    let until = sim.now_us + 200;
                    sim.run_until(until);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Messages of random sizes and content.
pub fn messages(seed: u64, count: usize, largest: u64) -> Vec<Vec<u8>> {
    let mut rng = Rng::new(seed);
    (0..count)
        .map(|_| {
            let length = rng.below(largest + 1) as usize;
            rng.bytes(length)
        })
        .collect()
}
