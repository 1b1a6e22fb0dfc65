//! 31-bit sequence numbers that wrap.

/// The largest sequence number, 2^31 - 1.
pub const MASK: u32 = 0x7fff_ffff;

/// A 31-bit sequence number. Comparison is by `offset`, because the numbers wrap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Seq(u32);

impl Seq {
    /// The low 31 bits of `value`.
    pub fn new(value: u32) -> Seq {
        Seq(value & MASK)
    }

    /// The number, at most 2^31 - 1.
    pub fn value(self) -> u32 {
        self.0
    }

    /// The number `n` steps later.
    #[must_use]
    pub fn plus(self, n: u32) -> Seq {
        Seq(self.0.wrapping_add(n) & MASK)
    }

    /// The signed distance from `self` to `other`, from -2^30 to 2^30 - 1. It is positive if `other` is
    /// later.
    pub fn offset(self, other: Seq) -> i32 {
        // The shift moves bit 30, the sign of a 31-bit difference, into bit 31.
        ((other.0.wrapping_sub(self.0) << 1) as i32) >> 1
    }

    /// True if `self` is earlier than `other`.
    pub fn before(self, other: Seq) -> bool {
        self.offset(other) > 0
    }
}
