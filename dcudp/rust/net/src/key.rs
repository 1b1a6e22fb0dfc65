//! Key files: a pre-shared key as 64 hexadecimal digits in a file that only its owner can read.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use zeroize::Zeroizing;

use crate::sys;

pub const KEY_BYTES: usize = 32;
/// The longest key file: the digits and white space around them.
const FILE_BYTES_MAX: u64 = 4_096;
const OTHERS: u32 = 0o077;

/// A pre-shared key. Its memory is cleared when it is dropped, and it is never printed.
#[derive(Clone)]
pub struct Key(Zeroizing<[u8; KEY_BYTES]>);

impl Key {
    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl From<[u8; KEY_BYTES]> for Key {
    fn from(bytes: [u8; KEY_BYTES]) -> Key {
        Key(Zeroizing::new(bytes))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(hidden)")
    }
}

/// Read a key file. The error is a sentence that names the file and the remedy, without any of its content.
pub fn read(path: &Path) -> Result<Key, String> {
    let named = path.display();
    let cannot = |error: io::Error| format!("cannot read the key file {named}: {}", reason(&error));
    // Without O_NONBLOCK, opening a named pipe would wait for its writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(cannot)?;
    let about = file.metadata().map_err(cannot)?;
    if !about.is_file() {
        return Err(format!("the key file {named} is not a regular file"));
    }
    if about.mode() & OTHERS != 0 {
        return Err(format!(
            "other users may use the key file {named} (mode {:04o}): run chmod 600 on it",
            about.mode() & 0o7777
        ));
    }
    let mut text = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX as usize));
    file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(cannot)?;
    parse(&text).ok_or_else(|| {
        format!(
            "the key file {named} does not hold a key of 64 hexadecimal digits: make one with weir dcudp key"
        )
    })
}

/// Make a key file with a random key. An existing file is not changed.
pub fn write(path: &Path) -> Result<(), String> {
    let cannot =
        |error: io::Error| format!("cannot make the key file {}: {}", path.display(), reason(&error));
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    sys::random(key.as_mut()).map_err(cannot)?;
    let mut text = Zeroizing::new(String::with_capacity(2 * KEY_BYTES + 1));
    for byte in key.iter() {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text.push('\n');
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(cannot)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(cannot)
}

fn digit(value: u8) -> char {
    char::from(if value < 10 { b'0' + value } else { b'a' + value - 10 })
}

fn parse(text: &[u8]) -> Option<Key> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace();
    let start = text.iter().position(|byte| !is_space(byte))?;
    let end = text.iter().rposition(|byte| !is_space(byte))? + 1;
    let digits = &text[start..end];
    if digits.len() != 2 * KEY_BYTES {
        return None;
    }
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
        let value = |digit: u8| char::from(digit).to_digit(16);
        *byte = (value(pair[0])? * 16 + value(pair[1])?) as u8;
    }
    Some(Key(key))
}

/// What the operating system says of an error, without Rust's number of it.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use crate::testing::Folder;

    fn file(folder: &Folder, content: &[u8], mode: u32) -> std::path::PathBuf {
        let path = folder.path().join("key");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_written_key_is_read_and_is_not_written_over() {
        let folder = Folder::new();
        let path = folder.path().join("key");
        write(&path).unwrap();
        let key = read(&path).unwrap();
        assert_ne!(key.bytes(), &[0; KEY_BYTES]);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(write(&path).unwrap_err().contains("file exists"));
        assert_eq!(read(&path).unwrap().bytes(), key.bytes());
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let folder = Folder::new();
        for mode in [0o640, 0o604, 0o620, 0o601] {
            let error = read(&file(&folder, &[b'a'; 64], mode)).unwrap_err();
            assert!(error.contains("chmod 600"), "{error}");
        }
    }

    #[test]
    fn a_file_without_a_key_is_refused_and_not_shown() {
        let folder = Folder::new();
        for content in [&b""[..], b"  \n", b"00ff", &[b'0'; 63], &[b'0'; 65], &[b'g'; 64], &[0xff; 64]] {
            let error = read(&file(&folder, content, 0o600)).unwrap_err();
            assert!(
                error.ends_with("does not hold a key of 64 hexadecimal digits: make one with weir dcudp key")
            );
        }
        assert!(read(folder.path()).unwrap_err().contains("not a regular file"));
        assert!(read(&folder.path().join("missing")).unwrap_err().contains("no such file"));
    }

    #[test]
    fn a_named_pipe_is_refused_and_not_waited_for() {
        let folder = Folder::new();
        let path = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || send.send(read(&path)));
        let refused = receive.recv_timeout(std::time::Duration::from_secs(5)).expect("an answer");
        assert!(refused.unwrap_err().contains("not a regular file"));
    }

    #[test]
    fn a_key_is_never_printed() {
        assert_eq!(format!("{:?}", Key::from([7; KEY_BYTES])), "Key(hidden)");
    }
}
