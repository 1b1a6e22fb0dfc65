//! Packet protection for tests: a tag of SipHash and a counter with a window of replays. It encrypts nothing.

use std::hash::Hasher;

use dcudp_proto::{Protect, ProtectError, ProtectFactory, Stage};
use siphasher::sip::SipHasher24;

/// A factory with a key.
pub struct Keys(pub u8);

struct Tagged {
    sealing: u64,
    opening: u64,
    sent: u64,
    highest: u64,
    seen: u128,
}

const OVERHEAD: usize = 16;

fn tag(key: u64, count: u64, header: &[u8], payload: &[u8]) -> [u8; 8] {
    let mut hasher = SipHasher24::new_with_keys(key, count);
    hasher.write(&(header.len() as u64).to_be_bytes());
    hasher.write(header);
    hasher.write(payload);
    hasher.finish().to_be_bytes()
}

impl Protect for Tagged {
    fn seal(&mut self, header: &[u8], payload: &mut Vec<u8>) {
        self.sent += 1;
        let tag = tag(self.sealing, self.sent, header, payload);
        payload.extend_from_slice(&self.sent.to_be_bytes());
        payload.extend_from_slice(&tag);
    }

    fn open(&mut self, header: &[u8], payload: &mut Vec<u8>) -> Result<(), ProtectError> {
        let split = payload.len().checked_sub(OVERHEAD).ok_or(ProtectError::Forged)?;
        let trailer = payload.split_off(split);
        let mut count = [0; 8];
        count.copy_from_slice(&trailer[..8]);
        let count = u64::from_be_bytes(count);
        if tag(self.opening, count, header, payload) != trailer[8..] {
            return Err(ProtectError::Forged);
        }
        if count > self.highest {
            let shift = (count - self.highest).min(128) as u32;
            self.seen = self.seen.checked_shl(shift).unwrap_or(0) | 1;
            self.highest = count;
            return Ok(());
        }
        let bit = 1u128.checked_shl((self.highest - count).min(128) as u32).ok_or(ProtectError::Replayed)?;
        if self.seen & bit != 0 {
            return Err(ProtectError::Replayed);
        }
        self.seen |= bit;
        Ok(())
    }

    fn overhead(&self) -> usize {
        OVERHEAD
    }
}

impl ProtectFactory for Keys {
    fn for_connection(
        &self,
        stage: Stage,
        initiator: bool,
        local_id: u32,
        peer_id: u32,
        nonces: [&[u8; 16]; 2],
    ) -> Box<dyn Protect + Send> {
        let (first, second) = if initiator { (local_id, peer_id) } else { (peer_id, local_id) };
        let direction = |purpose: u8| {
            let mut hasher = SipHasher24::new_with_keys(u64::from(self.0), 0);
            hasher.write(&[purpose, u8::from(stage == Stage::Traffic)]);
            hasher.write(&first.to_be_bytes());
            hasher.write(&second.to_be_bytes());
            nonces.iter().for_each(|nonce| hasher.write(*nonce));
            hasher.finish()
        };
        let (there, back) = (direction(1), direction(2));
        let (sealing, opening) = if initiator { (there, back) } else { (back, there) };
        Box::new(Tagged { sealing, opening, sent: 0, highest: 0, seen: 0 })
    }
}
