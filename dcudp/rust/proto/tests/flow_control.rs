//! Flow control by the receiver's buffer, and bounded memory of a connection and of an endpoint.

mod common;

use common::{connected, Network};
use dcudp_proto::{Config, Event, SendError};

fn small() -> Config {
    Config { receive_window_packets: 64, send_buffer_bytes: 1 << 18, ..Config::default() }
}

#[test]
fn a_reader_that_stops_stops_the_sender() {
    let (mut sim, ids) = connected(Network::plain(100), &small(), 1, 1);
    sim.hosts[0].reads = false;
    sim.flow(1, ids[0], None, 0, u64::MAX);
    sim.run_until(2_000_000);
    let held = sim.hosts[0].endpoint.endpoint_statistics().receive_bytes;
    assert!(held > 80_000 && held <= 64 * (1452 + 64), "{held} bytes in 64 packets");
    let buffered = sim.hosts[1].endpoint.statistics(ids[0]).expect("open").send_buffer_bytes;
    assert!(buffered <= 1 << 18, "{buffered} bytes wait for sending");

    sim.hosts[0].reads = true;
    sim.hosts[0].counts_only = true;
    sim.run_until(2_050_000);
    let received: u64 = sim.received(0, 2_000_000, 2_050_000).iter().sum();
    assert!(received > 1_000_000, "{received} bytes in the 50 ms after the reader went on");
}

#[test]
fn a_full_send_buffer_says_so_and_later_that_it_is_writable() {
    let (mut sim, ids) = connected(Network::plain(100), &small(), 1, 2);
    let mut taken = 0;
    let error = loop {
        match sim.send(1, ids[0], &[7; 10_000]) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, SendError::Full);
    assert!(taken >= 20, "{taken} messages");
    sim.run_until(1_000_000);
    assert!(sim.has_event(1, |event| *event == Event::Writable));
    assert_eq!(sim.messages(0).len(), taken);
}

#[test]
fn a_message_that_can_never_fit_is_refused() {
    let (mut sim, ids) = connected(Network::plain(100), &small(), 1, 3);
    let largest = sim.hosts[1].endpoint.max_message_bytes(ids[0]).expect("open");
    assert_eq!(largest, 32 * (1452 - 16));
    assert_eq!(sim.send(1, ids[0], &vec![0; largest + 1]), Err(SendError::TooLarge(largest)));
    sim.send(1, ids[0], &vec![1; largest]).expect("space");
    sim.run_until(1_000_000);
    assert_eq!(sim.messages(0), vec![vec![1; largest]]);
}

#[test]
fn empty_messages_are_delivered_and_bounded() {
    let (mut sim, ids) = connected(Network::plain(100), &small(), 1, 4);
    sim.hosts[0].reads = false;
    let mut taken = 0;
    while sim.send(1, ids[0], b"").is_ok() {
        taken += 1;
    }
    assert!(taken <= (1 << 18) / 64);
    sim.run_until(1_000_000);
    sim.hosts[0].reads = true;
    sim.run_until(3_000_000);
    assert_eq!(sim.messages(0), vec![Vec::<u8>::new(); taken]);
}

#[test]
fn the_endpoint_s_total_is_bounded() {
    let config = Config { total_receive_bytes: 1 << 18, receive_window_packets: 128, ..Config::default() };
    let (mut sim, ids) = connected(Network::plain(100), &config, 10, 5);
    sim.hosts[0].reads = false;
    for (host, id) in ids.iter().enumerate() {
        sim.flow(host + 1, *id, None, 0, u64::MAX);
    }
    sim.run_until(500_000);
    // Ten windows are 1.9 MB. Beyond the total only one connection fills its window.
    let held = sim.hosts[0].endpoint.endpoint_statistics().receive_bytes;
    assert!(held <= (1 << 18) + 129 * (1452 + 64), "{held} bytes");
    sim.hosts[0].reads = true;
    sim.hosts[0].counts_only = true;
    sim.run_until(1_500_000);
    for received in sim.received(0, 500_000, 1_500_000) {
        assert!(received > 100_000, "a connection got {received} bytes");
    }
}

#[test]
fn many_that_fill_the_memory_leave_some_to_another() {
    let config = Config { total_receive_bytes: 1 << 18, receive_window_packets: 128, ..Config::default() };
    let (mut sim, ids) = connected(Network::plain(100), &config, 30, 8);
    sim.hosts[0].reads = false;
    for (host, id) in ids[..29].iter().enumerate() {
        sim.flow(host + 1, *id, None, 0, u64::MAX);
    }
    sim.run_until(500_000);
    sim.send(30, ids[29], &[1; 1000]).expect("space");
    sim.run_until(600_000);
    let quiet = sim.hosts[30].endpoint.statistics(ids[29]).expect("an open connection");
    assert_eq!((quiet.acknowledged, quiet.send_buffer_bytes), (1, 0));
}

#[test]
fn messages_that_are_read_after_the_end_are_counted_until_then() {
    let (mut sim, ids) = connected(Network::plain(100), &small(), 1, 6);
    sim.hosts[0].reads = false;
    for _ in 0..5 {
        sim.send(1, ids[0], &[1; 3000]).expect("space");
    }
    let now = sim.clock(1);
    sim.hosts[1].endpoint.close(now, ids[0]);
    sim.run_until(2_000_000);
    let statistics = sim.hosts[0].endpoint.endpoint_statistics();
    assert_eq!((statistics.connections, statistics.receive_bytes), (0, 5 * (3000 + 3 * 64)));
    sim.hosts[0].reads = true;
    sim.run_until(2_001_000);
    assert_eq!(sim.messages(0).len(), 5);
    assert_eq!(sim.hosts[0].endpoint.endpoint_statistics().receive_bytes, 0);
}
