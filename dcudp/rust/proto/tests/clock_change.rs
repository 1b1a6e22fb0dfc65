//! The clock of one host jumps. Only intervals of each host's own clock matter, so the other host notices
//! nothing.

mod common;

use common::{connected, messages, send_all, Network};
use dcudp_proto::{Config, Event};

fn with_jump(host: usize, jump_us: i64) {
    let network = Network { loss: 0.01, ..Network::plain(100) };
    let (mut sim, ids) = connected(network, &Config::default(), 1, 1);
    let sent = messages(2, 600, 10_000);
    send_all(&mut sim, 1, ids[0], &sent[..300], 10_000_000);
    sim.hosts[host].clock_us = (sim.hosts[host].clock_us as i64 + jump_us) as u64;
    send_all(&mut sim, 1, ids[0], &sent[300..], 20_000_000);
    sim.run_while(30_000_000, |sim| sim.messages(0).len() < sent.len());
    assert!(sim.messages(0) == sent, "the messages differ");
    assert!(!sim.has_event(0, |event| matches!(event, Event::Closed { .. })));
}

#[test]
fn a_jump_forward_below_the_timeout_is_harmless() {
    with_jump(0, 50_000_000);
    with_jump(1, 50_000_000);
}

#[test]
fn a_jump_backward_delays_and_loses_nothing() {
    // `now` should be monotonic. If it is not, nothing panics, and timers are late by the jump.
    with_jump(0, -500_000);
    with_jump(1, -500_000);
}

#[test]
fn the_relative_timestamp_wraps() {
    // 2^32 us are 71 minutes. Idle connections stay open by keep-alives.
    let (mut sim, ids) = connected(Network::plain(100), &Config::default(), 1, 3);
    sim.run_until(4_300_000_000);
    let sent = messages(4, 20, 5_000);
    send_all(&mut sim, 1, ids[0], &sent, 4_310_000_000);
    sim.run_while(4_320_000_000, |sim| sim.messages(0).len() < sent.len());
    assert!(sim.messages(0) == sent, "the messages differ");
}
