//! A path that carries no data for some time.

mod common;

use common::{connected, Network};
use dcudp_proto::Config;

#[test]
fn the_rate_returns_after_data_and_its_repetitions_were_lost() {
    let (mut sim, ids) = connected(Network::plain(50), &Config::default(), 1, 1);
    sim.hosts[0].counts_only = true;
    let began_us = sim.now_us;
    sim.flow(1, ids[0], None, began_us, u64::MAX);
    sim.run_until(began_us + 100_000);
    // Reports pass, so the losses are known. No data passes, so the Congestion Mode ends.
    sim.network.path_mtu = 1_000;
    sim.run_until(began_us + 700_000);
    sim.network.path_mtu = 65_507;
    sim.run_until(began_us + 2_700_000);
    let rate_bps = sim.received(0, began_us + 2_500_000, began_us + 2_700_000)[0] * 8 * 5;
    assert!(rate_bps > 900_000_000, "{rate_bps} bit/s two seconds later");
}
