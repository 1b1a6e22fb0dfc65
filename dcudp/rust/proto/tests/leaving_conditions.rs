//! Leaving the Congestion Mode: getDelayTrend, getEcnTrend, equations (3) and (4), conditions 1 and 2
//! (section IV.C).

use dcudp_proto::observer::{Observation, Observer};
use dcudp_proto::seq::Seq;
use dcudp_proto::Config;

const K: usize = 4;
const IDLE_US: u64 = 1000;

struct Driver {
    observer: Observer,
    now: u64,
    next: u32,
}

impl Driver {
    /// In the Congestion Mode since one mark, with RTT_idle known.
    fn congested() -> Driver {
        let config = Config { trend_window: K, packets_per_ack2: 0, ..Config::default() };
        let mut driver = Driver { observer: Observer::new(&config), now: 1_000_000, next: 0 };
        driver.observer.on_rtt(IDLE_US);
        driver.data(1, 1);
        assert_eq!(driver.observer.state(), Observation::Congested);
        assert_eq!(driver.observer.next_ack_us(), Some(driver.now));
        driver
    }

    /// Data packets, the first ones marked. Each echo is answered by CWR.
    fn data(&mut self, count: usize, marked: usize) {
        for index in 0..count {
            self.observer.on_data(self.now, index < marked, true);
        }
    }

    /// K packets of which some are marked: one value of the window of p_ecn. The mark that began the
    /// Congestion Mode is not counted.
    fn portion(&mut self, marked: usize) {
        self.data(K, marked);
    }

    /// An ACK, and its ACK2 after the given RTT. Returns the bits OBS and ECE, and the time to the next ACK.
    fn ack(&mut self, rtt_us: u64) -> (bool, bool, u64) {
        self.next += 1;
        let bits = self.observer.on_ack_sent(self.now, Seq::new(self.next));
        let wait_us = self.observer.next_ack_us().expect("a next ACK") - self.now;
        self.now += rtt_us;
        assert!(self.observer.on_ack2(self.now, Seq::new(self.next)));
        (bits.obs, bits.ece, wait_us)
    }
}

#[test]
fn the_trends_are_shares_of_values_that_do_not_grow() {
    let mut driver = Driver::congested();
    for marked in [0, 2, 1] {
        driver.portion(marked);
        driver.ack(IDLE_US);
    }
    assert_eq!((driver.observer.ecn_trend(), driver.observer.delay_trend()), (None, None));
    driver.portion(1);
    driver.ack(IDLE_US);
    // 0 2 1 1: one of three grows. All RTTs are equal.
    assert_eq!(driver.observer.ecn_trend(), Some(2.0 / 3.0));
    assert_eq!(driver.observer.delay_trend(), Some(1.0));
    driver.portion(3);
    driver.ack(4 * IDLE_US);
    // 2 1 1 3: the oldest is replaced.
    assert_eq!(driver.observer.ecn_trend(), Some(2.0 / 3.0));
    assert_eq!(driver.observer.delay_trend(), Some(2.0 / 3.0));
}

/// The paper's condition 1: RTTs grow, marks grew, and the latest packets are not marked.
fn eased() -> Driver {
    let mut driver = Driver::congested();
    for (marked, rtt_us) in [(0, 2000), (1, 4000), (2, 8000), (0, 16_000)] {
        driver.portion(marked);
        driver.ack(rtt_us);
    }
    assert!(driver.observer.delay_trend().expect("K values") < 0.2);
    assert!(driver.observer.ecn_trend().expect("K values") < 0.5);
    driver
}

#[test]
fn condition_1_enlarges_the_interval_and_is_remembered() {
    let mut driver = eased();
    assert_eq!(driver.observer.state(), Observation::Easing);
    driver.portion(0);
    // Falling RTTs end condition 1's own inequality, and the state stays.
    let (obs, _, wait_us) = driver.ack(IDLE_US);
    assert!(obs);
    assert_eq!(wait_us, 2 * IDLE_US);
    assert!(driver.observer.delay_trend().expect("K values") > 0.2);
    assert_eq!(driver.observer.state(), Observation::Easing);
}

#[test]
fn condition_1_holds_without_any_mark_whatever_the_rtts_do() {
    let mut driver = Driver::congested();
    for rtt_us in [2000, 1500, 4000, 1200] {
        driver.portion(0);
        driver.ack(rtt_us);
    }
    assert_eq!(driver.observer.state(), Observation::Easing);
}

#[test]
fn marks_that_return_reset_the_interval() {
    let mut driver = eased();
    driver.portion(1);
    assert_eq!(driver.observer.state(), Observation::Congested);
    let (obs, ece, wait_us) = driver.ack(IDLE_US);
    assert!(obs);
    // CWR of the last packets cleared the echo.
    assert!(!ece);
    assert!(wait_us > 2 * IDLE_US, "{wait_us} us is not the RTT");
}

#[test]
fn condition_2_ends_the_mode_only_after_condition_1() {
    let mut driver = eased();
    for _ in 0..K {
        driver.portion(0);
        driver.ack(IDLE_US);
    }
    assert_eq!(driver.observer.state(), Observation::Leaving);
    let (obs, ece, wait_us) = driver.ack(IDLE_US);
    assert!(!obs && !ece);
    assert_eq!(wait_us, 2 * IDLE_US);

    // Without condition 1 the same values of condition 2 do not suffice: some packets are marked in between.
    let mut driver = Driver::congested();
    for _ in 0..3 * K {
        driver.portion(1);
        driver.ack(IDLE_US);
    }
    assert_eq!(driver.observer.state(), Observation::Congested);
}

#[test]
fn acks_stop_at_the_obs_change_for_this_end() {
    let mut driver = eased();
    while driver.observer.state() != Observation::Leaving {
        driver.portion(0);
        driver.ack(IDLE_US);
    }
    let last_with_obs = Seq::new(driver.next);
    driver.ack(IDLE_US);
    assert!(!driver.observer.on_obs_change(last_with_obs), "an OBS-change for an earlier ACK counted");
    assert!(driver.observer.next_ack_us().is_some());
    assert!(driver.observer.on_obs_change(Seq::new(driver.next)));
    assert_eq!((driver.observer.state(), driver.observer.next_ack_us()), (Observation::Quiet, None));
    // A data packet with OBS = 1 shows that the sender missed it.
    driver.observer.on_stale_obs(driver.now);
    assert_eq!(driver.observer.state(), Observation::Leaving);
}

#[test]
fn a_mark_while_leaving_returns_to_the_congestion_mode() {
    let mut driver = eased();
    while driver.observer.state() != Observation::Leaving {
        driver.portion(0);
        driver.ack(IDLE_US);
    }
    driver.ack(IDLE_US);
    driver.data(1, 1);
    assert_eq!(driver.observer.next_ack_us(), Some(driver.now));
    let (obs, ece, _) = driver.ack(IDLE_US);
    assert!(obs && ece);
    assert!(!driver.observer.on_obs_change(Seq::new(driver.next - 1)));
}

#[test]
fn the_rtt_is_smoothed_with_alpha() {
    let mut driver = Driver::congested();
    driver.ack(9000);
    // 0.875 x 1000 + 0.125 x 9000.
    assert_eq!(driver.observer.rtt_us(), Some(2000.0));
    driver.ack(9000);
    assert_eq!(driver.observer.rtt_us(), Some(2875.0));
    assert_eq!(driver.observer.rtt_idle_us(), Some(1000.0));
    // The newest RTT, if it is smaller.
    driver.ack(1000);
    assert_eq!(driver.observer.rtt_us(), Some(1000.0));
}

#[test]
fn the_echo_lasts_until_cwr() {
    let mut driver = Driver::congested();
    driver.observer.on_data(driver.now, true, false);
    assert!(driver.ack(IDLE_US).1 && driver.ack(IDLE_US).1);
    driver.observer.on_data(driver.now, false, true);
    assert!(!driver.ack(IDLE_US).1);
    // A packet with both is a new mark.
    driver.observer.on_data(driver.now, true, true);
    assert!(driver.ack(IDLE_US).1);
}

#[test]
fn an_ack_asks_for_an_ack2_after_eight_packets_or_sixteen_rtts() {
    let mut observer = Observer::new(&Config::default());
    observer.on_rtt(IDLE_US);
    let (mut now, mut number) = (1_000_000, 0);
    observer.on_data(now, true, false);
    let mut asks = |observer: &mut Observer, now| {
        number += 1;
        observer.on_ack_sent(now, Seq::new(number)).asks
    };
    assert!(asks(&mut observer, now), "the first mark's ACK");
    for _ in 0..7 {
        observer.on_data(now, false, false);
        assert!(!asks(&mut observer, now));
    }
    observer.on_data(now, false, false);
    assert!(asks(&mut observer, now));
    now += 16 * IDLE_US - 1;
    observer.on_data(now, false, false);
    assert!(!asks(&mut observer, now));
    assert!(asks(&mut observer, now + 1));
}

#[test]
fn only_an_answer_shows_that_a_sender_has_stopped() {
    let mut driver = Driver::congested();
    driver.now += 300_000;
    driver.observer.on_ack_sent(driver.now, Seq::new(1));
    assert_eq!(
        driver.observer.state(),
        Observation::Congested,
        "the data may wait in a queue, as the ACK2 does"
    );
    driver.now += 400_000;
    driver.data(1, 0);
    assert!(driver.observer.on_ack2(driver.now, Seq::new(1)));
    assert_eq!(driver.observer.state(), Observation::Congested, "data arrived before the ACK2");
}

#[test]
fn a_sender_that_answers_and_sends_nothing_has_stopped() {
    let mut driver = Driver::congested();
    driver.now += 90_000;
    let (obs, _, _) = driver.ack(IDLE_US);
    assert!(obs);
    assert_eq!(driver.observer.state(), Observation::Congested, "it may send again");
    driver.now += 20_000;
    driver.ack(IDLE_US);
    assert_eq!(driver.observer.state(), Observation::Leaving);
    assert_eq!(driver.observer.next_ack_us(), Some(driver.now));
    let (obs, ..) = driver.ack(IDLE_US);
    assert!(!obs);
}
