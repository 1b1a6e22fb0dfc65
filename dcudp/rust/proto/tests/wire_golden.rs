//! The golden bytes of `golden.txt`: each packet is decoded, compared with its fields, and encoded again.
//! `WIRE.md` must show the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use dcudp_proto::seq::Seq;
use dcudp_proto::wire::{
    decode_obs_change, encode_obs_change, Bits, ControlHeader, ControlType, DataHeader, Handshake, Header,
    LossRange, Refusal, Report, Shutdown, Step, HEADER_BYTES,
};

fn path(parts: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(parts)
}

fn golden() -> BTreeMap<String, Vec<u8>> {
    let text = fs::read_to_string(path("tests/golden.txt")).expect("tests/golden.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let parse = |line: &str| {
        let (name, hex) = line.split_once(' ').expect("a name and bytes");
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits");
        (name.to_string(), (0..hex.len()).step_by(2).map(byte).collect())
    };
    lines.map(parse).collect()
}

fn control(name: &str) -> (ControlHeader, Vec<u8>) {
    let bytes = golden().remove(name).expect(name);
    let header = Header::decode(&bytes).expect("a header");
    assert_eq!(header.encode(), bytes[..HEADER_BYTES]);
    match header {
        Header::Control(header) => (header, bytes[HEADER_BYTES..].to_vec()),
        Header::Data(_) => panic!("{name} is a data packet"),
    }
}

fn encoded(encode: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn seqs(numbers: &[(u32, u32)]) -> Vec<LossRange> {
    numbers.iter().map(|(first, last)| LossRange { first: Seq::new(*first), last: Seq::new(*last) }).collect()
}

#[test]
fn data() {
    let bytes = golden().remove("data").expect("data");
    let header = DataHeader {
        sequence: Seq::new(0x7fff_ffff),
        bits: Bits { obs: true, cwr: true, ece: false },
        first: true,
        last: false,
        ordered: true,
        message: 0x200_0001,
        timestamp_us: 1000,
        connection: 0x0102_0304,
    };
    assert_eq!(Header::decode(&bytes), Ok(Header::Data(header)));
    assert_eq!(Header::Data(header).encode(), bytes[..HEADER_BYTES]);
    assert_eq!(&bytes[HEADER_BYTES..], b"weir");
}

#[test]
fn reports() {
    let cases = [
        ("keep_alive", ControlType::KeepAlive, (100, 105, 8292, 0), 250, (true, false, false), seqs(&[])),
        ("ack", ControlType::Ack, (0x7fff_fffe, 1, 0x100, 77), 104, (false, true, false), seqs(&[])),
        (
            "ack_without_ack2",
            ControlType::Ack,
            (0x7fff_fffe, 1, 0x100, 77),
            104,
            (false, false, true),
            seqs(&[]),
        ),
        (
            "nak",
            ControlType::Nak,
            (100, 110, 8292, 0),
            0,
            (false, false, false),
            seqs(&[(100, 100), (103, 107)]),
        ),
        (
            "nak_across_the_wrap",
            ControlType::Nak,
            (0x7fff_fffd, 6, 8192, 0),
            0,
            (false, false, false),
            seqs(&[(0x7fff_fffd, 2), (4, 4)]),
        ),
    ];
    for (name, kind, numbers, rtt_us, (reply, no_ecn, no_ack2), losses) in cases {
        let (header, body) = control(name);
        assert_eq!((header.kind, header.version, header.connection), (kind, 1, 0x0102_0304));
        let report = Report {
            next_expected: Seq::new(numbers.0),
            end: Seq::new(numbers.1),
            window_end: Seq::new(numbers.2),
            next_sequence: Seq::new(numbers.3),
            rtt_us,
            reply,
            no_ecn,
            no_ack2,
            losses,
        };
        assert_eq!(Report::decode(&body), Ok(report.clone()), "{name}");
        assert_eq!(encoded(|out| report.encode(out)), body, "{name}");
    }
    assert_eq!(control("ack").0.bits, Bits { obs: true, cwr: false, ece: true });
}

#[test]
fn mode_switch() {
    let (ack, (ack2, body)) = (control("ack").0, control("ack2"));
    assert_eq!((ack2.kind, ack2.sequence, body.len()), (ControlType::Ack2, ack.sequence, 0));
    let (header, body) = control("obs_change");
    assert_eq!((header.kind, header.bits.obs), (ControlType::ObsChange, false));
    assert_eq!(decode_obs_change(&body), Ok(Seq::new(42)));
    assert_eq!(encoded(|out| encode_obs_change(Seq::new(42), out)), body);
}

#[test]
fn shutdowns() {
    for (name, kind) in [("shutdown", Shutdown::Close), ("shutdown_answer", Shutdown::Answer)] {
        let (header, body) = control(name);
        assert_eq!(header.kind, ControlType::Shutdown);
        assert_eq!(Shutdown::decode(&body), Ok(kind));
        assert_eq!(encoded(|out| kind.encode(out)), body);
    }
}

#[test]
fn handshakes() {
    let nonce = |start: u8| {
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(start..).for_each(|(byte, value)| *byte = value);
        bytes
    };
    let request = Handshake {
        step: Step::Request,
        refusal: Refusal::None,
        id: 0x0102_0304,
        initial_sequence: Seq::new(5),
        window_packets: 8192,
        initiator_nonce: nonce(0x10),
        responder_nonce: [0; 16],
        cookie_time_us: 0,
        cookie: [0; 16],
    };
    let proof = (nonce(0x20), 123_456_789, nonce(0x30));
    let confirm = Handshake {
        step: Step::Confirm,
        responder_nonce: proof.0,
        cookie_time_us: proof.1,
        cookie: proof.2,
        ..request
    };
    let (id, initial_sequence, window_packets) = (0, Seq::new(0), 0);
    let cookie = Handshake { step: Step::Cookie, id, initial_sequence, window_packets, ..confirm };
    let accept = Handshake {
        step: Step::Accept,
        id: 0x0a0b_0c0d,
        initial_sequence: Seq::new(6),
        window_packets: 4096,
        responder_nonce: nonce(0x30),
        ..request
    };
    let refuse = Handshake {
        step: Step::Refuse,
        refusal: Refusal::Version,
        id,
        initial_sequence,
        window_packets,
        ..request
    };
    let cases = [
        ("request", request),
        ("cookie", cookie),
        ("confirm", confirm),
        ("accept", accept),
        ("refuse_version", refuse),
    ];
    for (name, handshake) in cases {
        let (header, body) = control(name);
        assert_eq!((header.kind, header.version), (ControlType::Handshake, 1), "{name}");
        assert_eq!(Handshake::decode(&body), Ok(handshake), "{name}");
        assert_eq!(encoded(|out| handshake.encode(out)), body, "{name}");
    }
}

#[test]
fn the_document_shows_the_golden_bytes() {
    let document = fs::read_to_string(path("../../WIRE.md")).expect("WIRE.md");
    let shown: String = document.chars().filter(|c| !c.is_whitespace()).collect();
    for (name, bytes) in golden() {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(shown.contains(&hex), "WIRE.md does not show the bytes of {name}");
    }
}
