//! Identical bytes arrive under 5 % loss, 5 % reordering and 5 % duplication at once, in both directions.

mod common;

use common::{connected, messages, send_all, Network};
use dcudp_proto::Config;

fn impaired() -> Network {
    Network { loss: 0.05, duplication: 0.05, reordering: 0.05, reorder_us: 500, ..Network::plain(50) }
}

#[test]
fn ordered_messages_arrive_identical_and_in_order() {
    let (mut sim, ids) = connected(impaired(), &Config::default(), 1, 1);
    let sent = messages(2, 1000, 20_000);
    send_all(&mut sim, 1, ids[0], &sent, 60_000_000);
    sim.run_while(120_000_000, |sim| sim.messages(0).len() < sent.len());
    assert!(sim.messages(0) == sent, "the messages differ");
    let statistics = sim.hosts[1].endpoint.statistics(ids[0]).expect("open");
    assert!(statistics.retransmitted > 200, "{statistics:?}");
}

#[test]
fn unordered_messages_all_arrive_once() {
    let config = Config { ordered: false, ..Config::default() };
    let (mut sim, ids) = connected(impaired(), &config, 1, 3);
    let mut sent = messages(4, 1000, 5_000);
    send_all(&mut sim, 1, ids[0], &sent, 60_000_000);
    sim.run_while(120_000_000, |sim| sim.messages(0).len() < sent.len());
    let until = sim.now_us + 1_000_000;
    sim.run_until(until);
    let mut received = sim.messages(0);
    assert!(received != sent, "nothing overtook anything: the test shows nothing");
    received.sort();
    sent.sort();
    assert!(received == sent, "the messages differ");
}

#[test]
fn both_directions_at_once() {
    let (mut sim, ids) = connected(impaired(), &Config::default(), 1, 5);
    let (there, back) = (messages(6, 300, 9_000), messages(7, 300, 9_000));
    let incoming = sim.hosts[0].events[0].1;
    send_all(&mut sim, 1, ids[0], &there, 60_000_000);
    send_all(&mut sim, 0, incoming, &back, 60_000_000);
    sim.run_while(120_000_000, |sim| sim.messages(0).len() < 300 || sim.messages(1).len() < 300);
    assert!(sim.messages(0) == there && sim.messages(1) == back, "the messages differ");
}

#[test]
fn the_paper_s_nak_at_once_works_too() {
    let config = Config { reorder_packets: 0, ..Config::default() };
    let (mut sim, ids) = connected(impaired(), &config, 1, 8);
    let sent = messages(9, 300, 9_000);
    send_all(&mut sim, 1, ids[0], &sent, 60_000_000);
    sim.run_while(120_000_000, |sim| sim.messages(0).len() < sent.len());
    assert!(sim.messages(0) == sent, "the messages differ");
}
