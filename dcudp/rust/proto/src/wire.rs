//! The wire format: `dcudp/WIRE.md` describes it, and `tests/golden.txt` has one packet of each kind.
//!
//! A header is 16 bytes and never encrypted. What follows it, a payload or the body of a control packet, is
//! sealed. Decoders take any bytes and never panic. They ignore reserved bits and bytes after a body, so that
//! a later version can extend both.

use std::error::Error;
use std::fmt;

use crate::seq::{Seq, MASK};

/// The version of this implementation.
pub const VERSION: u8 = 1;
/// Bytes of the header of every packet.
pub const HEADER_BYTES: usize = 16;
/// Bytes of the body of every handshake packet, before extensions.
pub const HANDSHAKE_BYTES: usize = 72;
/// Bytes of a report without losses.
pub const REPORT_BYTES: usize = 24;
/// The number of message numbers.
pub const MESSAGE_NUMBERS: u32 = 1 << 26;

const CONTROL: u32 = 1 << 31;
const OBS: u32 = 1 << 31;
const CWR: u32 = 1 << 30;
const ECE: u32 = 1 << 29;
const FIRST: u32 = 1 << 28;
const LAST: u32 = 1 << 27;
const ORDERED: u32 = 1 << 26;
const TYPE_SHIFT: u32 = 24;
const TYPE_MASK: u32 = 31;
const VERSION_SHIFT: u32 = 20;
const VERSION_MASK: u32 = 15;
const RANGE: u32 = 1 << 31;
const REPLY: u8 = 1;
const NO_ECN: u8 = 2;
const NO_ACK2: u8 = 4;

/// Why bytes are not a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireError {
    /// Fewer bytes than the format needs.
    Short,
    /// A field has a value that the format does not allow.
    Field(&'static str),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Short => f.write_str("the packet is truncated"),
            WireError::Field(name) => write!(f, "the packet's field {name} has an invalid value"),
        }
    }
}

impl Error for WireError {}

/// The three bits that both kinds of packet have (paper, section III.B).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bits {
    /// Observe: true in the Congestion Mode.
    pub obs: bool,
    /// The sender reduced its rate.
    pub cwr: bool,
    /// The receiver echoes a mark.
    pub ece: bool,
}

impl Bits {
    fn encode(self) -> u32 {
        (if self.obs { OBS } else { 0 }) | (if self.cwr { CWR } else { 0 }) | (if self.ece { ECE } else { 0 })
    }

    fn decode(word: u32) -> Bits {
        Bits { obs: word & OBS != 0, cwr: word & CWR != 0, ece: word & ECE != 0 }
    }
}

/// The header of a data packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHeader {
    /// The sequence number of the packet. A retransmission repeats it.
    pub sequence: Seq,
    /// The mode bits of the direction in which the packet travels. ECE is 0.
    pub bits: Bits,
    /// The first packet of its message.
    pub first: bool,
    /// The last packet of its message.
    pub last: bool,
    /// Deliver the message after all earlier ones.
    pub ordered: bool,
    /// The message number, below `MESSAGE_NUMBERS`.
    pub message: u32,
    /// Microseconds since the sender's connection began, modulo 2^32.
    pub timestamp_us: u32,
    /// The receiver's number of the connection.
    pub connection: u32,
}

/// The type of a control packet. The numbers are UDT's where UDT has the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlType {
    /// Body: `Handshake`.
    Handshake,
    /// Body: `Report`.
    KeepAlive,
    /// Body: `Report`.
    Ack,
    /// Body: `Report`, with losses.
    Nak,
    /// Body: `Shutdown`.
    Shutdown,
    /// No body. The sequence number is that of the ACK.
    Ack2,
    /// Body: the sequence number of the ACK with OBS = 0 that it answers.
    ObsChange,
    /// Not known to this version. The packet is ignored.
    Unknown(u8),
}

impl ControlType {
    fn number(self) -> u8 {
        match self {
            ControlType::Handshake => 0,
            ControlType::KeepAlive => 1,
            ControlType::Ack => 2,
            ControlType::Nak => 3,
            ControlType::Shutdown => 5,
            ControlType::Ack2 => 6,
            ControlType::ObsChange => 7,
            ControlType::Unknown(number) => number & TYPE_MASK as u8,
        }
    }

    fn from_number(number: u8) -> ControlType {
        match number {
            0 => ControlType::Handshake,
            1 => ControlType::KeepAlive,
            2 => ControlType::Ack,
            3 => ControlType::Nak,
            5 => ControlType::Shutdown,
            6 => ControlType::Ack2,
            7 => ControlType::ObsChange,
            other => ControlType::Unknown(other),
        }
    }
}

/// The header of a control packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlHeader {
    /// The sequence number of the control packet, independent of data packets.
    pub sequence: Seq,
    /// What the body is.
    pub kind: ControlType,
    /// In an ACK the receiver's wish, in an ACK2 and an OBS-change the sender's mode.
    pub bits: Bits,
    /// The version of the format, below 16.
    pub version: u8,
    /// Microseconds since the sender's connection began, modulo 2^32.
    pub timestamp_us: u32,
    /// The receiver's number of the connection; 0 if the sender does not know it.
    pub connection: u32,
}

/// Either header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// The first bit is 0.
    Data(DataHeader),
    /// The first bit is 1.
    Control(ControlHeader),
}

fn word(bytes: &[u8], at: usize) -> Result<u32, WireError> {
    let field = bytes.get(at..at + 4).ok_or(WireError::Short)?;
    Ok(u32::from_be_bytes([field[0], field[1], field[2], field[3]]))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], WireError> {
    let mut result = [0; N];
    result.copy_from_slice(bytes.get(at..at + N).ok_or(WireError::Short)?);
    Ok(result)
}

fn sequence(bytes: &[u8], at: usize, name: &'static str) -> Result<Seq, WireError> {
    let value = word(bytes, at)?;
    if value > MASK {
        return Err(WireError::Field(name));
    }
    Ok(Seq::new(value))
}

impl Header {
    /// Reads the first 16 bytes of a datagram.
    pub fn decode(bytes: &[u8]) -> Result<Header, WireError> {
        let (number, fields) = (word(bytes, 0)?, word(bytes, 4)?);
        let (timestamp_us, connection) = (word(bytes, 8)?, word(bytes, 12)?);
        if number & CONTROL == 0 {
            return Ok(Header::Data(DataHeader {
                sequence: Seq::new(number),
                bits: Bits::decode(fields),
                first: fields & FIRST != 0,
                last: fields & LAST != 0,
                ordered: fields & ORDERED != 0,
                message: fields & (MESSAGE_NUMBERS - 1),
                timestamp_us,
                connection,
            }));
        }
        Ok(Header::Control(ControlHeader {
            sequence: Seq::new(number),
            kind: ControlType::from_number((fields >> TYPE_SHIFT & TYPE_MASK) as u8),
            bits: Bits::decode(fields),
            version: (fields >> VERSION_SHIFT & VERSION_MASK) as u8,
            timestamp_us,
            connection,
        }))
    }

    /// The 16 bytes of the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let words = match self {
            Header::Data(h) => {
                let mut fields = h.bits.encode() | (h.message & (MESSAGE_NUMBERS - 1));
                fields |= (if h.first { FIRST } else { 0 }) | (if h.last { LAST } else { 0 });
                fields |= if h.ordered { ORDERED } else { 0 };
                [h.sequence.value(), fields, h.timestamp_us, h.connection]
            }
            Header::Control(h) => {
                let fields = h.bits.encode()
                    | u32::from(h.kind.number()) << TYPE_SHIFT
                    | (u32::from(h.version) & VERSION_MASK) << VERSION_SHIFT;
                [CONTROL | h.sequence.value(), fields, h.timestamp_us, h.connection]
            }
        };
        let mut bytes = [0; HEADER_BYTES];
        for (place, value) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&value.to_be_bytes());
        }
        bytes
    }
}

/// The step of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Initiator: asks for a cookie.
    Request,
    /// Responder: a cookie; it keeps no state.
    Cookie,
    /// Initiator: returns the cookie, padded to the size of datagrams that it wants to send.
    Confirm,
    /// Responder: the connection exists. As long as the CONFIRM.
    Accept,
    /// Responder: no connection, and why.
    Refuse,
}

/// Why a responder refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Not a refusal.
    None,
    /// The responder does not speak the initiator's version. The header has the responder's.
    Version,
    /// The CONFIRM does not fit the responder's key.
    Authentication,
    /// The responder has as many connections as it allows.
    Busy,
}

/// The body of a handshake packet. All steps have the same fields, so no answer is larger than its question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshake {
    /// The step.
    pub step: Step,
    /// The reason in a REFUSE.
    pub refusal: Refusal,
    /// The number by which the sender of this packet knows the connection; 0 in COOKIE and REFUSE.
    pub id: u32,
    /// The first sequence number of the sender's data packets.
    pub initial_sequence: Seq,
    /// The sender's receive window in packets.
    pub window_packets: u32,
    /// The initiator's random nonce. Each answer repeats it.
    pub initiator_nonce: [u8; 16],
    /// The responder's: that of the cookie in COOKIE and CONFIRM, a new random one in ACCEPT.
    pub responder_nonce: [u8; 16],
    /// The responder's time when it made the cookie.
    pub cookie_time_us: u64,
    /// The responder's code over what the cookie is valid for.
    pub cookie: [u8; 16],
}

impl Handshake {
    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let step = match self.step {
            Step::Request => 1,
            Step::Cookie => 2,
            Step::Confirm => 3,
            Step::Accept => 4,
            Step::Refuse => 5,
        };
        let refusal = match self.refusal {
            Refusal::None => 0,
            Refusal::Version => 1,
            Refusal::Authentication => 2,
            Refusal::Busy => 3,
        };
        out.extend_from_slice(&[step, refusal, 0, 0]);
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(&self.initial_sequence.value().to_be_bytes());
        out.extend_from_slice(&self.window_packets.to_be_bytes());
        out.extend_from_slice(&self.initiator_nonce);
        out.extend_from_slice(&self.responder_nonce);
        out.extend_from_slice(&self.cookie_time_us.to_be_bytes());
        out.extend_from_slice(&self.cookie);
    }

    /// Reads a body. Extensions after it are ignored.
    pub fn decode(bytes: &[u8]) -> Result<Handshake, WireError> {
        let codes: [u8; 4] = array(bytes, 0)?;
        let step = match codes[0] {
            1 => Step::Request,
            2 => Step::Cookie,
            3 => Step::Confirm,
            4 => Step::Accept,
            5 => Step::Refuse,
            _ => return Err(WireError::Field("step")),
        };
        let refusal = match codes[1] {
            0 => Refusal::None,
            1 => Refusal::Version,
            2 => Refusal::Authentication,
            3 => Refusal::Busy,
            _ => return Err(WireError::Field("refusal")),
        };
        Ok(Handshake {
            step,
            refusal,
            id: word(bytes, 4)?,
            initial_sequence: sequence(bytes, 8, "initial_sequence")?,
            window_packets: word(bytes, 12)?,
            initiator_nonce: array(bytes, 16)?,
            responder_nonce: array(bytes, 32)?,
            cookie_time_us: u64::from_be_bytes(array(bytes, 48)?),
            cookie: array(bytes, 56)?,
        })
    }
}

/// Sequence numbers from `first` to `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossRange {
    /// The first lost packet.
    pub first: Seq,
    /// The last lost packet.
    pub last: Seq,
}

/// What a receiver reports in keep-alives, ACKs and NAKs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Every earlier data packet arrived.
    pub next_expected: Seq,
    /// The number after the highest that arrived.
    pub end: Seq,
    /// The peer may send data packets before this number: the flow control.
    pub window_end: Seq,
    /// The number that the reporter's own next new data packet will have. It shows losses at the end of a
    /// burst.
    pub next_sequence: Seq,
    /// The reporter's smoothed RTT; 0 if it has none.
    pub rtt_us: u32,
    /// The peer is asked to answer with a keep-alive.
    pub reply: bool,
    /// The peer's data packets arrive without ECT, or are lost although none was marked: ECN says nothing.
    pub no_ecn: bool,
    /// An ACK that needs no ACK2.
    pub no_ack2: bool,
    /// Lost packets in ascending order.
    pub losses: Vec<LossRange>,
}

impl Report {
    /// Appends the body: a single loss takes one word, a range two of which the first has its first bit set
    /// (UDT).
    pub fn encode(&self, out: &mut Vec<u8>) {
        for seq in [self.next_expected, self.end, self.window_end, self.next_sequence] {
            out.extend_from_slice(&seq.value().to_be_bytes());
        }
        out.extend_from_slice(&self.rtt_us.to_be_bytes());
        let words: usize =
            self.losses.iter().map(|range| if range.first == range.last { 1 } else { 2 }).sum();
        let flags = [(self.reply, REPLY), (self.no_ecn, NO_ECN), (self.no_ack2, NO_ACK2)];
        out.push(flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum::<u8>());
        out.push(0);
        out.extend_from_slice(&(words as u16).to_be_bytes());
        for range in &self.losses {
            if range.first == range.last {
                out.extend_from_slice(&range.first.value().to_be_bytes());
            } else {
                out.extend_from_slice(&(RANGE | range.first.value()).to_be_bytes());
                out.extend_from_slice(&range.last.value().to_be_bytes());
            }
        }
    }

    /// Reads a body.
    pub fn decode(bytes: &[u8]) -> Result<Report, WireError> {
        let codes: [u8; 4] = array(bytes, 20)?;
        let words = usize::from(u16::from_be_bytes([codes[2], codes[3]]));
        let list = bytes.get(REPORT_BYTES..REPORT_BYTES + 4 * words).ok_or(WireError::Short)?;
        Ok(Report {
            next_expected: sequence(bytes, 0, "next_expected")?,
            end: sequence(bytes, 4, "end")?,
            window_end: sequence(bytes, 8, "window_end")?,
            next_sequence: sequence(bytes, 12, "next_sequence")?,
            rtt_us: word(bytes, 16)?,
            reply: codes[0] & REPLY != 0,
            no_ecn: codes[0] & NO_ECN != 0,
            no_ack2: codes[0] & NO_ACK2 != 0,
            losses: decode_losses(list)?,
        })
    }
}

fn decode_losses(list: &[u8]) -> Result<Vec<LossRange>, WireError> {
    let mut losses: Vec<LossRange> = Vec::new();
    let mut at = 0;
    while at < list.len() {
        let value = word(list, at)?;
        let first = Seq::new(value);
        let mut last = first;
        at += 4;
        if value & RANGE != 0 {
            last = sequence(list, at, "losses")?;
            at += 4;
            if !first.before(last) {
                return Err(WireError::Field("losses"));
            }
        }
        if losses.last().map_or(false, |previous| !previous.last.before(first)) {
            return Err(WireError::Field("losses"));
        }
        losses.push(LossRange { first, last });
    }
    Ok(losses)
}

/// The bytes of a shutdown before its report.
pub const SHUTDOWN_BYTES: usize = 4;

/// The body of a shutdown. A report follows; shutdowns of earlier versions of this crate lack it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// All data of the sender was acknowledged.
    Close,
    /// The sender ends the connection early.
    Abort,
    /// The answer to either.
    Answer,
}

impl Shutdown {
    /// Appends the body.
    pub fn encode(self, out: &mut Vec<u8>) {
        let code = match self {
            Shutdown::Close => 0,
            Shutdown::Abort => 1,
            Shutdown::Answer => 2,
        };
        out.extend_from_slice(&[code, 0, 0, 0]);
    }

    /// Reads a body.
    pub fn decode(bytes: &[u8]) -> Result<Shutdown, WireError> {
        let codes: [u8; SHUTDOWN_BYTES] = array(bytes, 0)?;
        match codes[0] {
            0 => Ok(Shutdown::Close),
            1 => Ok(Shutdown::Abort),
            2 => Ok(Shutdown::Answer),
            _ => Err(WireError::Field("shutdown")),
        }
    }
}

/// Appends the body of an OBS-change.
pub fn encode_obs_change(ack: Seq, out: &mut Vec<u8>) {
    out.extend_from_slice(&ack.value().to_be_bytes());
}

/// Reads the body of an OBS-change: the sequence number of the ACK that it answers.
pub fn decode_obs_change(bytes: &[u8]) -> Result<Seq, WireError> {
    sequence(bytes, 0, "ack")
}
