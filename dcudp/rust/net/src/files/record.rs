//! The records of a file transfer, each in one message. Integers are big-endian.
//!
//! | record | from | fields |
//! |---|---|---|
//! | Offer | sender | size: u64, SHA-256 of the file, name |
//! | Accept | receiver | offset: u64, SHA-256 of the partial file up to the offset |
//! | Start | sender | offset: u64, at which the data begins: that of Accept, or 0 |
//! | Data | sender | offset: u64, bytes |
//! | End | sender | - |
//! | Done | receiver | - |
//! | Failed | sender | reason: text |
//! | Refused | receiver | reason: text, at the offer or later |
//!
//! Each record begins with its type (1 byte) and the transfer's number (u32), which its sender chose.

pub type Hash = [u8; 32];

/// The most bytes of a reason. A longer one is cut.
const REASON_BYTES_MAX: usize = 300;
const HEAD_BYTES: usize = 5;
/// The bytes of a Data record before its data.
pub const DATA_HEAD_BYTES: usize = HEAD_BYTES + 8;
const DATA: u8 = 4;
const FAILED: u8 = 7;
const REFUSED: u8 = 8;

/// A record, without the transfer's number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<'a> {
    Offer { size: u64, hash: Hash, name: &'a [u8] },
    Accept { offset: u64, hash: Hash },
    Start { offset: u64 },
    Data { offset: u64, bytes: &'a [u8] },
    End,
    Done,
    Failed { reason: String },
    Refused { reason: String },
}

impl<'a> Record<'a> {
    pub fn encode(&self, transfer: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES + 64);
        let mut head = |kind: u8| {
            out.push(kind);
            out.extend_from_slice(&transfer.to_be_bytes());
        };
        match self {
            Record::Offer { size, hash, name } => {
                head(1);
                out.extend_from_slice(&size.to_be_bytes());
                out.extend_from_slice(hash);
                out.extend_from_slice(name);
            }
            Record::Accept { offset, hash } => {
                head(2);
                out.extend_from_slice(&offset.to_be_bytes());
                out.extend_from_slice(hash);
            }
            Record::Start { offset } => {
                head(3);
                out.extend_from_slice(&offset.to_be_bytes());
            }
            Record::Data { offset, bytes } => {
                out = data_head(transfer, *offset);
                out.extend_from_slice(bytes);
            }
            Record::End => head(5),
            Record::Done => head(6),
            Record::Failed { reason } | Record::Refused { reason } => {
                head(if matches!(self, Record::Failed { .. }) { FAILED } else { REFUSED });
                out.extend_from_slice(cut(reason, REASON_BYTES_MAX).as_bytes());
            }
        }
        out
    }

    /// Read a record and its transfer's number. None: malformed.
    pub fn decode(message: &'a [u8]) -> Option<(u32, Record<'a>)> {
        let (head, body) = (message.get(..HEAD_BYTES)?, &message[HEAD_BYTES..]);
        let transfer = u32::from_be_bytes(head[1..].try_into().ok()?);
        let number = || Some(u64::from_be_bytes(body.get(..8)?.try_into().ok()?));
        let hash = || <Hash>::try_from(body.get(8..40)?).ok();
        let exactly = |length: usize| (body.len() == length).then_some(());
        let record = match head[0] {
            1 => Record::Offer { size: number()?, hash: hash()?, name: body.get(40..)? },
            2 => {
                exactly(40)?;
                Record::Accept { offset: number()?, hash: hash()? }
            }
            3 => {
                exactly(8)?;
                Record::Start { offset: number()? }
            }
            DATA => Record::Data { offset: number()?, bytes: body.get(8..)? },
            5 => {
                exactly(0)?;
                Record::End
            }
            6 => {
                exactly(0)?;
                Record::Done
            }
            FAILED => Record::Failed { reason: reason_of(body) },
            REFUSED => Record::Refused { reason: reason_of(body) },
            _ => return None,
        };
        Some((transfer, record))
    }
}

/// The first bytes of a Data record. The data follows.
pub fn data_head(transfer: u32, offset: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(DATA_HEAD_BYTES);
    out.push(DATA);
    out.extend_from_slice(&transfer.to_be_bytes());
    out.extend_from_slice(&offset.to_be_bytes());
    out
}

fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Text of a peer that a terminal may show: short, and without control characters.
fn reason_of(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(REASON_BYTES_MAX)];
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Record<'static>> {
        vec![
            Record::Offer { size: 1 << 40, hash: [7; 32], name: b"name" },
            Record::Accept { offset: 9, hash: [8; 32] },
            Record::Start { offset: 10 },
            Record::Data { offset: 11, bytes: b"data" },
            Record::End,
            Record::Done,
            Record::Failed { reason: "the file changed".to_owned() },
            Record::Refused { reason: "disk full".to_owned() },
        ]
    }

    #[test]
    fn every_record_is_read_as_it_was_written() {
        for record in all() {
            assert_eq!(Record::decode(&record.encode(77)), Some((77, record)));
        }
    }

    #[test]
    fn the_bytes_of_a_record_do_not_change() {
        assert_eq!(Record::Start { offset: 258 }.encode(3), [3, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(data_head(1, 2), [4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
    }

    #[test]
    fn a_truncated_record_is_malformed() {
        for record in all() {
            let bytes = record.encode(1);
            let fixed = match record {
                Record::Offer { .. } => HEAD_BYTES + 40,
                Record::Data { .. } => DATA_HEAD_BYTES,
                Record::Failed { .. } | Record::Refused { .. } => HEAD_BYTES,
                _ => bytes.len(),
            };
            for length in 0..fixed {
                assert_eq!(Record::decode(&bytes[..length]), None, "{record:?} {length}");
            }
        }
        assert_eq!(Record::decode(&[9, 0, 0, 0, 0]), None);
        assert_eq!(Record::decode(&[5, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn a_reason_of_a_peer_is_short_and_printable() {
        let long = Record::Failed { reason: "ä".repeat(400) }.encode(1);
        assert_eq!(long.len(), HEAD_BYTES + REASON_BYTES_MAX);
        let mut bad = Record::Failed { reason: String::new() }.encode(1);
        bad.extend_from_slice(b"a\x1b[2J\xff");
        let (_, record) = Record::decode(&bad).unwrap();
        assert_eq!(record, Record::Failed { reason: "a [2J\u{fffd}".to_owned() });
    }
}
