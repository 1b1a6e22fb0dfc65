//! The receiver's part of the mode switch: when ACKs are sent, what they say, and when the Congestion Mode
//! ends (paper, sections IV.A.2 and IV.C.1).
//!
//! | symbol | name | unit | source |
//! |---|---|---|---|
//! | RTT | `rtt_us` | us | section IV.A.2 |
//! | RTT_idle | `rtt_idle_us` | us | section IV.A |
//! | Interval_ACK | `interval_us` | us | section IV.A.2 |
//! | K | `window` | packets, values | section IV.C |
//! | P(RTT <= RTT') | `delay_trend()` | 1 | equation (3) |
//! | P(p_ecn <= p'_ecn) | `ecn_trend()` | 1 | equation (4) |

use std::collections::VecDeque;

use crate::seq::Seq;
use crate::{Config, Micros};

/// ACKs whose ACK2 is still awaited.
const SENT_ACKS: usize = 64;
/// An ACK waits at least this part of the age of the oldest ACK without an ACK2. So ACKs become rare if the
/// peer is gone, or if ACK2s wait in a long queue.
const AGE_PART: f64 = 0.25;
/// In the Congestion Mode an ACK comes at least this often, in RTT_idle. So senders learn within this time
/// that a long queue is empty.
const LONGEST_RTTS: f64 = 8.0;
/// With few data packets, an ACK asks for an ACK2 after this many RTT_idle. So an RTT is known when the queue
/// falls again.
const ASK_RTTS: f64 = 16.0;
/// RTTs are compared in parts of RTT_idle, so that the noise of timers is not a trend.
const RTT_STEPS: f64 = 8.0;
/// If a sender sends no data for this many RTTs, there is no congestion to observe.
const IDLE_RTTS: f64 = 16.0;
/// The same, in microseconds, at least.
const IDLE_US: f64 = 100_000.0;
/// RTT_idle before the first measurement.
const FIRST_RTT_US: f64 = 1000.0;

/// Where the receiver is in the mode switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observation {
    /// UDP Mode: no ACKs.
    Quiet,
    /// Congestion Mode: ACKs with OBS = 1 every RTT.
    Congested,
    /// Condition 1 held since the last mark: ACKs with OBS = 1 every beta x RTT_idle.
    Easing,
    /// Condition 2 held: ACKs with OBS = 0 until an OBS-change answers one of them.
    Leaving,
}

/// What an ACK says besides its report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckFlags {
    /// The mode that the receiver wishes: true for the Congestion Mode.
    pub obs: bool,
    /// The echo of a mark.
    pub ece: bool,
    /// An ACK2 shall answer.
    pub asks: bool,
}

/// The receiver's view of one direction.
#[derive(Debug, Clone)]
pub struct Observer {
    state: Observation,
    window: usize,
    alpha: f64,
    beta: f64,
    theta_ecn: f64,
    theta_rtt: f64,
    slowest_us: f64,
    rtt_us: Option<f64>,
    newest_us: f64,
    rtt_idle_us: Option<f64>,
    interval_us: f64,
    next_ack_us: Micros,
    last_data_us: Micros,
    sent: VecDeque<(Seq, Micros)>,
    packets_per_ack2: u32,
    asked_us: Micros,
    since_asked: u32,
    first_leaving_ack: Option<Seq>,
    echo: bool,
    ecn_erased: bool,
    counted: usize,
    marked: usize,
    delays: VecDeque<u64>,
    portions: VecDeque<usize>,
}

impl Observer {
    /// The state of a new connection.
    pub fn new(config: &Config) -> Observer {
        Observer {
            state: Observation::Quiet,
            window: config.trend_window,
            alpha: config.alpha,
            beta: config.beta,
            theta_ecn: config.theta_ecn,
            theta_rtt: config.theta_rtt,
            slowest_us: config.idle_interval_us as f64,
            rtt_us: None,
            newest_us: FIRST_RTT_US,
            rtt_idle_us: None,
            interval_us: FIRST_RTT_US,
            next_ack_us: 0,
            last_data_us: 0,
            sent: VecDeque::new(),
            packets_per_ack2: config.packets_per_ack2,
            asked_us: 0,
            since_asked: 0,
            first_leaving_ack: None,
            echo: false,
            ecn_erased: false,
            counted: 0,
            marked: 0,
            delays: VecDeque::new(),
            portions: VecDeque::new(),
        }
    }

    /// What a future OBS-change must answer.
    #[cfg(test)]
    pub(crate) fn first_leaving_ack(&self) -> Option<Seq> {
        self.first_leaving_ack
    }

    /// Where the receiver is.
    pub fn state(&self) -> Observation {
        self.state
    }

    /// The RTT that ACKs follow: the smoothed one, or the newest if it is smaller. ACKs come once per RTT, so
    /// after a long queue the smoothed RTT alone would stay long for many such RTTs.
    pub fn rtt_us(&self) -> Option<f64> {
        self.rtt_us.map(|rtt| rtt.min(self.newest_us))
    }

    /// The age of the oldest ACK without an ACK2.
    fn age_us(&self, now: Micros) -> f64 {
        self.sent.front().map_or(0.0, |(_, sent_us)| now.saturating_sub(*sent_us) as f64)
    }

    /// The RTT for the peer: at least the age of the oldest ACK without an ACK2. It grows with a queue at
    /// once, not only when an ACK2 has passed the queue.
    pub fn reported_rtt_us(&self, now: Micros) -> Option<f64> {
        self.rtt_us().map(|rtt| rtt.max(self.age_us(now)))
    }

    /// The least RTT.
    pub fn rtt_idle_us(&self) -> Option<f64> {
        self.rtt_idle_us
    }

    /// An RTT of the handshake or of a keep-alive and its answer.
    pub fn on_rtt(&mut self, sample_us: Micros) {
        let sample = sample_us.max(1) as f64;
        self.newest_us = sample;
        self.rtt_us = Some(match self.rtt_us {
            None => sample,
            Some(rtt) => (1.0 - self.alpha) * rtt + self.alpha * sample,
        });
        self.rtt_idle_us = Some(self.rtt_idle_us.map_or(sample, |idle| idle.min(sample)));
    }

    /// The path erases ECN. Then only losses show congestion, and each return to the UDP Mode would cost
    /// some. So the Congestion Mode lasts until the sender stops.
    pub fn on_erased_ecn(&mut self) {
        self.ecn_erased = true;
    }

    /// A data packet arrived. `marked` is true with CE.
    pub fn on_data(&mut self, now: Micros, marked: bool, cwr: bool) {
        self.last_data_us = now;
        self.since_asked = self.since_asked.saturating_add(1);
        if cwr {
            self.echo = false;
        }
        self.count(marked);
        if marked {
            self.on_mark(now);
        }
    }

    /// Packets are lost. A loss counts as a mark: with ECN erased it is the only signal.
    pub fn on_lost(&mut self, now: Micros, packets: u32) {
        // More than all of the window of portions changes nothing.
        for _ in 0..(packets as usize).min(self.window * self.window) {
            self.count(true);
        }
        self.on_mark(now);
    }

    fn count(&mut self, marked: bool) {
        if self.state == Observation::Quiet {
            return;
        }
        self.counted += 1;
        self.marked += usize::from(marked);
        if self.counted == self.window {
            push_bounded(&mut self.portions, self.marked, self.window);
            self.counted = 0;
            self.marked = 0;
        }
    }

    fn on_mark(&mut self, now: Micros) {
        self.echo = true;
        if self.state == Observation::Quiet {
            self.delays.clear();
            self.sent.clear();
            self.portions.clear();
            self.counted = 0;
            self.marked = 0;
        }
        match self.state {
            // "It immediately sends an ACK", and then one every RTT_idle until an RTT is measured.
            Observation::Quiet => {
                self.next_ack_us = now;
                self.interval_us = self.rtt_idle_us.unwrap_or(FIRST_RTT_US);
                self.since_asked = self.packets_per_ack2;
            }
            Observation::Leaving => self.next_ack_us = now,
            Observation::Easing => {
                self.interval_us = self.rtt_us().unwrap_or(FIRST_RTT_US);
                self.next_ack_us = self.next_ack_us.min(now + self.interval_us as Micros);
            }
            Observation::Congested => {}
        }
        self.state = Observation::Congested;
        self.first_leaving_ack = None;
    }

    /// When the next ACK is due.
    pub fn next_ack_us(&self) -> Option<Micros> {
        match self.state {
            Observation::Quiet => None,
            _ => Some(self.next_ack_us),
        }
    }

    /// What an ACK says that is sent now with this sequence number.
    pub fn on_ack_sent(&mut self, now: Micros, sequence: Seq) -> AckFlags {
        if self.state == Observation::Leaving && self.first_leaving_ack.is_none() {
            self.first_leaving_ack = Some(sequence);
        }
        let asks = self.asks(now);
        if asks {
            push_bounded(&mut self.sent, (sequence, now), SENT_ACKS);
            self.asked_us = now;
            self.since_asked = 0;
        }
        let without_data_us = now.saturating_sub(self.last_data_us) as f64;
        self.next_ack_us = now + self.wait_us(now).max(without_data_us) as Micros;
        let obs = self.state != Observation::Leaving;
        AckFlags { obs, ece: self.echo && obs, asks }
    }

    fn asks(&self, now: Micros) -> bool {
        let overdue_us = ASK_RTTS * self.rtt_idle_us.unwrap_or(FIRST_RTT_US);
        self.state != Observation::Congested
            || self.since_asked >= self.packets_per_ack2
            || now.saturating_sub(self.asked_us) as f64 >= overdue_us
    }

    /// The wait after an ACK while data arrives.
    fn wait_us(&self, now: Micros) -> f64 {
        let wait_us = self.interval_us.max(self.age_us(now) * AGE_PART).min(self.slowest_us).max(1.0);
        if self.state == Observation::Congested {
            return wait_us.min(LONGEST_RTTS * self.rtt_idle_us.unwrap_or(FIRST_RTT_US));
        }
        wait_us
    }

    /// An ACK2 arrived. False if it answers no ACK that waits for one.
    pub fn on_ack2(&mut self, now: Micros, sequence: Seq) -> bool {
        let at = match self.sent.iter().position(|(sent, _)| *sent == sequence) {
            Some(at) => at,
            None => return false,
        };
        let sent_us = self.sent[at].1;
        self.sent.drain(..=at);
        self.on_rtt(now.saturating_sub(sent_us));
        if self.state == Observation::Quiet || self.state == Observation::Leaving {
            return true;
        }
        if self.is_silent(sent_us) {
            self.state = Observation::Leaving;
            self.echo = false;
            self.next_ack_us = now;
            return true;
        }
        let (rtt, idle) = (self.rtt_us.unwrap_or(FIRST_RTT_US), self.rtt_idle_us.unwrap_or(FIRST_RTT_US));
        push_bounded(&mut self.delays, (rtt / idle * RTT_STEPS) as u64, self.window);
        if self.state == Observation::Congested {
            self.interval_us = rtt.min(self.newest_us);
        }
        self.judge(idle);
        true
    }

    /// Whether the sender had stopped when it answered an ACK that was sent at `sent_us`. The ACK2 takes the way
    /// of the data, so what the sender sent before it has arrived. That data is missing shows nothing alone:
    /// while a queue grows quickly, the packets of a slow sender arrive seldom. A sender at its least rate
    /// sends once per smoothed RTT.
    fn is_silent(&self, sent_us: Micros) -> bool {
        let silent_us = sent_us.saturating_sub(self.last_data_us) as f64;
        silent_us > (IDLE_RTTS * self.rtt_us.unwrap_or(FIRST_RTT_US)).max(IDLE_US)
    }

    /// Conditions 1 and 2. They cannot hold at the same instant, so condition 1 is remembered until a mark.
    fn judge(&mut self, idle_us: f64) {
        let (ecn, delay) = match (self.ecn_trend(), self.delay_trend()) {
            (Some(ecn), Some(delay)) if self.portions.back() == Some(&0) && !self.ecn_erased => (ecn, delay),
            _ => return,
        };
        if self.state == Observation::Congested {
            // The paper's condition 1 needs RTTs that grow while marks end. K portions without a mark are
            // Weir's addition: without it a congestion that ends while RTTs fall is never left.
            let unmarked = self.portions.iter().all(|portion| *portion == 0);
            if (ecn < self.theta_ecn && delay < self.theta_rtt) || unmarked {
                self.state = Observation::Easing;
                self.interval_us = self.beta * idle_us;
            }
        }
        if self.state == Observation::Easing && ecn >= 1.0 && delay >= 1.0 {
            self.leave(idle_us);
        }
    }

    /// "Then set OBS bit = 0 for the following ACK sent."
    pub(crate) fn leave(&mut self, idle_us: f64) {
        self.state = Observation::Leaving;
        self.interval_us = self.beta * idle_us;
    }

    /// Equation (3): the share of RTTs that are not larger than the one before; None before K are known.
    pub fn delay_trend(&self) -> Option<f64> {
        trend(&self.delays, self.window)
    }

    /// Equation (4): the share of portions of marked packets that are not larger than the one before.
    pub fn ecn_trend(&self) -> Option<f64> {
        trend(&self.portions, self.window)
    }

    /// An OBS-change arrived. It counts only if it answers an ACK of the present attempt to leave; a delayed
    /// copy of an earlier one does not.
    pub fn on_obs_change(&mut self, ack: Seq) -> bool {
        let first = match (self.state, self.first_leaving_ack) {
            (Observation::Leaving, Some(first)) => first,
            _ => return false,
        };
        if ack.before(first) {
            return false;
        }
        self.state = Observation::Quiet;
        self.first_leaving_ack = None;
        self.echo = false;
        // The age of an ACK whose ACK2 was lost must not count later.
        self.sent.clear();
        true
    }

    /// A data packet with OBS = 1 arrived in the UDP Mode: the sender missed the end of the Congestion Mode,
    /// or still had packets on their way. ACKs with OBS = 0 repeat the end until the sender answers.
    pub fn on_stale_obs(&mut self, now: Micros) {
        if self.state == Observation::Quiet {
            self.state = Observation::Leaving;
            self.first_leaving_ack = None;
            self.interval_us = self.beta * self.rtt_idle_us.unwrap_or(FIRST_RTT_US);
            // Packets that left before the OBS-change arrive within an RTT. They need no answer.
            self.next_ack_us = now + self.interval_us as Micros;
        }
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, value: T, limit: usize) {
    if queue.len() == limit {
        queue.pop_front();
    }
    queue.push_back(value);
}

fn trend<T: PartialOrd>(values: &VecDeque<T>, window: usize) -> Option<f64> {
    if values.len() < window {
        return None;
    }
    let falling = values.iter().zip(values.iter().skip(1)).filter(|(before, after)| after <= before).count();
    Some(falling as f64 / (values.len() - 1) as f64)
}
