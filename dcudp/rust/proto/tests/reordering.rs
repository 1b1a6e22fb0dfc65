//! A path that reorders and loses nothing: after the first late packets the receiver waits for others as
//! late, so they are not taken as losses, and the sender is not slowed.

mod common;

use common::{connected, Network};
use dcudp_proto::Config;

#[test]
fn reordering_alone_is_soon_no_loss() {
    let network = Network { reordering: 0.05, reorder_us: 400, ..Network::plain(500) };
    let (mut sim, ids) = connected(network, &Config::default(), 1, 1);
    sim.hosts[0].counts_only = true;
    sim.flow(1, ids[0], None, 0, u64::MAX);
    sim.run_until(1_000_000);
    let before = sim.hosts[1].endpoint.statistics(ids[0]).expect("open");
    sim.run_until(3_000_000);
    let after = sim.hosts[1].endpoint.statistics(ids[0]).expect("open");
    let sent = after.data_sent - before.data_sent;
    let again = after.retransmitted - before.retransmitted;
    println!("{sent} packets sent in 2 s, {again} of them again");
    assert!(sent > 160_000, "{sent} packets in 2 s at 86,088 per second");
    assert!(again * 1000 < sent, "{again} of {sent} packets were sent again");
}
