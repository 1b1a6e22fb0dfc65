//! Watches whether a connection's data still arrives.

use dcudp_proto::Statistics;

/// How many looks without an acknowledgement show that large packets do not arrive.
const LOOKS: u32 = 3;

/// What the last look saw.
#[derive(Debug, Default)]
pub struct Watch {
    acknowledged: u64,
    retransmitted: u64,
    looks: u32,
}

impl Watch {
    /// Look again. Returns whether packets were repeated at each of the last looks, and none was acknowledged.
    pub fn is_stuck(&mut self, now: &Statistics) -> bool {
        let repeats = now.retransmitted > self.retransmitted || now.timeouts > 0;
        let stands = now.send_buffer_bytes > 0 && now.acknowledged == self.acknowledged && repeats;
        self.looks = if stands { self.looks + 1 } else { 0 };
        self.acknowledged = now.acknowledged;
        self.retransmitted = now.retransmitted;
        self.looks >= LOOKS
    }
}
