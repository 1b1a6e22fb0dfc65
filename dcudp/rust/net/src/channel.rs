//! What a DCUDP message carries: the first byte is its channel.
//!
//! | channel | rest |
//! |---|---|
//! | 0 message | the application's bytes |
//! | 1 stream | stream: u32, flags: u8 (bit 0: the last bytes of this direction), bytes |
//! | 2 file | a record of `files/record.rs` |
//! | 3 load | a record of `load.rs` |
//!
//! A stream is bidirectional, and its bytes keep their order. The initiator of a connection numbers its streams
//! 0, 2, 4 and the responder 1, 3, 5. All channels share the flow control of the connection.

pub const MESSAGE: u8 = 0;
pub const STREAM: u8 = 1;
pub const FILE: u8 = 2;
pub const LOAD: u8 = 3;

const STREAM_HEAD_BYTES: usize = 6;
const LAST: u8 = 1;

/// A received message.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<'a> {
    Message(&'a [u8]),
    Stream { stream: u32, last: bool, bytes: &'a [u8] },
    File(&'a [u8]),
    Load(&'a [u8]),
}

/// Read a message. None: it is malformed.
pub fn decode(message: &[u8]) -> Option<Received<'_>> {
    let (channel, rest) = message.split_first()?;
    match *channel {
        MESSAGE => Some(Received::Message(rest)),
        STREAM => {
            let head = message.get(..STREAM_HEAD_BYTES)?;
            let stream = u32::from_be_bytes(head[1..5].try_into().ok()?);
            let last = head[5] & LAST != 0;
            Some(Received::Stream { stream, last, bytes: &message[STREAM_HEAD_BYTES..] })
        }
        FILE => Some(Received::File(rest)),
        LOAD => Some(Received::Load(rest)),
        _ => None,
    }
}

pub fn message(bytes: &[u8]) -> Vec<u8> {
    with_head(&[MESSAGE], bytes)
}

pub fn stream(stream: u32, last: bool, bytes: &[u8]) -> Vec<u8> {
    let mut head = [STREAM, 0, 0, 0, 0, u8::from(last) * LAST];
    head[1..5].copy_from_slice(&stream.to_be_bytes());
    with_head(&head, bytes)
}

pub fn file(record: &[u8]) -> Vec<u8> {
    with_head(&[FILE], record)
}

pub fn load(record: &[u8]) -> Vec<u8> {
    with_head(&[LOAD], record)
}

fn with_head(head: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(head.len() + bytes.len());
    out.extend_from_slice(head);
    out.extend_from_slice(bytes);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        assert_eq!(decode(&message(b"ab")), Some(Received::Message(b"ab")));
        assert_eq!(decode(&message(b"")), Some(Received::Message(b"")));
        let expected = Received::Stream { stream: 258, last: true, bytes: b"x" };
        assert_eq!(decode(&stream(258, true, b"x")), Some(expected));
        assert_eq!(decode(&file(b"r")), Some(Received::File(b"r")));
        assert_eq!(decode(&load(b"r")), Some(Received::Load(b"r")));
    }

    #[test]
    fn the_bytes_of_a_stream_message_do_not_change() {
        assert_eq!(stream(258, true, b"x"), [1, 0, 0, 1, 2, 1, b'x']);
    }

    #[test]
    fn malformed_messages_are_refused() {
        assert_eq!(decode(b""), None);
        assert_eq!(decode(&[4, 1, 2]), None);
        assert_eq!(decode(&[STREAM, 0, 0, 0, 0]), None);
    }
}
