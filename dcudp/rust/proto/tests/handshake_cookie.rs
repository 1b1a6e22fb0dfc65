//! The handshake: no state before the cookie returns, no answer larger than its question, and clear refusals.

mod common;

use std::net::SocketAddr;

use common::keys::Keys;
use common::{address, Network, Rng, Sim};
use dcudp_proto::wire::{Handshake, Header, Step, HANDSHAKE_BYTES, HEADER_BYTES};
use dcudp_proto::{CloseReason, Config, Ecn, Endpoint, Event, Plain, ProtectFactory, Route, Transmit};

fn endpoint(config: Config, server: bool, seed: u8, key: Option<u8>) -> Endpoint {
    let factory: Box<dyn ProtectFactory + Send> = match key {
        Some(key) => Box::new(Keys(key)),
        None => Box::new(Plain),
    };
    Endpoint::new(config, server, [seed; 32], factory).expect("a valid configuration")
}

fn one(endpoint: &mut Endpoint, now: u64) -> Transmit {
    let transmit = endpoint.poll_transmit(now).expect("a datagram");
    assert!(endpoint.poll_transmit(now).is_none(), "more than one datagram");
    transmit
}

fn step(datagram: &[u8]) -> Step {
    Handshake::decode(&datagram[HEADER_BYTES..]).expect("a handshake").step
}

/// Runs REQUEST and COOKIE, and returns the CONFIRM.
fn confirm(client: &mut Endpoint, server: &mut Endpoint) -> Vec<u8> {
    client.connect(0, address(0)).expect("space");
    let request = one(client, 0).contents;
    server.handle(10, address(1), Ecn::NotEct, &request);
    let cookie = one(server, 10).contents;
    assert_eq!((step(&request), step(&cookie)), (Step::Request, Step::Cookie));
    assert!(cookie.len() <= request.len());
    client.handle(20, address(0), Ecn::NotEct, &cookie);
    let confirm = one(client, 20).contents;
    assert_eq!(step(&confirm), Step::Confirm);
    confirm
}

#[test]
fn a_hundred_thousand_requests_leave_no_state() {
    let mut server = endpoint(Config::default(), true, 1, Some(1));
    let mut rng = Rng::new(1);
    let mut client = endpoint(Config::default(), false, 2, Some(1));
    client.connect(0, address(0)).expect("space");
    let mut request = one(&mut client, 0).contents;
    for index in 0..100_000u32 {
        request[HEADER_BYTES + 16..HEADER_BYTES + 32].copy_from_slice(&rng.bytes(16));
        let spoofed = SocketAddr::from((index.to_be_bytes(), 1000));
        server.handle(u64::from(index), spoofed, Ecn::NotEct, &request);
        // The queue of answers is bounded, and each answer is as long as its question.
        if index % 5000 == 0 {
            let mut answers = 0;
            while let Some(answer) = server.poll_transmit(u64::from(index)) {
                assert!(answer.contents.len() <= request.len());
                answers += 1;
            }
            assert!(answers <= 1024, "{answers} answers were stored");
        }
    }
    assert_eq!(server.endpoint_statistics().connections, 0);
}

#[test]
fn a_cookie_is_valid_only_for_its_address_nonce_id_and_time() {
    let (mut client, mut server) =
        (endpoint(Config::default(), false, 1, None), endpoint(Config::default(), true, 2, None));
    let good = confirm(&mut client, &mut server);
    let mut wrong = Vec::new();
    wrong.push((30, address(2), good.clone()));
    wrong.push((11_000_000, address(1), good.clone()));
    wrong.push((5, address(1), good.clone()));
    // The id, the initiator's nonce, the responder's nonce, the time, the code.
    for at in [4, 16, 32, 55, 56, 71] {
        let mut changed = good.clone();
        changed[HEADER_BYTES + at] ^= 1;
        wrong.push((30, address(1), changed));
    }
    for (now, from, datagram) in wrong {
        server.handle(now, from, Ecn::NotEct, &datagram);
        assert!(server.poll_transmit(now).is_none());
        assert_eq!(server.endpoint_statistics().connections, 0);
    }
    server.handle(30, address(1), Ecn::NotEct, &good);
    let accept = one(&mut server, 30);
    assert_eq!(step(&accept.contents), Step::Accept);
    assert!(accept.contents.len() <= good.len());
    assert_eq!(server.endpoint_statistics().connections, 1);
    // The same CONFIRM again is the same connection.
    server.handle(40, address(1), Ecn::NotEct, &good);
    assert_eq!(step(&one(&mut server, 40).contents), Step::Accept);
    assert_eq!(server.endpoint_statistics().connections, 1);
}

#[test]
fn a_connection_that_the_initiator_never_uses_is_forgotten() {
    let (mut client, mut server) =
        (endpoint(Config::default(), false, 1, None), endpoint(Config::default(), true, 2, None));
    let good = confirm(&mut client, &mut server);
    server.handle(30, address(1), Ecn::NotEct, &good);
    one(&mut server, 30);
    assert!(server.poll_event(30).is_none(), "a half-open connection was announced");
    let later = 30 + Config::default().handshake_timeout_us;
    while server.poll_transmit(later).is_some() {}
    assert_eq!(server.endpoint_statistics().connections, 0);
    assert!(server.poll_event(later).is_none());
}

fn refused(client: Endpoint, server: Endpoint) -> Vec<Event> {
    let mut sim = Sim::new(Network::plain(100), 1);
    sim.host(Config::default(), true);
    sim.host(Config::default(), false);
    sim.hosts[0].endpoint = server;
    sim.hosts[1].endpoint = client;
    sim.connect(1, 0);
    sim.run_until(6_000_000);
    assert!(sim.hosts[0].events.is_empty(), "{:?}", sim.hosts[0].events);
    sim.hosts[1].events.iter().map(|(_, _, event)| event.clone()).collect()
}

#[test]
fn different_keys_are_refused_with_a_reason() {
    let server = endpoint(Config::default(), true, 2, Some(2));
    let events = refused(endpoint(Config::default(), false, 1, Some(1)), server);
    assert_eq!(events, [Event::Closed { reason: CloseReason::Authentication, unconfirmed_bytes: 0 }]);
}

#[test]
fn a_key_at_one_end_only_does_not_connect() {
    for (client, server) in [(Some(1), None), (None, Some(1))] {
        let server = endpoint(Config::default(), true, 2, server);
        let events = refused(endpoint(Config::default(), false, 1, client), server);
        assert_eq!(events.len(), 1);
        assert!(matches!(events[0], Event::Closed { .. }), "{events:?}");
    }
}

#[test]
fn an_endpoint_that_serves_nobody_lets_the_handshake_time_out() {
    let server = endpoint(Config::default(), false, 2, None);
    let events = refused(endpoint(Config::default(), false, 1, None), server);
    assert_eq!(events, [Event::Closed { reason: CloseReason::HandshakeTimeout, unconfirmed_bytes: 0 }]);
}

#[test]
fn a_full_endpoint_says_that_it_is_busy() {
    let mut sim = Sim::new(Network::plain(100), 1);
    sim.host(Config { max_connections: 2, ..Config::default() }, true);
    sim.host(Config::default(), false);
    for _ in 0..3 {
        sim.connect(1, 0);
    }
    sim.run_until(1_000_000);
    let busy = Event::Closed { reason: CloseReason::Busy, unconfirmed_bytes: 0 };
    assert_eq!(sim.hosts[1].events.iter().filter(|(_, _, event)| *event == busy).count(), 1);
    assert_eq!(sim.hosts[0].endpoint.endpoint_statistics().connections, 2);
}

#[test]
fn an_unknown_version_is_refused_with_the_known_one() {
    let mut server = endpoint(Config::default(), true, 1, None);
    let mut client = endpoint(Config::default(), false, 2, None);
    let id = client.connect(0, address(0)).expect("space");
    let mut request = one(&mut client, 0).contents;
    request[5] = 9 << 4;
    server.handle(10, address(1), Ecn::NotEct, &request);
    let refusal = one(&mut server, 10).contents;
    assert_eq!(refusal.len(), HEADER_BYTES + HANDSHAKE_BYTES);
    assert!(matches!(Header::decode(&refusal), Ok(Header::Control(header)) if header.version == 1));
    client.handle(20, address(0), Ecn::NotEct, &refusal);
    assert_eq!(
        client.poll_event(20),
        Some((id, Event::Closed { reason: CloseReason::Version(1), unconfirmed_bytes: 0 }))
    );
}

#[test]
fn handshakes_survive_loss_reordering_and_duplication() {
    let network =
        Network { loss: 0.2, duplication: 0.2, reordering: 0.2, reorder_us: 50_000, ..Network::plain(100) };
    let mut sim = Sim::new(network, 7);
    let config = Config { handshake_timeout_us: 30_000_000, ..Config::default() };
    sim.host_with(config.clone(), true, Box::new(Keys(3)));
    sim.host_with(config, false, Box::new(Keys(3)));
    for _ in 0..200 {
        sim.connect(1, 0);
    }
    sim.run_until(20_000_000);
    for host in [0, 1] {
        let connected = |event: &Event| matches!(event, Event::Connected { .. });
        assert_eq!(sim.hosts[host].events.iter().filter(|(_, _, event)| connected(event)).count(), 200);
    }
}

#[test]
fn a_responder_answers_from_the_address_that_was_asked() {
    let mut server = endpoint(Config::default(), true, 1, None);
    let mut client = endpoint(Config::default(), false, 2, None);
    let asked = Route { peer: address(1), local: Some(address(7)) };
    let mut sources = Vec::new();
    client.connect(0, address(0)).expect("space");
    for now in [0, 10] {
        let question = one(&mut client, now);
        assert_eq!(question.from, None);
        server.handle(now + 5, asked, Ecn::NotEct, &question.contents);
        let answer = one(&mut server, now + 5);
        sources.push(answer.from);
        client.handle(now + 10, address(0), Ecn::NotEct, &answer.contents);
    }
    let greeting = one(&mut client, 20);
    server.handle(25, Route { local: Some(address(8)), ..asked }, Ecn::NotEct, &greeting.contents);
    let (id, _) = server.poll_event(25).expect("a connection");
    server.send_message(25, id, b"data").expect("space");
    sources.push(server.poll_transmit(25).expect("data").from);
    assert_eq!(sources, [asked.local; 3]);
}
