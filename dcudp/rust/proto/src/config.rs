//! The settings of an endpoint, and their limits.

use std::error::Error;
use std::fmt;

use crate::Micros;

/// The settings of an endpoint. Times are in microseconds, rates in bits per second of UDP payload.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The largest UDP payload that this host sends. The handshake proves that the path carries it.
    pub mtu_bytes: usize,
    /// C of the paper: the capacity of the bottleneck link. The first rate in the Congestion Mode.
    pub link_rate_bps: u64,
    /// No connection sends faster, in any mode.
    pub max_rate_bps: u64,
    /// K of the paper: the size of the windows of getDelayTrend and getEcnTrend.
    pub trend_window: usize,
    /// An ACK of the Congestion Mode asks for an ACK2 once so many data packets came since the last ACK that
    /// asked. 0: each ACK asks, as in the paper. An ACK2 takes the way of the data.
    pub packets_per_ack2: u32,
    /// Alpha of the paper: the weight of the newest RTT.
    pub alpha: f64,
    /// Beta of the paper: the ACK interval after condition 1, in RTT_idle.
    pub beta: f64,
    /// Theta_ecn of the paper's condition 1.
    pub theta_ecn: f64,
    /// Theta_RTT of the paper's condition 1.
    pub theta_rtt: f64,
    /// A gap is a loss once this many later packets arrived. 0 is the paper's "at once".
    pub reorder_packets: u32,
    /// If true, messages are delivered in the order in which they were sent; otherwise as they are complete.
    pub ordered: bool,
    /// Bytes of messages that one connection may hold back for sending and repairing.
    pub send_buffer_bytes: usize,
    /// Packets that one connection may hold for the application and behind gaps.
    pub receive_window_packets: u32,
    /// Bytes of received data over all connections. Beyond it one connection at a time may go on, so
    /// that its message becomes complete.
    pub total_receive_bytes: usize,
    /// Connections, half-open ones included.
    pub max_connections: usize,
    /// While data arrives in UDP Mode, a keep-alive reports at least this often.
    pub report_interval_us: Micros,
    /// Without data, a keep-alive is sent this often.
    pub idle_interval_us: Micros,
    /// The least time without feedback after which a sender halves its rate and asks for a report.
    pub min_timeout_us: Micros,
    /// A connection ends with an error after this time without any packet of the peer.
    pub dead_after_us: Micros,
    /// A handshake ends with an error after this time.
    pub handshake_timeout_us: Micros,
    /// `close` waits at most this long for the acknowledgement of data.
    pub linger_us: Micros,
    /// `poll_transmit` hands out packets at most this long before their sending time.
    pub pacing_ahead_us: Micros,
    /// The first data sequence number, for tests of the wrap; None chooses it at random.
    pub initial_sequence: Option<u32>,
}

/// A setting outside its limits. The text names the setting, its value and the limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(pub(crate) String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ConfigError {}

/// The least `mtu_bytes`, and the size to which a handshake falls back.
pub const BASE_MTU_BYTES: usize = 1200;

impl Default for Config {
    fn default() -> Self {
        Config {
            mtu_bytes: 1452,
            link_rate_bps: 1_000_000_000,
            max_rate_bps: 1_000_000_000,
            trend_window: 16,
            packets_per_ack2: 8,
            alpha: 0.125,
            beta: 2.0,
            theta_ecn: 0.5,
            theta_rtt: 0.2,
            reorder_packets: 3,
            ordered: true,
            send_buffer_bytes: 8 << 20,
            receive_window_packets: 8192,
            total_receive_bytes: 256 << 20,
            max_connections: 16_384,
            report_interval_us: 10_000,
            idle_interval_us: 1_000_000,
            min_timeout_us: 20_000,
            dead_after_us: 60_000_000,
            handshake_timeout_us: 5_000_000,
            linger_us: 60_000_000,
            pacing_ahead_us: 0,
            initial_sequence: None,
        }
    }
}

fn within<T: PartialOrd + fmt::Display + Copy>(
    name: &str,
    value: T,
    low: T,
    high: T,
) -> Result<(), ConfigError> {
    if value >= low && value <= high {
        return Ok(());
    }
    Err(ConfigError(format!("{name} is {value}: choose a value from {low} to {high}")))
}

impl Config {
    /// Checks each setting against its limits.
    pub fn check(&self) -> Result<(), ConfigError> {
        within("mtu_bytes", self.mtu_bytes, BASE_MTU_BYTES, 65_507)?;
        within("link_rate_bps", self.link_rate_bps, 100_000, 1_000_000_000_000)?;
        within("max_rate_bps", self.max_rate_bps, 100_000, 1_000_000_000_000)?;
        within("trend_window", self.trend_window, 2, 1024)?;
        within("alpha", self.alpha, 0.001, 1.0)?;
        within("beta", self.beta, 1.0, 1000.0)?;
        within("theta_ecn", self.theta_ecn, 0.0, 1.0)?;
        within("theta_rtt", self.theta_rtt, 0.0, 1.0)?;
        within("reorder_packets", self.reorder_packets, 0, 1000)?;
        within("send_buffer_bytes", self.send_buffer_bytes, 1 << 16, 1 << 32)?;
        within("receive_window_packets", self.receive_window_packets, 16, 1 << 20)?;
        within("total_receive_bytes", self.total_receive_bytes, 1 << 16, 1 << 40)?;
        within("max_connections", self.max_connections, 1, 1 << 20)?;
        within("report_interval_us", self.report_interval_us, 100, 1_000_000)?;
        within("idle_interval_us", self.idle_interval_us, 10_000, 60_000_000)?;
        within("min_timeout_us", self.min_timeout_us, 1_000, 10_000_000)?;
        within("dead_after_us", self.dead_after_us, 100_000, 3_600_000_000)?;
        within("handshake_timeout_us", self.handshake_timeout_us, 10_000, 600_000_000)?;
        within("linger_us", self.linger_us, 0, 3_600_000_000)?;
        within("pacing_ahead_us", self.pacing_ahead_us, 0, 100_000)?;
        within("initial_sequence", self.initial_sequence.unwrap_or(0), 0, crate::seq::MASK)
    }
}
