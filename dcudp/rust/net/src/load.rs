//! A load for measurements: one end sends as much as it can for some time, and the other end counts.
//!
//! Records: type (1 byte), then for Result bytes: u64 and elapsed_us, cpu_us: u64 each, big-endian.

use dcudp_proto::Micros;

use crate::channel;

const DATA: u8 = 1;
const END: u8 = 2;
const RESULT: u8 = 3;
const REFUSED: u8 = 4;
/// The bytes of one message of the load.
pub const MESSAGE_BYTES: usize = 128 << 10;

/// What the receiving end measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    pub bytes: u64,
    /// From the first message to the end.
    pub elapsed_us: u64,
    /// CPU time of the receiving thread in that time.
    pub cpu_us: u64,
}

/// A record of a load.
#[derive(Debug, PartialEq, Eq)]
pub enum Record {
    Data { bytes: usize },
    End,
    Result(Measured),
    Refused,
}

pub fn decode(record: &[u8]) -> Option<Record> {
    let (kind, rest) = record.split_first()?;
    let number =
        |index: usize| Some(u64::from_be_bytes(rest.get(8 * index..8 * index + 8)?.try_into().ok()?));
    match (*kind, rest.len()) {
        (DATA, bytes) => Some(Record::Data { bytes: bytes + 2 }),
        (END, 0) => Some(Record::End),
        (RESULT, 24) => {
            Some(Record::Result(Measured { bytes: number(0)?, elapsed_us: number(1)?, cpu_us: number(2)? }))
        }
        (REFUSED, 0) => Some(Record::Refused),
        _ => None,
    }
}

/// A message of the load, as it goes to the protocol.
pub fn data() -> Vec<u8> {
    let mut message = vec![0; MESSAGE_BYTES];
    message[0] = channel::LOAD;
    message[1] = DATA;
    message
}

pub fn end() -> Vec<u8> {
    channel::load(&[END])
}

pub fn refused() -> Vec<u8> {
    channel::load(&[REFUSED])
}

pub fn result(measured: Measured) -> Vec<u8> {
    let mut record = vec![RESULT];
    for value in [measured.bytes, measured.elapsed_us, measured.cpu_us] {
        record.extend_from_slice(&value.to_be_bytes());
    }
    channel::load(&record)
}

/// The receiving end's count.
#[derive(Debug, Clone, Copy)]
pub struct Count {
    began_us: Micros,
    cpu_began_us: u64,
    bytes: u64,
}

impl Count {
    pub fn new(now: Micros, cpu_us: u64) -> Count {
        Count { began_us: now, cpu_began_us: cpu_us, bytes: 0 }
    }

    pub fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    pub fn measured(&self, now: Micros, cpu_us: u64) -> Measured {
        Measured { bytes: self.bytes, elapsed_us: now - self.began_us, cpu_us: cpu_us - self.cpu_began_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: &[u8]) -> Option<Record> {
        assert_eq!(message[0], channel::LOAD);
        decode(&message[1..])
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let measured = Measured { bytes: 1 << 40, elapsed_us: 2, cpu_us: 3 };
        assert_eq!(read(&data()), Some(Record::Data { bytes: MESSAGE_BYTES }));
        assert_eq!(read(&end()), Some(Record::End));
        assert_eq!(read(&result(measured)), Some(Record::Result(measured)));
        assert_eq!(read(&refused()), Some(Record::Refused));
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[RESULT, 1]), None);
        assert_eq!(decode(&[END, 1]), None);
    }

    #[test]
    fn a_count_is_of_its_own_time() {
        let mut count = Count::new(100, 10);
        count.add(5);
        count.add(6);
        assert_eq!(count.measured(160, 30), Measured { bytes: 11, elapsed_us: 60, cpu_us: 20 });
    }
}
