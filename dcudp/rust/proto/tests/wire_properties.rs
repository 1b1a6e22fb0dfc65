//! Properties of the codec: every packet survives a round trip, and no bytes make a decoder panic.

mod common;

use common::Rng;
use dcudp_proto::seq::Seq;
use dcudp_proto::wire::{
    decode_obs_change, Bits, ControlHeader, ControlType, DataHeader, Handshake, Header, LossRange, Refusal,
    Report, Shutdown, Step, WireError, HANDSHAKE_BYTES, HEADER_BYTES, REPORT_BYTES,
};

const CASES: usize = 20_000;

fn seq(rng: &mut Rng) -> Seq {
    // Half of them near the wrap.
    let value = rng.word() as u32;
    Seq::new(if rng.chance(0.5) { (value % 64).wrapping_sub(32) } else { value })
}

fn bits(rng: &mut Rng) -> Bits {
    Bits { obs: rng.chance(0.5), cwr: rng.chance(0.5), ece: rng.chance(0.5) }
}

fn header(rng: &mut Rng) -> Header {
    let (timestamp_us, connection) = (rng.word() as u32, rng.word() as u32);
    if rng.chance(0.5) {
        return Header::Data(DataHeader {
            sequence: seq(rng),
            bits: bits(rng),
            first: rng.chance(0.5),
            last: rng.chance(0.5),
            ordered: rng.chance(0.5),
            message: rng.below(1 << 26) as u32,
            timestamp_us,
            connection,
        });
    }
    let kinds = [
        ControlType::Handshake,
        ControlType::KeepAlive,
        ControlType::Ack,
        ControlType::Nak,
        ControlType::Unknown(4),
        ControlType::Shutdown,
        ControlType::Ack2,
        ControlType::ObsChange,
        ControlType::Unknown(31),
    ];
    Header::Control(ControlHeader {
        sequence: seq(rng),
        kind: kinds[rng.below(kinds.len() as u64) as usize],
        bits: bits(rng),
        version: rng.below(16) as u8,
        timestamp_us,
        connection,
    })
}

fn report(rng: &mut Rng) -> Report {
    let mut losses = Vec::new();
    let mut at = seq(rng);
    for _ in 0..rng.below(40) {
        let first = at.plus(1 + rng.below(100) as u32);
        let last = first.plus(if rng.chance(0.5) { 0 } else { rng.below(100) as u32 });
        losses.push(LossRange { first, last });
        at = last;
    }
    Report {
        next_expected: seq(rng),
        end: seq(rng),
        window_end: seq(rng),
        next_sequence: seq(rng),
        rtt_us: rng.word() as u32,
        reply: rng.chance(0.5),
        no_ecn: rng.chance(0.5),
        no_ack2: rng.chance(0.5),
        losses,
    }
}

fn handshake(rng: &mut Rng) -> Handshake {
    let steps = [Step::Request, Step::Cookie, Step::Confirm, Step::Accept, Step::Refuse];
    let refusals = [Refusal::None, Refusal::Version, Refusal::Authentication, Refusal::Busy];
    let mut array = || {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&rng.bytes(16));
        bytes
    };
    let (initiator_nonce, responder_nonce, cookie) = (array(), array(), array());
    Handshake {
        step: steps[rng.below(5) as usize],
        refusal: refusals[rng.below(4) as usize],
        id: rng.word() as u32,
        initial_sequence: seq(rng),
        window_packets: rng.word() as u32,
        initiator_nonce,
        responder_nonce,
        cookie_time_us: rng.word(),
        cookie,
    }
}

#[test]
fn headers_survive_a_round_trip() {
    let mut rng = Rng::new(1);
    for _ in 0..CASES {
        let header = header(&mut rng);
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }
}

#[test]
fn bodies_survive_a_round_trip_and_ignore_what_follows() {
    let mut rng = Rng::new(2);
    for _ in 0..CASES {
        let (report, handshake) = (report(&mut rng), handshake(&mut rng));
        let (mut first, mut second) = (Vec::new(), Vec::new());
        report.encode(&mut first);
        handshake.encode(&mut second);
        assert_eq!(second.len(), HANDSHAKE_BYTES);
        let length = rng.below(9) as usize;
        let extension = rng.bytes(length);
        first.extend_from_slice(&extension);
        second.extend_from_slice(&extension);
        assert_eq!(Report::decode(&first), Ok(report));
        assert_eq!(Handshake::decode(&second), Ok(handshake));
    }
}

#[test]
fn every_truncation_is_an_error() {
    let mut rng = Rng::new(3);
    for _ in 0..200 {
        let header = header(&mut rng).encode();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        report(&mut rng).encode(&mut first);
        handshake(&mut rng).encode(&mut second);
        for length in 0..HEADER_BYTES {
            assert_eq!(Header::decode(&header[..length]), Err(WireError::Short));
        }
        for length in 0..first.len() {
            assert_eq!(Report::decode(&first[..length]), Err(WireError::Short));
        }
        for length in 0..HANDSHAKE_BYTES {
            assert_eq!(Handshake::decode(&second[..length]), Err(WireError::Short));
        }
    }
}

#[test]
fn arbitrary_bytes_never_panic_and_what_they_decode_to_is_canonical() {
    let mut rng = Rng::new(4);
    let mut decoded = 0;
    for _ in 0..CASES * 10 {
        let length = rng.below(120) as usize;
        let mut bytes = rng.bytes(length);
        if length > REPORT_BYTES && rng.chance(0.7) {
            // Few random bytes have a plausible length of the loss list, so most cases get one.
            bytes[22] = 0;
            bytes[23] = rng.below(((length - REPORT_BYTES) / 4 + 2) as u64) as u8;
            for at in [0, 4, 8, 12] {
                bytes[at] &= 0x7f;
            }
        }
        if let Ok(header) = Header::decode(&bytes) {
            assert_eq!(Header::decode(&header.encode()), Ok(header));
        }
        if let Ok(report) = Report::decode(&bytes) {
            decoded += 1;
            let mut out = Vec::new();
            report.encode(&mut out);
            assert_eq!(Report::decode(&out), Ok(report));
        }
        let _ = Handshake::decode(&bytes);
        let _ = Shutdown::decode(&bytes);
        let _ = decode_obs_change(&bytes);
    }
    assert!(decoded > CASES, "only {decoded} reports were decoded");
}

#[test]
fn loss_lists_must_ascend() {
    let range = |first, last| LossRange { first: Seq::new(first), last: Seq::new(last) };
    let base = report(&mut Rng::new(5));
    let lists = [
        vec![range(5, 4)],
        vec![range(5, 5), range(5, 5)],
        vec![range(5, 8), range(7, 9)],
        vec![range(9, 9), range(3, 3)],
    ];
    for losses in lists {
        let mut out = Vec::new();
        Report { losses: losses.clone(), ..base.clone() }.encode(&mut out);
        assert_eq!(Report::decode(&out), Err(WireError::Field("losses")), "{losses:?}");
    }
}
