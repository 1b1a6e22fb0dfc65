//! The sender's algorithm of figure 4 step by step, with the derived equations (1) and (2) and the bound of
//! th_max.

mod common;

use common::{connected, Network};
use dcudp_proto::sender::{largest_th_max, Progress, RateControl, Reaction, SwitchSetting};
use dcudp_proto::seq::Seq;
use dcudp_proto::{Config, Mode};

const LINK_BPS: u64 = 1_000_000_000;
const PACKET_BYTES: usize = 1250;
/// C x 10^6 / (8 PktSize) with C = 1 Gbit/s and PktSize = 1.25 KB.
const LINK_PPS: f64 = 100_000.0;

struct Driver {
    rate: RateControl,
    next: u32,
}

impl Driver {
    fn new() -> Driver {
        let mut rate = RateControl::new(LINK_BPS, 2 * LINK_BPS, PACKET_BYTES);
        rate.set_rtt(1000);
        Driver { rate, next: 0 }
    }

    /// An RTT has ten packets, so an ACK arrives when ten more are on their way.
    fn progress(&self) -> Progress {
        let sent = 10 * u64::from(self.next);
        Progress { now_us: 1000 * u64::from(self.next), sent, arrived: sent - 10 }
    }

    /// The packet that was sent last is lost.
    fn lose(&mut self) {
        let progress = self.progress();
        self.rate.on_loss(progress.sent, progress);
    }

    fn ack(&mut self, obs: bool, ece: bool) -> Reaction {
        self.next += 1;
        self.rate.on_ack(Seq::new(self.next), obs, ece, self.progress())
    }
}

#[test]
fn udp_mode_allows_the_configured_rate_and_the_first_ack_sets_the_link_s() {
    let mut driver = Driver::new();
    assert_eq!((driver.rate.mode(), driver.rate.allowed_pps()), (Mode::Udp, 2.0 * LINK_PPS));
    assert_eq!(driver.ack(true, true), Reaction::Changed);
    assert_eq!((driver.rate.mode(), driver.rate.allowed_pps()), (Mode::Congestion, LINK_PPS));
    assert_eq!(driver.ack(false, false), Reaction::Changed);
    assert_eq!((driver.rate.mode(), driver.rate.allowed_pps()), (Mode::Udp, 2.0 * LINK_PPS));
}

#[test]
fn a_cut_is_halving_only_if_every_ack_is_marked() {
    let mut driver = Driver::new();
    driver.ack(true, true);
    // 2 marks of at least 3 ACKs cut by a third.
    driver.ack(true, true);
    assert!((driver.rate.allowed_pps() / LINK_PPS - 2.0 / 3.0).abs() < 1e-9);
    driver.ack(true, true);
    driver.rate.on_data_sent();
    let before = driver.rate.allowed_pps();
    driver.ack(true, true);
    assert_eq!(driver.rate.marked_share(), 1.0);
    assert!((driver.rate.allowed_pps() / before - 0.5).abs() < 1e-9);

    let mut driver = Driver::new();
    driver.ack(true, true);
    for _ in 0..6 {
        driver.ack(true, false);
    }
    let before = driver.rate.allowed_pps();
    driver.ack(true, true);
    // 2 of 8 ACKs are marked.
    assert!((driver.rate.marked_share() - 0.25).abs() < 1e-9);
    assert!((driver.rate.allowed_pps() / before - 0.875).abs() < 1e-9);
}

#[test]
fn the_ack_after_a_cut_changes_nothing() {
    let mut driver = Driver::new();
    driver.ack(true, true);
    driver.ack(true, true);
    driver.rate.on_data_sent();
    let after_cut = driver.rate.allowed_pps();
    driver.ack(true, true);
    assert_eq!(driver.rate.allowed_pps(), after_cut);
    driver.ack(true, true);
    assert!(driver.rate.allowed_pps() < after_cut);
}

#[test]
fn freeze_holds_until_a_data_packet_is_sent() {
    let mut driver = Driver::new();
    driver.ack(true, true);
    driver.ack(true, true);
    let after_cut = driver.rate.allowed_pps();
    for _ in 0..4 {
        driver.ack(true, true);
        driver.lose();
    }
    assert_eq!(driver.rate.allowed_pps(), after_cut);
    driver.rate.on_data_sent();
    driver.ack(true, true);
    driver.ack(true, true);
    assert!(driver.rate.allowed_pps() < after_cut);
}

#[test]
fn a_growing_queue_cuts_to_what_the_path_delivers_and_a_draining_one_cuts_nothing() {
    // Two of three ACKs were marked.
    let cut = 1.0 - 2.0 / 3.0 / 2.0;
    // Of 39 packets 9 arrived: (9 + 1) / (39 + 1) of the rate is delivered.
    for (sent, arrived, part) in [(39, 9, 1.25 * 0.25 * cut), (9, 9, cut), (9, 12, 1.0)] {
        let mut driver = Driver::new();
        driver.ack(true, true);
        let first = Progress { now_us: 1000, sent: 100, arrived: 50 };
        driver.rate.on_ack(Seq::new(2), true, false, first);
        let next = Progress { now_us: 2000, sent: 100 + sent, arrived: 50 + arrived };
        driver.rate.on_ack(Seq::new(3), true, true, next);
        let seen = driver.rate.allowed_pps() / LINK_PPS;
        assert!((seen - part).abs() < 1e-9, "{sent} sent, {arrived} arrived: {seen}");
    }
}

#[test]
fn the_rate_never_falls_below_one_packet_per_rtt() {
    let mut driver = Driver::new();
    for rtt_us in [1000, 10_000] {
        for _ in 0..200 {
            driver.rate.set_rtt(rtt_us);
            driver.ack(true, true);
            driver.rate.on_data_sent();
        }
        let floor = 1e6 / rtt_us as f64;
        assert!((driver.rate.allowed_pps() / floor - 1.0).abs() < 0.01, "{}", driver.rate.allowed_pps());
    }
}

#[test]
fn unmarked_acks_return_to_rate_max_at_once_and_then_probe() {
    let mut driver = Driver::new();
    driver.ack(true, true);
    driver.ack(true, true);
    // Rate_max lost a quarter of what Rate_data lost: a twelfth.
    driver.ack(true, false);
    let rate_max = driver.rate.allowed_pps();
    assert!((rate_max / LINK_PPS - 11.0 / 12.0).abs() < 1e-9);
    // 1, 2, 3, ... times 1 / 512 of the link's rate, which is more than 1 / 64 of a packet per RTT of 1 ms.
    for (index, total) in [1.0, 3.0, 6.0, 10.0].iter().enumerate() {
        driver.ack(true, false);
        let more = driver.rate.allowed_pps() - rate_max;
        assert!((more - total * LINK_PPS / 512.0).abs() < 1e-6, "{more} after {index} more ACKs");
    }
    for _ in 0..100 {
        driver.ack(true, false);
    }
    assert_eq!(driver.rate.allowed_pps(), LINK_PPS);
}

#[test]
fn a_loss_and_a_mark_of_the_same_packets_cut_once() {
    let mut driver = Driver::new();
    driver.ack(true, true);
    driver.lose();
    driver.rate.on_data_sent();
    let after_cut = driver.rate.allowed_pps();
    driver.ack(true, true);
    assert_eq!(driver.rate.allowed_pps(), after_cut, "the marked packet was sent before the cut");
    driver.ack(true, true);
    driver.rate.on_data_sent();
    let after_mark = driver.rate.allowed_pps();
    assert!(after_mark < after_cut);
    let progress = driver.progress();
    driver.rate.on_loss(progress.arrived, progress);
    assert_eq!(driver.rate.allowed_pps(), after_mark, "the lost packet was sent before the cut");
    driver.lose();
    assert_eq!(driver.rate.allowed_pps(), after_mark, "nothing was sent after the cut");
}

#[test]
fn a_loss_cuts_to_0_7_if_ecn_says_nothing() {
    for (ecn_works, part) in [(true, 0.75), (false, 0.7)] {
        let mut driver = Driver::new();
        driver.ack(true, true);
        driver.rate.set_ecn_works(ecn_works);
        driver.lose();
        assert!((driver.rate.allowed_pps() / LINK_PPS - part).abs() < 1e-9);
    }
}

#[test]
fn an_old_or_repeated_ack_changes_nothing() {
    let mut driver = Driver::new();
    driver.ack(true, true);
    let number = driver.next;
    assert_eq!(driver.rate.on_ack(Seq::new(number), false, false, driver.progress()), Reaction::Stale);
    assert_eq!(driver.rate.on_ack(Seq::new(number - 1), false, false, driver.progress()), Reaction::Stale);
    assert_eq!(driver.rate.mode(), Mode::Congestion);
}

#[test]
fn silence_halves_and_each_report_doubles() {
    let mut driver = Driver::new();
    for _ in 0..3 {
        driver.rate.on_silence();
    }
    assert_eq!(driver.rate.allowed_pps(), LINK_PPS / 4.0);
    driver.rate.on_feedback(0);
    assert_eq!(driver.rate.allowed_pps(), LINK_PPS / 2.0);
    for _ in 0..100 {
        driver.rate.on_silence();
    }
    assert_eq!(driver.rate.allowed_pps(), 10.0);
}

fn paper(max_queue_packets: f64, senders: f64) -> SwitchSetting {
    SwitchSetting {
        max_queue_packets,
        interval_us: 8.0 * 1500.0 / 1600.0,
        delay_us: 25.0,
        rtt_idle_us: 100.0,
        senders,
        link_packets_per_us: 1e9 / 8.0 / 1500.0 / 1e6,
    }
}

#[test]
fn the_paper_s_th_max_satisfies_the_bound_with_its_own_buffer() {
    // 4 MB are 2796 packets of 1500 bytes; the paper uses th_max = 15 with up to 20 senders.
    let bound = largest_th_max(&paper(2796.0, 20.0));
    assert!(bound > 15.0 && bound < 200.0, "{bound}");
    // A buffer that overflows within one reaction time has no setting.
    assert!(largest_th_max(&paper(100.0, 20.0)) < 0.0);
    // Senders that the link carries need no reaction: th_max can be the buffer.
    assert_eq!(largest_th_max(&SwitchSetting { interval_us: 1e6, ..paper(100.0, 1.0) }), 100.0);
}

#[test]
fn within_the_bound_the_first_reaction_comes_before_the_queue_is_full() {
    let network = Network { queue_packets: 2796, th_max: 60.0, ..Network::paper() };
    let bound = largest_th_max(&SwitchSetting {
        link_packets_per_us: 1e9 / 8.0 / 1452.0 / 1e6,
        ..paper(2796.0, 20.0)
    });
    assert!(network.th_max < bound, "{bound}");
    let config = Config { max_rate_bps: 1_600_000_000, ..Config::default() };
    let (mut sim, ids) = connected(network, &config, 20, 1);
    sim.hosts[0].counts_only = true;
    for (host, id) in ids.iter().enumerate() {
        sim.flow(host + 1, *id, Some(1_600_000_000), 10_000, u64::MAX);
    }
    let entered = |sim: &common::Sim| {
        let entries = |(host, id): (usize, &_)| {
            sim.hosts[host + 1].endpoint.statistics(*id).map_or(0, |statistics| statistics.congestion_entries)
        };
        ids.iter().enumerate().filter(|sender| entries(*sender) > 0).count()
    };
    while entered(&sim) < 20 {
        assert!(sim.now_us < 20_000, "only {} senders reacted", entered(&sim));
        let until = sim.now_us + 10;
        sim.run_until(until);
    }
    println!("bound {bound:.0}, queue at the last first reaction {}", sim.queue.longest);
    assert_eq!(sim.queue.drops, 0);
    // What the derived equations add: the loss stays tolerable until the rates fit.
    sim.run_until(200_000);
    let share = sim.queue.drops as f64 / sim.queue.passed as f64;
    println!("longest queue {}, {:.4} lost in 200 ms", sim.queue.longest, share);
    assert!(share < 0.05, "{share:.4} of the packets were lost");
}
