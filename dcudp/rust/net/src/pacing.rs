//! How late timers run: the error of pacing in user space.

use dcudp_proto::Micros;

const BUCKETS: usize = 24;

/// Lateness of timers: when the event loop ran one, less its time.
///
/// Bucket 0 holds 0 us and bucket n from 2^(n-1) to 2^n - 1 us. The last bucket has no upper limit.
#[derive(Debug, Clone, Default)]
pub struct Lateness {
    buckets: [u64; BUCKETS],
    count: u64,
    sum_us: u64,
    max_us: u64,
}

impl Lateness {
    /// Count the timer that is due at `due_us`, if it fell due in a wait from `asked_us` to `now_us`.
    pub fn add(&mut self, due_us: Micros, asked_us: Micros, now_us: Micros) {
        if due_us < asked_us || due_us > now_us {
            return;
        }
        let late_us = now_us - due_us;
        let bucket = (64 - late_us.leading_zeros() as usize).min(BUCKETS - 1);
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum_us += late_us;
        self.max_us = self.max_us.max(late_us);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn mean_us(&self) -> u64 {
        self.sum_us.checked_div(self.count).unwrap_or(0)
    }

    pub fn max_us(&self) -> u64 {
        self.max_us
    }

    /// A bound that 99 of 100 timers keep: the upper end of a bucket, so at most twice the percentile.
    pub fn p99_us(&self) -> u64 {
        let wanted = self.count - self.count / 100;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return self.max_us.min((1 << bucket) - 1);
            }
        }
        self.max_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_has_a_mean_a_maximum_and_a_percentile() {
        let mut late = Lateness::default();
        assert_eq!((late.mean_us(), late.p99_us(), late.max_us()), (0, 0, 0));
        for _ in 0..99 {
            late.add(1_000, 950, 1_010);
        }
        late.add(1_000, 950, 2_000);
        assert_eq!((late.count(), late.mean_us(), late.p99_us(), late.max_us()), (100, 19, 15, 1_000));
    }

    #[test]
    fn only_a_timer_that_fell_due_in_the_wait_is_counted() {
        let mut late = Lateness::default();
        late.add(0, 100, 500);
        late.add(600, 100, 500);
        assert_eq!(late.count(), 0);
        late.add(500, 100, 500);
        assert_eq!((late.count(), late.max_us(), late.p99_us()), (1, 0, 0));
    }
}
