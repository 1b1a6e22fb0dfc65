//! Spoofed, replayed, truncated and contradicting packets against a connection.

mod common;

use common::keys::Keys;
use common::{address, connected, messages, send_all, Network, Rng, Sim};
use dcudp_proto::seq::Seq;
use dcudp_proto::wire::{
    Bits, ControlHeader, ControlType, DataHeader, Header, LossRange, Report, Shutdown, HEADER_BYTES, VERSION,
};
use dcudp_proto::{Config, ConnectionId, Ecn, Event, Mode};

fn keyed() -> (Sim, ConnectionId) {
    let mut sim = Sim::new(Network::plain(100), 1);
    sim.host_with(Config::default(), true, Box::new(Keys(5)));
    sim.host_with(Config::default(), false, Box::new(Keys(5)));
    let id = sim.connect(1, 0);
    sim.run_until(10_000);
    (sim, id)
}

/// The datagrams that host 1 sends for a message.
fn tap(sim: &mut Sim, id: ConnectionId, data: &[u8]) -> Vec<Vec<u8>> {
    let now = sim.clock(1);
    sim.hosts[1].endpoint.send_message(now, id, data).expect("space");
    let mut datagrams = Vec::new();
    for later in 0..5_000 {
        while let Some(transmit) = sim.hosts[1].endpoint.poll_transmit(now + later) {
            datagrams.push(transmit.contents);
        }
    }
    datagrams
}

fn deliver(sim: &mut Sim, to: usize, from: usize, datagram: &[u8]) {
    let (now, from) = (sim.clock(to), sim.hosts[from].address);
    sim.hosts[to].endpoint.handle(now, from, Ecn::Ect0, datagram);
}

#[test]
fn changed_and_truncated_packets_are_dropped() {
    let (mut sim, id) = keyed();
    let datagrams = tap(&mut sim, id, &[9; 3000]);
    let incoming = sim.hosts[0].events[0].1;
    for datagram in &datagrams {
        for at in 0..datagram.len() {
            let mut changed = datagram.clone();
            changed[at] ^= 0x10;
            deliver(&mut sim, 0, 1, &changed);
            deliver(&mut sim, 0, 1, &datagram[..at]);
        }
    }
    let statistics = sim.hosts[0].endpoint.statistics(incoming).expect("open");
    assert_eq!((statistics.data_received, statistics.receive_buffer_bytes), (0, 0));
    for datagram in &datagrams {
        deliver(&mut sim, 0, 1, datagram);
    }
    sim.run_until(20_000);
    assert_eq!(sim.messages(0), [vec![9; 3000]]);
}

#[test]
fn replayed_packets_change_nothing() {
    let (mut sim, id) = keyed();
    let datagrams = tap(&mut sim, id, &[9; 30_000]);
    for _ in 0..3 {
        for datagram in &datagrams {
            deliver(&mut sim, 0, 1, datagram);
        }
    }
    sim.run_until(20_000);
    assert_eq!(sim.messages(0), [vec![9; 30_000]]);
}

#[test]
fn packets_from_another_address_are_dropped() {
    let (mut sim, ids) = connected(Network::plain(100), &Config::default(), 2, 1);
    let datagrams = tap(&mut sim, ids[0], b"hello");
    for datagram in &datagrams {
        deliver(&mut sim, 0, 2, datagram);
    }
    let stray = sim.hosts[0].endpoint.endpoint_statistics().stray;
    assert_eq!(stray, datagrams.len() as u64);
    let until = sim.now_us + 10_000;
    sim.run_until(until);
}

/// A peer that knows the protocol and lies: its packets go to host 1.
struct Liar {
    sim: Sim,
    id: ConnectionId,
    next: u32,
}

impl Liar {
    fn new() -> Liar {
        let config = Config { initial_sequence: Some(1000), ..Config::default() };
        let (sim, ids) = connected(Network::plain(100), &config, 1, 1);
        Liar { sim, id: ids[0], next: 0 }
    }

    fn control(&mut self, kind: ControlType, bits: Bits, body: &[u8]) {
        // The initiator's ids are its connections' numbers.
        self.next += 1;
        let header = ControlHeader {
            sequence: Seq::new(self.next),
            kind,
            bits,
            version: VERSION,
            timestamp_us: 0,
            connection: self.id.0,
        };
        let mut datagram = Header::Control(header).encode().to_vec();
        datagram.extend_from_slice(body);
        deliver(&mut self.sim, 1, 0, &datagram);
    }

    fn report(&mut self, report: &Report) {
        let mut body = Vec::new();
        report.encode(&mut body);
        self.control(ControlType::Ack, Bits { obs: true, cwr: false, ece: true }, &body);
    }
}

fn report(next_expected: u32, end: u32, losses: &[(u32, u32)]) -> Report {
    let ranges =
        losses.iter().map(|(first, last)| LossRange { first: Seq::new(*first), last: Seq::new(*last) });
    Report {
        next_expected: Seq::new(next_expected),
        end: Seq::new(end),
        window_end: Seq::new(next_expected + 100),
        next_sequence: Seq::new(1000),
        rtt_us: 100,
        reply: false,
        no_ecn: false,
        no_ack2: false,
        losses: ranges.collect(),
    }
}

#[test]
fn reports_about_data_that_was_never_sent_are_dropped_as_a_whole() {
    let mut liar = Liar::new();
    liar.sim.hosts[0].gone = true;
    liar.sim.send(1, liar.id, &[1; 5000]).expect("space");
    let until = liar.sim.now_us + 1000;
    liar.sim.run_until(until);
    let before = liar.sim.hosts[1].endpoint.statistics(liar.id).expect("open");
    let lies = [
        report(1005, 1005, &[]),
        report(1004, 1005, &[]),
        report(1002, 1001, &[]),
        report(999, 1004, &[]),
        report(0x4000_0000, 0x4000_0000, &[]),
        report(0x7fff_ffff, 3, &[]),
        Report { window_end: Seq::new(900), ..report(1001, 1004, &[]) },
    ];
    for lie in &lies {
        liar.report(lie);
        let after = liar.sim.hosts[1].endpoint.statistics(liar.id).expect("open");
        assert_eq!((after.mode, after.send_buffer_bytes), (before.mode, before.send_buffer_bytes), "{lie:?}");
    }
    assert_eq!(
        liar.sim.hosts[1].endpoint.statistics(liar.id).expect("open").dropped,
        before.dropped + lies.len() as u64
    );
    // Losses of packets that were not sent repeat nothing.
    for losses in [&[(1004, 1004)][..], &[(1000, 2000)], &[(500, 600), (0x7000_0000, 0x7000_0001)]] {
        liar.report(&report(1000, 1004, losses));
    }
    let until = liar.sim.now_us + 10_000;
    liar.sim.run_until(until);
    let after = liar.sim.hosts[1].endpoint.statistics(liar.id).expect("open");
    assert_eq!(after.retransmitted, before.retransmitted);
}

#[test]
fn an_ack_is_new_however_many_other_reports_came_before() {
    let mut liar = Liar::new();
    liar.sim.hosts[0].gone = true;
    let mode = |liar: &Liar| liar.sim.hosts[1].endpoint.statistics(liar.id).expect("open").mode;
    let mut body = Vec::new();
    report(1000, 1000, &[]).encode(&mut body);
    liar.report(&report(1000, 1000, &[]));
    assert_eq!(mode(&liar), Mode::Congestion);
    liar.control(ControlType::Ack, Bits::default(), &body);
    assert_eq!(mode(&liar), Mode::Udp);
    // More than half of all sequence numbers.
    for _ in 0..6 {
        liar.next += 1 << 28;
        liar.control(ControlType::KeepAlive, Bits::default(), &body);
    }
    liar.report(&report(1000, 1000, &[]));
    assert_eq!(mode(&liar), Mode::Congestion);
}

#[test]
fn a_report_before_the_end_of_a_connection_wakes_nobody_later() {
    for peer_closes in [false, true] {
        let mut liar = Liar::new();
        let now = liar.sim.clock(1);
        liar.report(&report(1000, 1000, &[]));
        if peer_closes {
            let mut body = Vec::new();
            Shutdown::Close.encode(&mut body);
            liar.control(ControlType::Shutdown, Bits::default(), &body);
        } else {
            liar.sim.hosts[1].endpoint.abort(now, liar.id);
        }
        let endpoint = &mut liar.sim.hosts[1].endpoint;
        while endpoint.poll_transmit(now).is_some() {}
        let wait_us = endpoint.poll_timeout().expect("a timer") - now;
        assert!(wait_us >= Config::default().min_timeout_us, "{wait_us} us, the peer closes: {peer_closes}");
    }
}

#[test]
fn data_that_contradicts_itself_is_bounded() {
    let config = Config { initial_sequence: Some(1000), ..Config::default() };
    let (mut sim, ids) = connected(Network::plain(100), &config, 1, 1);
    let mut rng = Rng::new(3);
    for _ in 0..200_000 {
        let header = DataHeader {
            sequence: Seq::new(1000 + rng.below(9000) as u32),
            bits: Bits { obs: rng.chance(0.1), cwr: rng.chance(0.1), ece: rng.chance(0.1) },
            first: rng.chance(0.3),
            last: rng.chance(0.3),
            ordered: rng.chance(0.5),
            message: rng.below(20) as u32,
            timestamp_us: 0,
            connection: ids[0].0,
        };
        let mut datagram = Header::Data(header).encode().to_vec();
        let length = rng.below(40) as usize;
        datagram.extend_from_slice(&rng.bytes(length));
        let (now, ecn) = (sim.clock(1), Ecn::from_bits(rng.below(4) as u8));
        sim.hosts[1].endpoint.handle(now, address(0), ecn, &datagram);
    }
    let held = sim.hosts[1].endpoint.endpoint_statistics().receive_bytes;
    assert!(held <= 8192 * (40 + 64), "{held} bytes");
    let until = sim.now_us + 1_000_000;
    sim.run_until(until);
}

/// Delivers unordered packets of message 0 to host 1, each with its offset, `first` and `last`.
fn deliver_pieces(sim: &mut Sim, id: ConnectionId, pieces: &[(u32, bool, bool)]) {
    for &(offset, first, last) in pieces {
        let header = DataHeader {
            sequence: Seq::new(1000 + offset),
            bits: Bits::default(),
            first,
            last,
            ordered: false,
            message: 0,
            timestamp_us: 0,
            connection: id.0,
        };
        deliver(sim, 1, 0, &Header::Data(header).encode());
    }
}

#[test]
fn pieces_that_contradict_a_delivered_message_leave_nothing_behind() {
    let cases = [
        vec![(10, false, false), (0, true, false), (1, false, true), (3, false, true)],
        vec![
            (3, false, false),
            (0, true, false),
            (1, false, true),
            (2, true, false),
            (4, false, true),
            (5, true, true),
        ],
    ];
    for pieces in &cases {
        let config = Config { initial_sequence: Some(1000), ..Config::default() };
        let (mut sim, ids) = connected(Network::plain(100), &config, 1, 1);
        deliver_pieces(&mut sim, ids[0], pieces);
        let statistics = sim.hosts[1].endpoint.statistics(ids[0]).expect("open");
        assert_eq!((statistics.data_received, statistics.dropped), (pieces.len() as u64, 0), "{pieces:?}");
    }
}

#[test]
fn old_versions_and_unknown_types_are_ignored() {
    let mut liar = Liar::new();
    let before = liar.sim.hosts[1].endpoint.statistics(liar.id).expect("open").dropped;
    for number in [4, 8, 31] {
        liar.control(ControlType::Unknown(number), Bits::default(), &[1, 2, 3]);
    }
    for body in [&[][..], &[9, 0, 0, 0], &[0]] {
        liar.control(ControlType::Shutdown, Bits::default(), body);
    }
    liar.control(ControlType::ObsChange, Bits::default(), &[255; 4]);
    let after = liar.sim.hosts[1].endpoint.statistics(liar.id).expect("open").dropped;
    assert_eq!(after - before, 7);
    assert!(!liar.sim.has_event(1, |event| matches!(event, Event::Closed { .. })));
    let mut body = Vec::new();
    Shutdown::Close.encode(&mut body);
    liar.control(ControlType::Shutdown, Bits::default(), &body);
    let until = liar.sim.now_us + 10;
    liar.sim.run_until(until);
    assert!(liar.sim.has_event(1, |event| matches!(event, Event::Closed { .. })));
}

#[test]
fn a_flood_of_forged_packets_does_not_stop_a_transfer() {
    let (mut sim, id) = keyed();
    let incoming = sim.hosts[0].events[0].1;
    let mut rng = Rng::new(4);
    let sent = messages(5, 100, 10_000);
    for message in &sent {
        send_all(&mut sim, 1, id, std::slice::from_ref(message), 60_000_000);
        for _ in 0..100 {
            let mut datagram = rng.bytes(HEADER_BYTES + 60);
            datagram[12..16].copy_from_slice(&incoming.0.to_be_bytes());
            deliver(&mut sim, 0, 1, &datagram);
        }
        let until = sim.now_us + 100;
        sim.run_until(until);
    }
    sim.run_while(60_000_000, |sim| sim.messages(0).len() < sent.len());
    assert!(sim.messages(0) == sent, "the messages differ");
}
