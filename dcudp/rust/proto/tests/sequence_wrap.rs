//! Data sequence numbers wrap from 2^31 - 1 to 0.

mod common;

use common::{connected, messages, send_all, Network};
use dcudp_proto::seq::{Seq, MASK};
use dcudp_proto::Config;

#[test]
fn distances_count_across_the_wrap() {
    let (last, first) = (Seq::new(MASK), Seq::new(0));
    assert_eq!(last.plus(1), first);
    assert_eq!(last.offset(first), 1);
    assert_eq!(first.offset(last), -1);
    assert!(last.before(first) && !first.before(last));
    assert_eq!(first.offset(Seq::new(1 << 30)), -(1 << 30));
    assert_eq!(first.offset(Seq::new((1 << 30) - 1)), (1 << 30) - 1);
    assert_eq!(Seq::new(u32::MAX), last);
}

#[test]
fn a_connection_passes_the_wrap_under_loss() {
    for initial in [MASK, MASK - 1, MASK - 100, MASK - 1000] {
        let config = Config { initial_sequence: Some(initial), ..Config::default() };
        let network = Network {
            loss: 0.05,
            duplication: 0.05,
            reordering: 0.05,
            reorder_us: 500,
            ..Network::plain(50)
        };
        let (mut sim, ids) = connected(network, &config, 1, u64::from(initial));
        let sent = messages(1, 200, 15_000);
        send_all(&mut sim, 1, ids[0], &sent, 60_000_000);
        sim.run_while(120_000_000, |sim| sim.messages(0).len() < sent.len());
        assert!(sim.messages(0) == sent, "the messages differ with {initial}");
        assert!(sim.hosts[1].endpoint.statistics(ids[0]).expect("open").data_sent > 1000);
    }
}
