//! Packet protection: ChaCha20-Poly1305 (RFC 8439) with keys of one connection and one direction.
//!
//! The keys come from the pre-shared key by HKDF-SHA-256 (RFC 5869). The salt is both random nonces of the
//! handshake, so two connections never share a key. A sealed packet ends with an 8-byte packet number and a
//! 16-byte tag. The packet number is the AEAD's nonce. It counts every sealed packet, so a retransmission has a
//! number of its own; DCUDP's own sequence numbers would repeat.
//!
//! The header is authenticated and readable. A packet whose number was received before, or is older than the
//! window, is refused (RFC 4303, section 3.4.3). Not implemented: new keys within a connection, and forward
//! secrecy. A person who learns the pre-shared key can read recorded connections.

use dcudp_proto::protect::NONCE_BYTES;
use dcudp_proto::{Protect, ProtectError, ProtectFactory, Stage};
use ring::aead::{Aad, LessSafeKey, Nonce, Tag, UnboundKey, CHACHA20_POLY1305};
use ring::hkdf::{Salt, HKDF_SHA256};

use crate::key::Key;

const NUMBER_BYTES: usize = 8;
const TAG_BYTES: usize = 16;
/// The bytes by which protection lengthens a packet.
pub const OVERHEAD_BYTES: usize = NUMBER_BYTES + TAG_BYTES;
/// How many packet numbers below the highest may still arrive: more than a burst of UDP_SEGMENT on two paths.
const WINDOW: u64 = 2_048;
const WORD_BITS: u64 = 64;

/// Makes the protection of each connection from one pre-shared key.
pub struct PresharedKey(pub Key);

/// The two directions of a connection, which have keys of their own.
struct Directions {
    from_initiator: LessSafeKey,
    from_responder: LessSafeKey,
}

fn derive(key: &Key, stage: Stage, ids: [u32; 2], nonces: [&[u8; NONCE_BYTES]; 2]) -> Directions {
    let salt = nonces.map(|nonce| &nonce[..]).concat();
    let secret = Salt::new(HKDF_SHA256, &salt).extract(key.bytes());
    let purpose: &[u8] = match stage {
        Stage::Confirm => b"confirm ",
        Stage::Traffic => b"traffic ",
    };
    let ids = ids.map(u32::to_be_bytes).concat();
    let cipher = |direction: &[u8]| {
        let info = [b"weir dcudp v1 ", purpose, direction, &ids];
        let key = secret.expand(&info, &CHACHA20_POLY1305).expect("HKDF-SHA-256 gives up to 8160 bytes");
        LessSafeKey::new(UnboundKey::from(key))
    };
    Directions { from_initiator: cipher(b"initiator "), from_responder: cipher(b"responder ") }
}

impl ProtectFactory for PresharedKey {
    fn for_connection(
        &self,
        stage: Stage,
        initiator: bool,
        local_id: u32,
        peer_id: u32,
        nonces: [&[u8; NONCE_BYTES]; 2],
    ) -> Box<dyn Protect + Send> {
        let ids = if initiator { [local_id, peer_id] } else { [peer_id, local_id] };
        let keys = derive(&self.0, stage, ids, nonces);
        let (sending, receiving) = if initiator {
            (keys.from_initiator, keys.from_responder)
        } else {
            (keys.from_responder, keys.from_initiator)
        };
        Box::new(Sealed { sending, receiving, next_number: 0, window: ReplayWindow::new() })
    }
}

/// The protection of one connection. The keys are "less safe" because their nonces come from outside `ring`.
struct Sealed {
    sending: LessSafeKey,
    receiving: LessSafeKey,
    next_number: u64,
    window: ReplayWindow,
}

impl Protect for Sealed {
    fn seal(&mut self, header: &[u8], payload: &mut Vec<u8>) {
        let number = self.next_number;
        self.next_number += 1;
        let tag = self
            .sending
            .seal_in_place_separate_tag(nonce(number), Aad::from(header), payload)
            .expect("a packet is shorter than 256 GiB");
        payload.extend_from_slice(&number.to_be_bytes());
        payload.extend_from_slice(tag.as_ref());
    }

    fn open(&mut self, header: &[u8], payload: &mut Vec<u8>) -> Result<(), ProtectError> {
        let length = payload.len().checked_sub(OVERHEAD_BYTES).ok_or(ProtectError::Forged)?;
        let mut number = [0; NUMBER_BYTES];
        number.copy_from_slice(&payload[length..length + NUMBER_BYTES]);
        let number = u64::from_be_bytes(number);
        if number == u64::MAX {
            return Err(ProtectError::Forged);
        }
        if !self.window.is_new(number) {
            return Err(ProtectError::Replayed);
        }
        let tag = Tag::try_from(&payload[length + NUMBER_BYTES..]).map_err(|_| ProtectError::Forged)?;
        payload.truncate(length);
        self.receiving
            .open_in_place_separate_tag(nonce(number), Aad::from(header), tag, payload, 0..)
            .map_err(|_| ProtectError::Forged)?;
        self.window.add(number);
        Ok(())
    }

    fn overhead(&self) -> usize {
        OVERHEAD_BYTES
    }
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Which packet numbers have been received.
struct ReplayWindow {
    /// One above the highest number.
    end: u64,
    bits: [u64; (WINDOW / WORD_BITS) as usize],
}

impl ReplayWindow {
    fn new() -> ReplayWindow {
        ReplayWindow { end: 0, bits: [0; (WINDOW / WORD_BITS) as usize] }
    }

    fn place(number: u64) -> (usize, u64) {
        ((number / WORD_BITS % (WINDOW / WORD_BITS)) as usize, 1 << (number % WORD_BITS))
    }

    /// Whether a number may be received.
    fn is_new(&self, number: u64) -> bool {
        let (word, bit) = ReplayWindow::place(number);
        // The oldest word is only partly within the window, so the window counts whole words.
        number >= self.end
            || (number / WORD_BITS + WINDOW / WORD_BITS > (self.end - 1) / WORD_BITS
                && self.bits[word] & bit == 0)
    }

    fn add(&mut self, number: u64) {
        if number >= self.end {
            let newest = self.end.checked_sub(1).map_or(0, |last| last / WORD_BITS + 1);
            let words = WINDOW / WORD_BITS;
            for passed in newest.max((number / WORD_BITS + 1).saturating_sub(words))..=number / WORD_BITS {
                self.bits[(passed % words) as usize] = 0;
            }
            self.end = number + 1;
        }
        let (word, bit) = ReplayWindow::place(number);
        self.bits[word] |= bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KEY_BYTES;

    #[test]
    fn each_number_is_new_once() {
        let mut window = ReplayWindow::new();
        for number in [0, 1, 5, 3, 64, 63, 4_000, 3_999, 100_000, 99_000] {
            assert!(window.is_new(number), "{number}");
            window.add(number);
            assert!(!window.is_new(number), "{number}");
        }
    }

    #[test]
    fn a_number_below_the_window_is_not_new() {
        let mut window = ReplayWindow::new();
        window.add(10 * WINDOW);
        assert!(!window.is_new(0));
        assert!(!window.is_new(9 * WINDOW - 1));
        assert!(window.is_new(9 * WINDOW + WORD_BITS));
    }

    #[test]
    fn random_orders_agree_with_a_set() {
        let mut window = ReplayWindow::new();
        let mut seen = std::collections::HashSet::new();
        let (mut state, mut highest) = (1u64, 0u64);
        for _ in 0..100_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = (highest + (state >> 33) % 100).saturating_sub((state >> 40) % 1_500);
            if highest.saturating_sub(number) < WINDOW - WORD_BITS {
                assert_eq!(window.is_new(number), seen.insert(number));
            }
            if window.is_new(number) {
                window.add(number);
                highest = highest.max(number);
            }
        }
    }

    const NONCES: [&[u8; NONCE_BYTES]; 2] = [&[1; NONCE_BYTES], &[2; NONCE_BYTES]];

    fn ends(
        initiator: [u8; KEY_BYTES],
        responder: [u8; KEY_BYTES],
    ) -> (Box<dyn Protect + Send>, Box<dyn Protect + Send>) {
        let one = PresharedKey(Key::from(initiator)).for_connection(Stage::Traffic, true, 5, 6, NONCES);
        let other = PresharedKey(Key::from(responder)).for_connection(Stage::Traffic, false, 6, 5, NONCES);
        (one, other)
    }

    fn sealed(from: &mut Box<dyn Protect + Send>) -> Vec<u8> {
        let mut payload = b"payload".to_vec();
        from.seal(b"header", &mut payload);
        payload
    }

    #[test]
    fn both_directions_open_what_the_other_end_sealed() {
        let (mut one, mut other) = ends([9; KEY_BYTES], [9; KEY_BYTES]);
        for _ in 0..3 {
            let mut there = sealed(&mut one);
            assert_eq!(there.len(), 7 + one.overhead());
            assert!(other.open(b"header", &mut there).is_ok());
            assert_eq!(there, b"payload");
            let mut back = sealed(&mut other);
            assert!(one.open(b"header", &mut back).is_ok());
        }
    }

    #[test]
    fn another_key_stage_nonce_or_id_opens_nothing() {
        let factory = PresharedKey(Key::from([9; KEY_BYTES]));
        let other_nonces = [NONCES[1], NONCES[0]];
        let wrong = [
            ends([0; KEY_BYTES], [8; KEY_BYTES]).1,
            factory.for_connection(Stage::Confirm, false, 6, 5, NONCES),
            factory.for_connection(Stage::Traffic, false, 6, 5, other_nonces),
            factory.for_connection(Stage::Traffic, false, 7, 5, NONCES),
            factory.for_connection(Stage::Traffic, true, 5, 6, NONCES),
        ];
        for mut end in wrong {
            let mut packet = sealed(&mut ends([9; KEY_BYTES], [9; KEY_BYTES]).0);
            assert_eq!(end.open(b"header", &mut packet), Err(ProtectError::Forged));
        }
    }

    #[test]
    fn a_changed_bit_anywhere_is_a_forgery() {
        let (mut one, mut other) = ends([9; KEY_BYTES], [9; KEY_BYTES]);
        let packet = sealed(&mut one);
        for bit in 0..packet.len() * 8 {
            let mut changed = packet.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(other.open(b"header", &mut changed), Err(ProtectError::Forged), "bit {bit}");
        }
        assert_eq!(other.open(b"Header", &mut packet.clone()), Err(ProtectError::Forged));
        for length in 0..packet.len() {
            assert_eq!(other.open(b"header", &mut packet[..length].to_vec()), Err(ProtectError::Forged));
        }
        assert!(other.open(b"header", &mut packet.clone()).is_ok());
    }

    #[test]
    fn a_packet_is_opened_once() {
        let (mut one, mut other) = ends([9; KEY_BYTES], [9; KEY_BYTES]);
        let packets: Vec<_> = (0..10).map(|_| sealed(&mut one)).collect();
        for packet in packets.iter().rev() {
            assert!(other.open(b"header", &mut packet.clone()).is_ok());
            assert_eq!(other.open(b"header", &mut packet.clone()), Err(ProtectError::Replayed));
        }
    }

    #[test]
    fn the_bytes_of_a_sealed_packet_do_not_change() {
        let (mut one, _) = ends([9; KEY_BYTES], [9; KEY_BYTES]);
        let hex: String = sealed(&mut one).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "9684fb30fd33d800000000000000000be90b98f0bb62c4b41e291befc23b81");
    }
}
