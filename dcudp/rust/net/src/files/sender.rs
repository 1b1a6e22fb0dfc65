//! The sending side of a file transfer.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::hasher::Hasher;
use super::name::FileName;
use super::record::{data_head, Hash, Record, DATA_HEAD_BYTES};
use super::{Step, SLICE_BYTES};
use crate::key::reason;

/// The data bytes of one record.
pub const CHUNK_BYTES: usize = 128 << 10;
const CHANGED: &str = "the file changed while it was sent: send it again";

#[derive(Debug)]
enum State {
    /// Before the offer: the whole file is hashed.
    Hashing,
    Offered,
    /// The receiver has a partial file: its length and hash are compared.
    Comparing {
        offset: u64,
        hash: Hash,
    },
    Sending,
    /// The data is sent. The receiver has to confirm.
    Ended,
}

/// A file that is being sent.
#[derive(Debug)]
pub struct FileSender {
    transfer: u32,
    name: FileName,
    file: File,
    about: Metadata,
    hash: Hash,
    hasher: Hasher,
    position: u64,
    resumed: u64,
    state: State,
    buffer: Vec<u8>,
}

impl FileSender {
    /// Open the file at `path`, which the receiver will know as `name`.
    pub fn open(transfer: u32, path: &Path, name: &str) -> Result<FileSender, String> {
        let cannot = |error: io::Error| format!("cannot read {}: {}", path.display(), reason(&error));
        let name = FileName::check(name.as_bytes())
            .map_err(|why| format!("cannot send {}: {why}", path.display()))?;
        // Without O_NONBLOCK, opening a named pipe would wait for its writer.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(cannot)?;
        let about = file.metadata().map_err(cannot)?;
        if !about.is_file() {
            return Err(format!("cannot send {}: it is not a regular file", path.display()));
        }
        Ok(FileSender {
            transfer,
            name,
            file,
            about,
            hash: Hash::default(),
            hasher: Hasher::new(),
            position: 0,
            resumed: 0,
            state: State::Hashing,
            buffer: vec![0; SLICE_BYTES],
        })
    }

    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    pub fn size(&self) -> u64 {
        self.about.len()
    }

    /// How many bytes the receiver has or will have from this transfer.
    pub fn sent(&self) -> u64 {
        if matches!(self.state, State::Sending | State::Ended) {
            self.position
        } else {
            0
        }
    }

    /// How many bytes the receiver had before.
    pub fn resumed(&self) -> u64 {
        self.resumed
    }

    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Take a record of the receiver. Ok(true): the transfer is complete.
    pub fn record(&mut self, record: &Record) -> Result<bool, String> {
        match (record, &self.state) {
            (Record::Accept { offset, hash }, State::Offered) if *offset <= self.size() => {
                self.restart();
                self.state = State::Comparing { offset: *offset, hash: *hash };
                Ok(false)
            }
            (Record::Done, State::Ended) => Ok(true),
            (Record::Done, State::Offered) => {
                self.resumed = self.size();
                self.position = self.size();
                self.state = State::Ended;
                Ok(true)
            }
            (Record::Refused { reason }, _) => Err(format!("the receiver refused {}: {reason}", self.name())),
            _ => Err("the receiver sent a record that does not fit the transfer".to_owned()),
        }
    }

    /// Do a bounded amount of work.
    pub fn step(&mut self) -> Step {
        let done = match self.state {
            State::Hashing => self.hash_whole(),
            State::Comparing { offset, hash } => self.compare(offset, hash),
            State::Sending => self.send(),
            State::Offered | State::Ended => Ok(Step::Idle),
        };
        done.unwrap_or_else(Step::Failed)
    }

    fn restart(&mut self) {
        self.hasher = Hasher::new();
        self.position = 0;
    }

    fn hash_whole(&mut self) -> Result<Step, String> {
        if self.position < self.size() {
            return self.hash_until(self.size()).map(|()| Step::Busy);
        }
        self.hash = self.hasher.hash();
        self.state = State::Offered;
        let offer = Record::Offer { size: self.size(), hash: self.hash, name: self.name.as_str().as_bytes() };
        Ok(Step::Send(offer.encode(self.transfer)))
    }

    fn compare(&mut self, offset: u64, hash: Hash) -> Result<Step, String> {
        if self.position < offset {
            return self.hash_until(offset).map(|()| Step::Busy);
        }
        if self.hasher.hash() == hash {
            self.resumed = offset;
        } else {
            self.restart();
        }
        self.state = State::Sending;
        Ok(Step::Send(Record::Start { offset: self.position }.encode(self.transfer)))
    }

    fn hash_until(&mut self, end: u64) -> Result<(), String> {
        let length = self.buffer.len().min(usize::try_from(end - self.position).unwrap_or(usize::MAX));
        read_at(&self.file, &mut self.buffer[..length], self.position)?;
        self.hasher.update(&self.buffer[..length]);
        self.position += length as u64;
        Ok(())
    }

    fn send(&mut self) -> Result<Step, String> {
        let left = self.size() - self.position;
        if left == 0 {
            self.check_unchanged()?;
            self.state = State::Ended;
            return Ok(Step::Send(Record::End.encode(self.transfer)));
        }
        let length = CHUNK_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut record = data_head(self.transfer, self.position);
        record.resize(DATA_HEAD_BYTES + length, 0);
        read_at(&self.file, &mut record[DATA_HEAD_BYTES..], self.position)?;
        self.hasher.update(&record[DATA_HEAD_BYTES..]);
        self.position += length as u64;
        Ok(Step::Send(record))
    }

    /// What was sent has the hash that was offered, and the file has not grown or been written since.
    fn check_unchanged(&self) -> Result<(), String> {
        let now =
            self.file.metadata().map_err(|error| format!("cannot read the file: {}", reason(&error)))?;
        let stamp = |about: &Metadata| (about.len(), about.mtime(), about.mtime_nsec());
        if self.hasher.hash() == self.hash && stamp(&now) == stamp(&self.about) {
            Ok(())
        } else {
            Err(CHANGED.to_owned())
        }
    }
}

fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> Result<(), String> {
    file.read_exact_at(bytes, offset).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => CHANGED.to_owned(),
        _ => format!("cannot read the file: {}", reason(&error)),
    })
}
