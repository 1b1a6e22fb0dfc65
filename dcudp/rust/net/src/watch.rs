//! Watches whether a connection's data still arrives.

use dcudp_proto::Statistics;

/// How many looks that find repeated packets, and no acknowledgement, show that large packets do not arrive.
const LOOKS: u32 = 3;

/// What the last look saw.
#[derive(Debug, Default)]
pub struct Watch {
    acknowledged: u64,
    retransmitted: u64,
    looks: u32,
}

impl Watch {
    /// Look again. Returns whether packets were repeated before several looks, and none was acknowledged.
    ///
    /// Packets are repeated only if a report asks for them. So a peer that is gone or does not read is not taken
    /// for a path on which only small packets arrive.
    pub fn is_stuck(&mut self, now: &Statistics) -> bool {
        if now.send_buffer_bytes == 0 || now.acknowledged != self.acknowledged {
            self.looks = 0;
        } else if now.retransmitted > self.retransmitted {
            self.looks += 1;
        }
        self.acknowledged = now.acknowledged;
        self.retransmitted = now.retransmitted;
        self.looks >= LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcudp_proto::Mode;

    fn statistics(acknowledged: u64, retransmitted: u64, timeouts: u64) -> Statistics {
        Statistics {
            mode: Mode::Udp,
            rate_pps: 1e5,
            rtt_us: 100,
            rtt_idle_us: 100,
            mtu_bytes: 1_452,
            peer_window_packets: 0,
            send_buffer_bytes: 1_000_000,
            receive_buffer_bytes: 0,
            data_sent: 1_000 + retransmitted,
            retransmitted,
            acknowledged,
            data_received: 0,
            duplicates: 0,
            lost: retransmitted,
            ce_received: 0,
            control_sent: 0,
            dropped: 0,
            congestion_entries: 0,
            timeouts,
            ecn_bleached: false,
        }
    }

    #[test]
    fn packets_that_are_repeated_and_do_not_arrive_show_a_smaller_mtu() {
        let mut watch = Watch::default();
        let stuck: Vec<bool> =
            [0, 5, 9, 9, 12].iter().map(|repeated| watch.is_stuck(&statistics(7, *repeated, 0))).collect();
        assert_eq!(stuck, [false, false, false, false, true]);
        assert!(!watch.is_stuck(&statistics(8, 20, 0)));
    }

    #[test]
    fn a_peer_that_does_not_read_or_is_gone_does_not_show_one() {
        let mut watch = Watch::default();
        assert!(!watch.is_stuck(&statistics(7, 3, 0)));
        assert!(!(0..10).any(|_| watch.is_stuck(&statistics(7, 3, 1))), "one timeout, then a closed window");
        assert!(!(1..10).any(|count| watch.is_stuck(&statistics(7, 4, count))), "timeouts without an answer");
    }
}
