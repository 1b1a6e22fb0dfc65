//! The sender's algorithm in the Congestion Mode (paper, sections IV.A and IV.B, figure 4).
//!
//! Equations (1) and (2) and the inequality for th_max stand in pictures that the paper's text lacks. Those
//! here are derived from the prose; `docs/decisions/0076-dcudp-protocol.md` states how.
//!
//! | symbol | name | unit | source |
//! |---|---|---|---|
//! | C | `link_rate_bps` | bit/s | section IV |
//! | PktSize | `packet_bytes` | byte | section IV |
//! | Rate_data | `rate_pps` | packet/s | section IV.A, step 2 |
//! | Rate_max | `rate_max_pps` | packet/s | section IV.A, step 2 |
//! | n_ecn | `marked_share()` | 1 | section IV.B |
//! | freeze | `frozen` | - | section IV.B |

use crate::seq::Seq;
use crate::{Micros, Mode};

/// Older ACKs count half once this many were counted, so that n_ecn follows a long Congestion Mode period.
const MEMORY_ACKS: u32 = 32;
/// n_ecn is a share of at least so many ACKs, so the first marks of a period cut less.
const LEAST_ACKS: u32 = 3;
/// The part of a cut of Rate_data by which Rate_max is cut.
const MAX_PART: f64 = 0.25;
/// Below this distance, in parts of Rate_max, Rate_data has reached Rate_max.
const REACHED_PART: f64 = 1.0 / 16.0;
/// The unmarked ACKs in a row at Rate_max raise it by 1, 2, 3, ... of these parts of a packet per RTT.
const PROBE_PARTS: f64 = 64.0;
/// The same, at least, in parts of the link's rate: on long paths a packet per RTT is little.
const LINK_PARTS: f64 = 512.0;
/// If ECN says nothing, Rate_max grows by this part of it per RTT: a full queue is the first signal then.
const BLIND_PART: f64 = 1.0 / 256.0;
/// It grows by so many packets per RTT, if that is more, while the queue does not grow. With cuts to 0.7 this gains
/// what Reno gains (RFC 9438, section 4.3).
const BLIND_PACKETS: f64 = 0.53;
/// A loss counts as this share of marked ACKs then: the rate falls to 0.7 of what it was, as in CUBIC (RFC 9438).
const BLIND_SHARE: f64 = 0.6;
/// The queue grows if a smaller part of the packets arrives than this.
const DELIVERED_PART: f64 = 0.97;
/// An unmarked ACK raises Rate_max by at most this part of it.
const GROWTH_PART: f64 = 0.5;
/// The weight of the newest RTT in the least rate.
const RTT_WEIGHT: f64 = 0.0625;
/// Without a further loss the ceiling of the UDP Mode grows by this part per RTT,
const CEILING_GROWTH: f64 = 1.0 / 16.0;
/// or per so many microseconds, if that is longer: reports are not more frequent.
const CEILING_STEP_US: Micros = 10_000;
/// Rates are halved at most this often while feedback is missing.
const MAX_HALVINGS: u32 = 20;

/// Without new packets, a cut has had its effect after so many RTTs.
const CUT_RTTS: f64 = 2.0;
/// The weight of the newest measurement in the rate at which packets arrive.
const ARRIVAL_WEIGHT: f64 = 0.5;
/// So many packets tell whether a queue grows.
const LEAST_PACKETS: u64 = 4;
/// An ACK is forgotten after this part of all sequence numbers: a quarter, because half of them compare as earlier.
const ACK_MEMORY: i32 = 1 << 29;
/// A queue neither grows nor drains if the packets sent and arrived differ by less than this factor.
const STEADY: f64 = 1.25;

/// How far the data has come when an ACK arrives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// The time.
    pub now_us: Micros,
    /// How many packets were sent, without those that were sent again.
    pub sent: u64,
    /// How many of them arrived or are lost.
    pub arrived: u64,
}

/// What an ACK did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// It is older than another ACK, or a copy. It gets no answer.
    Stale,
    /// The mode stays. An ACK2 answers; if the ACK has OBS = 0, an OBS-change too.
    Same,
    /// The mode changed. The answers are the same.
    Changed,
}

/// The mode and the rate of one direction.
#[derive(Debug, Clone)]
pub struct RateControl {
    mode: Mode,
    link_pps: f64,
    limit_pps: f64,
    rate_pps: f64,
    rate_max_pps: f64,
    /// What a path without marks was seen to carry. No source: the paper knows marks only.
    ceiling_pps: f64,
    raised_us: Micros,
    grown_us: Micros,
    /// How many packets arrive per second, smoothed.
    arrival_pps: f64,
    /// Packets were lost since the UDP Mode last began.
    lossy: bool,
    rtt_us: f64,
    smooth_us: f64,
    marked_acks: u32,
    acks: u32,
    frozen: bool,
    last: Progress,
    last_cut: Progress,
    ecn_works: bool,
    probes: u32,
    halvings: u32,
    last_ack: Option<Seq>,
}

impl RateControl {
    /// C x 10^6 / (8 PktSize) with C in Gbit/s and PktSize in KB is the link's rate in packets per second.
    pub fn new(link_rate_bps: u64, max_rate_bps: u64, packet_bytes: usize) -> RateControl {
        let packet_bits = 8.0 * packet_bytes as f64;
        let (link_pps, limit_pps) = (link_rate_bps as f64 / packet_bits, max_rate_bps as f64 / packet_bits);
        RateControl {
            mode: Mode::Udp,
            link_pps,
            limit_pps,
            rate_pps: link_pps,
            rate_max_pps: link_pps,
            ceiling_pps: f64::INFINITY,
            raised_us: 0,
            grown_us: 0,
            arrival_pps: 0.0,
            lossy: false,
            rtt_us: 1000.0,
            smooth_us: 1000.0,
            marked_acks: 0,
            acks: 0,
            frozen: false,
            last: Progress::default(),
            last_cut: Progress::default(),
            ecn_works: true,
            probes: 0,
            halvings: 0,
            last_ack: None,
        }
    }

    /// The link's rate in packets per second.
    pub fn link_pps(&self) -> f64 {
        self.link_pps
    }

    /// The sender's mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Packets per second at which data may be sent now.
    pub fn allowed_pps(&self) -> f64 {
        let wished = match self.mode {
            Mode::Udp => self.ceiling_pps,
            Mode::Congestion => self.rate_pps.max(self.floor_pps()),
        };
        // 2^-n of the rate, but never slower than one packet in 100 ms: it asks for feedback.
        (wished.min(self.limit_pps) * 0.5f64.powi(self.halvings as i32)).max(10.0).min(self.limit_pps)
    }

    /// n_ecn: the share of ACKs with ECE in this Congestion Mode period.
    pub fn marked_share(&self) -> f64 {
        if self.acks == 0 {
            return 0.0;
        }
        f64::from(self.marked_acks) / f64::from(self.acks.max(LEAST_ACKS))
    }

    /// Too many packets are in flight, so the sender sends fewer than its rate permits. It forgets what it does not
    /// use. Otherwise several cuts, one per RTT of a long queue, would change nothing. The first ACK of the
    /// Congestion Mode knows no arrivals, so it forgets nothing.
    pub fn forget_unused(&mut self) {
        if self.arrival_pps == 0.0 {
            return;
        }
        let used_pps = self.arrival_pps.max(self.floor_pps());
        self.rate_max_pps = self.rate_max_pps.min(used_pps);
        self.rate_pps = self.rate_pps.min(used_pps);
    }

    /// The rate of a sender that has `over` times as many packets in flight as it should: as many times fewer
    /// than arrive, but at least one packet per RTT.
    pub fn bounded_pps(&self, over: f64) -> f64 {
        (self.arrival_pps / over).max(self.floor_pps())
    }

    /// One data packet per RTT. Of the smoothed RTT, because the newest one is small whenever the queue is
    /// empty, and many senders at once would fill it again.
    fn floor_pps(&self) -> f64 {
        1e6 / self.slow_rtt_us()
    }

    /// The larger one of the newest and the smoothed RTT.
    fn slow_rtt_us(&self) -> f64 {
        self.rtt_us.max(self.smooth_us)
    }

    /// Packets become `times` as small before data is sent. The same rates are as many times more packets.
    pub fn shrink_packets(&mut self, times: f64) {
        self.link_pps *= times;
        self.limit_pps *= times;
        self.rate_pps *= times;
        self.rate_max_pps *= times;
    }

    /// Whether the receiver sees the ECN field as it was sent, and marks before losses.
    pub fn set_ecn_works(&mut self, works: bool) {
        self.ecn_works = works;
    }

    /// The RTT of the newest ACK.
    pub fn set_rtt(&mut self, rtt_us: Micros) {
        self.rtt_us = rtt_us.max(1) as f64;
        self.smooth_us += RTT_WEIGHT * (self.rtt_us - self.smooth_us);
    }

    /// Step 2 of the mode switch: the first rate of the Congestion Mode.
    fn enter(&mut self) {
        self.mode = Mode::Congestion;
        self.rate_max_pps = self.link_pps.min(self.ceiling_pps).max(self.floor_pps());
        self.rate_pps = self.rate_max_pps;
        self.arrival_pps = 0.0;
        self.marked_acks = 0;
        self.acks = 0;
        self.frozen = false;
        self.probes = 0;
    }

    /// The UDP Mode begins. If packets were lost, the path did not mark in time, so the sender does not return
    /// to its full rate at once: it would lose as many packets again.
    fn leave(&mut self) {
        self.mode = Mode::Udp;
        if self.lossy {
            self.ceiling_pps = self.rate_pps.max(self.floor_pps());
        }
        self.lossy = false;
    }

    /// The newest report has this number. ACKs share their numbers with other reports, so in a long UDP Mode the
    /// numbers wrap without an ACK. Then each new ACK would seem older than the last one.
    pub fn on_report(&mut self, sequence: Seq) {
        self.last_ack = self.last_ack.filter(|last| last.offset(sequence) < ACK_MEMORY);
    }

    /// An ACK. Its sequence number orders the receiver's wishes: a late copy of an earlier ACK must not bring
    /// back a mode. The ACK that begins the Congestion Mode sets the first rate and cuts nothing.
    ///
    /// In a long queue ACKs come more often than once per RTT. So a sender cuts only once a packet that was sent
    /// after its last cut has arrived. An unmarked ACK shows that CWR has arrived, which was sent after the cut.
    pub fn on_ack(&mut self, sequence: Seq, obs: bool, ece: bool, progress: Progress) -> Reaction {
        if !self.last_ack.map_or(true, |last| last.before(sequence)) {
            return Reaction::Stale;
        }
        self.last_ack = Some(sequence);
        match (self.mode, obs) {
            (Mode::Udp, false) => Reaction::Same,
            (Mode::Congestion, false) => {
                self.leave();
                Reaction::Changed
            }
            (Mode::Udp, true) => {
                self.enter();
                self.count_ack(ece);
                self.last = progress;
                self.last_cut = Progress::default();
                Reaction::Changed
            }
            (Mode::Congestion, true) => {
                self.count_ack(ece);
                self.change_rate(ece, progress);
                Reaction::Same
            }
        }
    }

    /// A queue that already drains needs no further cut. One that still grows needs a cut to what the path
    /// delivers.
    fn change_rate(&mut self, ece: bool, progress: Progress) {
        let delivered = self.delivered_part(progress);
        if !ece {
            return self.grow(progress.now_us, delivered >= DELIVERED_PART);
        }
        if !self.has_seen_cut(progress) {
            return;
        }
        self.last_cut = progress;
        if delivered <= STEADY {
            self.cut(self.marked_share(), MAX_PART, (delivered * STEADY).min(1.0));
        }
    }

    /// Whether this ACK can show what the last cut did.
    fn has_seen_cut(&self, progress: Progress) -> bool {
        let waited_us = progress.now_us.saturating_sub(self.last_cut.now_us) as f64;
        progress.arrived > self.last_cut.sent || waited_us > CUT_RTTS * self.slow_rtt_us()
    }

    /// The packets that arrived since an earlier ACK, divided by those that were sent since then: below 1 the
    /// queue grew, above 1 it drained. A sender that stands still does not change it.
    fn delivered_part(&mut self, progress: Progress) -> f64 {
        let sent = progress.sent.saturating_sub(self.last.sent);
        let arrived = progress.arrived.saturating_sub(self.last.arrived);
        if sent.max(arrived) < LEAST_PACKETS {
            return 1.0;
        }
        let took_us = progress.now_us.saturating_sub(self.last.now_us).max(1) as f64;
        self.arrival_pps += ARRIVAL_WEIGHT * (arrived as f64 * 1e6 / took_us - self.arrival_pps);
        self.last = progress;
        ((arrived + 1) as f64) / ((sent + 1) as f64)
    }

    fn count_ack(&mut self, ece: bool) {
        if self.acks >= MEMORY_ACKS {
            self.acks /= 2;
            self.marked_acks /= 2;
        }
        self.acks += 1;
        self.marked_acks += u32::from(ece);
    }

    /// Equation (1), derived: Rate_data <- Rate_data (1 - n_ecn / 2), Rate_max <- Rate_max (1 - n_ecn / 8).
    ///
    /// It is smoother than halving, which it equals only if every ACK of the period was marked. The deep cut
    /// of Rate_data empties the queue; the small cut of Rate_max is what lasts. `delivered` multiplies both: the
    /// part of the rate that the path delivers, 1 if that is about all.
    fn cut(&mut self, share: f64, max_part: f64, delivered: f64) {
        if self.frozen {
            return;
        }
        self.frozen = true;
        self.probes = 0;
        let (floor, part) = (self.floor_pps(), share / 2.0);
        let max_part = if self.ecn_works { max_part } else { 1.0 };
        self.rate_max_pps = (self.rate_max_pps * (1.0 - part * max_part) * delivered).max(floor);
        self.rate_pps = (self.rate_pps * (1.0 - part) * delivered).max(floor);
    }

    /// Equation (2), derived: an unmarked ACK returns Rate_data to Rate_max. Once it is there, further
    /// unmarked ACKs raise both, up to the link's rate. `steady`: the queue does not grow.
    fn grow(&mut self, now: Micros, steady: bool) {
        let waited_us = now.saturating_sub(self.grown_us) as f64;
        self.grown_us = now;
        if self.rate_max_pps - self.rate_pps > self.rate_max_pps * REACHED_PART {
            self.rate_pps = self.rate_max_pps;
            return;
        }
        let step = if self.ecn_works { self.probe() } else { self.blind_step(waited_us, steady) };
        let limit = self.link_pps.max(self.floor_pps());
        self.rate_max_pps = (self.rate_max_pps + step.min(self.rate_max_pps * GROWTH_PART)).min(limit);
        self.rate_pps = self.rate_max_pps;
    }

    /// The i-th step after a cut is i units. A unit is 1 / 64 packet per RTT, or 1 / 512 of the link's rate if
    /// that is more. So the first steps add little to a queue, and bandwidth that others leave is taken up after
    /// some ten RTTs.
    fn probe(&mut self) -> f64 {
        self.probes += 1;
        let unit = (1e6 / self.rtt_us / PROBE_PARTS).max(self.link_pps / LINK_PARTS);
        unit * f64::from(self.probes)
    }

    /// Without marks the rate grows until packets are lost. It grows per RTT, and not per ACK, because ACKs
    /// come more often than once per RTT in a long queue.
    fn blind_step(&self, waited_us: f64, steady: bool) -> f64 {
        let part = self.rate_max_pps * BLIND_PART;
        let step = if steady { part.max(BLIND_PACKETS * self.floor_pps()) } else { part };
        step * (waited_us / self.slow_rtt_us()).min(1.0)
    }

    /// A NAK reported lost packets, the last of which has the position before `lost_end`. "If the sender gets
    /// NAK, it also slows down." Packets that were sent before the last cut show nothing new.
    ///
    /// Rate_max is cut as much, so that the rate does not return to where packets were lost. If ECN
    /// says nothing, a loss is the only signal. In the UDP Mode the ceiling waits a step before it grows again: a
    /// packet that is lost again begins no Congestion Mode, so it must not stop the growth until the next one.
    pub fn on_loss(&mut self, lost_end: u64, progress: Progress) {
        self.lossy = true;
        self.raised_us = progress.now_us;
        if self.mode == Mode::Congestion && lost_end > self.last_cut.sent {
            self.last_cut = progress;
            let share = if self.ecn_works { self.marked_share().max(0.5) } else { BLIND_SHARE };
            self.cut(share, 1.0, 1.0);
        }
    }

    /// A data packet was sent at its time: "it sets freeze as false".
    pub fn on_data_sent(&mut self) {
        self.frozen = false;
    }

    /// A timeout without feedback.
    pub fn on_silence(&mut self) {
        self.halvings = (self.halvings + 1).min(MAX_HALVINGS);
    }

    /// Feedback arrived. Each report doubles a rate that silence halved. In the UDP Mode the ceiling grows.
    pub fn on_feedback(&mut self, now: Micros) {
        self.halvings = self.halvings.saturating_sub(1);
        let step_us = CEILING_STEP_US.max(self.rtt_us as Micros);
        if self.mode == Mode::Udp && now >= self.raised_us.saturating_add(step_us) {
            self.raised_us = now;
            self.ceiling_pps *= 1.0 + CEILING_GROWTH;
            if self.ceiling_pps > self.link_pps.max(self.limit_pps) {
                self.ceiling_pps = f64::INFINITY;
            }
        }
    }
}

/// What the inequality for th_max needs to know.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SwitchSetting {
    /// Max_qsize: packets that the switch can queue.
    pub max_queue_packets: f64,
    /// Interval: microseconds between two packets of a sender in the UDP Mode.
    pub interval_us: f64,
    /// Delay: microseconds from the switch to the receiver.
    pub delay_us: f64,
    /// RTT_idle in microseconds.
    pub rtt_idle_us: f64,
    /// N: the expected largest number of senders.
    pub senders: f64,
    /// The bottleneck's packets per microsecond.
    pub link_packets_per_us: f64,
}

/// The largest th_max with which the first reaction to a mark comes before the queue is full (derived).
///
/// N senders enqueue N / Interval packets per microsecond, the link removes C. A packet that is marked at
/// th_max waits th_max / C in the queue; then Delay + RTT_idle pass until the senders' slower packets reach
/// the switch. So
///
///   th_max + (N / Interval - C) (th_max / C + Delay + RTT_idle) <= Max_qsize
///
/// A negative result means that no setting protects this queue.
pub fn largest_th_max(setting: &SwitchSetting) -> f64 {
    let arrivals = setting.senders / setting.interval_us;
    let excess = (arrivals - setting.link_packets_per_us).max(0.0);
    let room = setting.max_queue_packets - excess * (setting.delay_us + setting.rtt_idle_us);
    room / (1.0 + excess / setting.link_packets_per_us)
}
