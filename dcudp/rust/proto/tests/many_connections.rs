//! 10,000 connections to one port, opened, used and closed: all end well, and nothing of them remains.

mod common;

use common::{Network, Sim};
use dcudp_proto::{CloseReason, Config, Event};

const CONNECTIONS: usize = 10_000;
const AT_ONCE: usize = 200;

#[test]
fn ten_thousand_connections_leave_nothing_behind() {
    let mut sim = Sim::new(Network { loss: 0.01, ..Network::plain(50) }, 1);
    sim.host(Config::default(), true);
    sim.host(Config::default(), false);
    for round in 0..CONNECTIONS / AT_ONCE {
        for _ in 0..AT_ONCE {
            sim.connect(1, 0);
        }
        let until = sim.now_us + 400_000;
        sim.run_until(until);
        let events = std::mem::take(&mut sim.hosts[1].events);
        let connected = events.iter().filter(|(_, _, event)| matches!(event, Event::Connected { .. }));
        let ids: Vec<_> = connected.map(|(_, id, _)| *id).collect();
        assert_eq!(ids.len(), AT_ONCE, "round {round}");
        for id in ids {
            sim.send(1, id, b"one message").expect("space");
            let now = sim.clock(1);
            sim.hosts[1].endpoint.close(now, id);
        }
        let until = sim.now_us + 400_000;
        sim.run_until(until);
        let events = std::mem::take(&mut sim.hosts[1].events);
        let closed = Event::Closed { reason: CloseReason::Local, unconfirmed_bytes: 0 };
        assert_eq!(events.iter().filter(|(_, _, event)| *event == closed).count(), AT_ONCE, "round {round}");
    }
    let until = sim.now_us + 2_000_000;
    sim.run_until(until);
    assert_eq!(sim.messages(0).len(), CONNECTIONS);
    let closed = Event::Closed { reason: CloseReason::Peer, unconfirmed_bytes: 0 };
    assert_eq!(sim.hosts[0].events.iter().filter(|(_, _, event)| *event == closed).count(), CONNECTIONS);
    for host in [0, 1] {
        let statistics = sim.hosts[host].endpoint.endpoint_statistics();
        assert_eq!((statistics.connections, statistics.receive_bytes), (0, 0), "host {host}");
        assert_eq!(sim.hosts[host].endpoint.poll_timeout(), None);
    }
}
