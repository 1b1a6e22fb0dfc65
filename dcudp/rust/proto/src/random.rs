//! Random numbers and cookies from a secret seed: SipHash-2-4 with a 128-bit result as a keyed function.

use std::net::SocketAddr;

use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;

use crate::Micros;

/// How long a cookie is accepted.
pub const COOKIE_LIFE_US: Micros = 10_000_000;

/// Numbers that cannot be predicted without the seed.
pub struct Random {
    key: [u8; 16],
    count: u64,
}

impl Random {
    /// `key` must be secret, and different for each endpoint.
    pub fn new(key: [u8; 16]) -> Random {
        Random { key, count: 0 }
    }

    /// The next 16 bytes.
    pub fn bytes(&mut self) -> [u8; 16] {
        self.count += 1;
        hash(&self.key, &[&self.count.to_be_bytes()])
    }

    /// The next number.
    pub fn word(&mut self) -> u32 {
        let bytes = self.bytes();
        u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

/// What a cookie is valid for.
#[derive(Debug, Clone, Copy)]
pub struct CookieFor {
    /// The initiator's address.
    pub peer: SocketAddr,
    /// The initiator's number of the connection.
    pub id: u32,
    /// The initiator's nonce.
    pub nonce: [u8; 16],
    /// The responder's time.
    pub time_us: u64,
}

/// Makes and checks cookies without state.
pub struct CookieJar {
    key: [u8; 16],
}

impl CookieJar {
    /// `key` must be secret.
    pub fn new(key: [u8; 16]) -> CookieJar {
        CookieJar { key }
    }

    /// The cookie's code, and the responder's nonce that belongs to it.
    pub fn make(&self, subject: &CookieFor) -> ([u8; 16], [u8; 16]) {
        (self.code(b"cookie", subject), self.code(b"nonce", subject))
    }

    /// True if this endpoint made the cookie for exactly this subject, not more than `COOKIE_LIFE_US` ago.
    pub fn check(&self, now: Micros, subject: &CookieFor, cookie: &[u8; 16]) -> bool {
        let expected = self.code(b"cookie", subject);
        // All bytes are compared, so the time does not depend on how many are right.
        let difference = expected.iter().zip(cookie).fold(0, |sum, (a, b)| sum | (a ^ b));
        difference == 0 && subject.time_us <= now && now - subject.time_us <= COOKIE_LIFE_US
    }

    fn code(&self, purpose: &[u8], subject: &CookieFor) -> [u8; 16] {
        let address = match subject.peer {
            SocketAddr::V4(peer) => peer.ip().to_ipv6_mapped().octets(),
            SocketAddr::V6(peer) => peer.ip().octets(),
        };
        let port = subject.peer.port().to_be_bytes();
        let (id, time) = (subject.id.to_be_bytes(), subject.time_us.to_be_bytes());
        hash(&self.key, &[&address, &port, &id, &time, &subject.nonce, purpose])
    }
}

fn hash(key: &[u8; 16], parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = SipHasher24::new_with_key(key);
    for part in parts {
        hasher.write(part);
    }
    hasher.finish128().as_bytes()
}
