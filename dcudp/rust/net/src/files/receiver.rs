//! The receiving side of a file transfer.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{self, TryRecvError};
use std::sync::Arc;
use std::thread;

use super::folder::Folder;
use super::hasher::Hasher;
use super::name::FileName;
use super::record::{Hash, Record};
use super::{Step, SLICE_BYTES};
use crate::key::reason;

const MISFIT: &str = "the sender sent a record that does not fit the transfer";

#[derive(Debug)]
enum State {
    /// A file of the final name exists: is it the offered one?
    Comparing(File),
    /// The partial file is hashed up to its end.
    Hashing {
        end: u64,
    },
    /// The sender compares hash and offset with its file.
    Accepted {
        offset: u64,
    },
    Receiving,
    /// A thread writes the file to the disk and renames it: fsync may take seconds.
    Finishing(mpsc::Receiver<Result<(), String>>),
    Ended,
}

/// What is called when the thread that finishes a file is done.
pub type Notify = Arc<dyn Fn() + Send + Sync>;

/// A file that is being received.
pub struct FileReceiver {
    transfer: u32,
    name: FileName,
    size: u64,
    hash: Hash,
    folder: Arc<Folder>,
    partial: Option<File>,
    hasher: Hasher,
    position: u64,
    resumed: u64,
    state: State,
    notify: Notify,
    buffer: Vec<u8>,
}

impl FileReceiver {
    /// Begin after an offer. The error is a reason for the sender.
    pub fn new(
        transfer: u32,
        (size, hash, name): (u64, Hash, &[u8]),
        folder: &Arc<Folder>,
        notify: &Notify,
    ) -> Result<FileReceiver, String> {
        let name = FileName::check(name)?;
        let mut receiver = FileReceiver {
            transfer,
            name,
            size,
            hash,
            folder: Arc::clone(folder),
            partial: None,
            hasher: Hasher::new(),
            position: 0,
            resumed: 0,
            state: State::Ended,
            notify: Arc::clone(notify),
            buffer: vec![0; SLICE_BYTES],
        };
        let existing = folder.read(&receiver.name).map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => "a symbolic link of this name exists".to_owned(),
            _ => format!("it cannot look for a file of this name: {}", reason(&error)),
        })?;
        match existing {
            Some(file) => receiver.compare_with(file)?,
            None => receiver.open_partial()?,
        }
        Ok(receiver)
    }

    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Whether the whole file has arrived, and only its name is missing.
    pub fn is_finishing(&self) -> bool {
        matches!(self.state, State::Finishing(_))
    }

    /// How many bytes of the file are here.
    pub fn received(&self) -> u64 {
        match self.state {
            State::Comparing(_) | State::Hashing { .. } | State::Accepted { .. } => 0,
            _ => self.position,
        }
    }

    /// How many bytes were here before the transfer.
    pub fn resumed(&self) -> u64 {
        self.resumed
    }

    fn compare_with(&mut self, file: File) -> Result<(), String> {
        let about = file.metadata().map_err(|error| reason(&error))?;
        if about.is_file() && about.len() == self.size {
            self.state = State::Comparing(file);
            return Ok(());
        }
        Err(exists())
    }

    fn open_partial(&mut self) -> Result<(), String> {
        let partial = self.folder.lock_partial(&self.name).map_err(|error| match error.raw_os_error() {
            Some(libc::EWOULDBLOCK) => "another transfer of this name is under way".to_owned(),
            Some(libc::ELOOP | libc::EEXIST) => {
                "its partial file is not a regular file with one name".to_owned()
            }
            _ => format!("it cannot write the partial file: {}", reason(&error)),
        })?;
        let cannot = |error: io::Error| format!("it cannot read the partial file: {}", reason(&error));
        let mut end = partial.metadata().map_err(cannot)?.len();
        if end > self.size {
            partial.set_len(0).map_err(cannot)?;
            end = 0;
        }
        self.partial = Some(partial);
        let (missing, free) = (self.size - end, self.folder.free_bytes().map_err(cannot)?);
        if missing > free {
            if end == 0 {
                self.discard();
            }
            return Err(format!("its disk is full: {missing} bytes are missing, and {free} are free"));
        }
        self.state = State::Hashing { end };
        Ok(())
    }

    /// Take a record of the sender. The error is a reason for the sender.
    pub fn record(&mut self, record: &Record) -> Result<(), String> {
        match (record, &self.state) {
            (Record::Start { offset }, State::Accepted { offset: accepted }) => {
                if offset == accepted {
                    self.resumed = *offset;
                } else if *offset == 0 {
                    self.start_over()?;
                } else {
                    return Err(MISFIT.to_owned());
                }
                self.state = State::Receiving;
                Ok(())
            }
            (Record::Data { offset, bytes }, State::Receiving) => {
                if *offset != self.position || bytes.len() as u64 > self.size - self.position {
                    return Err(MISFIT.to_owned());
                }
                self.write(bytes)
            }
            (Record::End, State::Receiving) => self.end(),
            _ => Err(MISFIT.to_owned()),
        }
    }

    /// Do a bounded amount of work.
    pub fn step(&mut self) -> Step {
        let done = match &self.state {
            State::Comparing(_) => self.compare(),
            State::Hashing { end } => self.hash_partial(*end),
            State::Finishing(result) => match result.try_recv() {
                Ok(Ok(())) => {
                    self.state = State::Ended;
                    Ok(Step::Done(Some(Record::Done.encode(self.transfer))))
                }
                Ok(Err(why)) => Err(why),
                Err(TryRecvError::Empty) => Ok(Step::Idle),
                Err(TryRecvError::Disconnected) => Err("it could not finish the file".to_owned()),
            },
            State::Accepted { .. } | State::Receiving | State::Ended => Ok(Step::Idle),
        };
        done.unwrap_or_else(Step::Failed)
    }

    /// Remove the partial file: nothing in it can be used again.
    pub fn discard(&mut self) {
        // Closing the file unlocks it, so that another transfer may open it. Therefore the removal comes first.
        if let Some(partial) = self.partial.take() {
            let _ = self.folder.remove_partial(&self.name, &partial);
        }
        self.state = State::Ended;
    }

    fn compare(&mut self) -> Result<Step, String> {
        if let State::Comparing(file) = &self.state {
            if self.position < self.size {
                let length = slice(self.size - self.position);
                file.read_exact_at(&mut self.buffer[..length], self.position).map_err(|_| exists())?;
                self.hasher.update(&self.buffer[..length]);
                self.position += length as u64;
                return Ok(Step::Busy);
            }
        }
        if self.hasher.hash() != self.hash {
            return Err(exists());
        }
        self.resumed = self.size;
        self.state = State::Ended;
        Ok(Step::Done(Some(Record::Done.encode(self.transfer))))
    }

    fn hash_partial(&mut self, end: u64) -> Result<Step, String> {
        if self.position < end {
            let length = slice(end - self.position);
            self.partial()?
                .read_exact_at(&mut self.buffer[..length], self.position)
                .map_err(|error| format!("it cannot read the partial file: {}", reason(&error)))?;
            self.hasher.update(&self.buffer[..length]);
            self.position += length as u64;
            return Ok(Step::Busy);
        }
        self.state = State::Accepted { offset: end };
        let hash = self.hasher.hash();
        Ok(Step::Send(Record::Accept { offset: end, hash }.encode(self.transfer)))
    }

    fn partial(&self) -> Result<File, String> {
        let file = self.partial.as_ref().ok_or(MISFIT)?;
        file.try_clone().map_err(|error| reason(&error))
    }

    fn start_over(&mut self) -> Result<(), String> {
        self.partial()?
            .set_len(0)
            .map_err(|error| format!("it cannot write the partial file: {}", reason(&error)))?;
        self.hasher = Hasher::new();
        self.position = 0;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let file = self.partial.as_ref().ok_or(MISFIT)?;
        file.write_all_at(bytes, self.position).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => "its disk is full: make room, then send again".to_owned(),
            _ => format!("it cannot write the file: {}", reason(&error)),
        })?;
        self.hasher.update(bytes);
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        if self.position != self.size || self.hasher.hash() != self.hash {
            self.discard();
            return Err("the content differs from the offered hash: send it again".to_owned());
        }
        let file = self.partial.take().ok_or(MISFIT)?;
        let (folder, name, notify) = (Arc::clone(&self.folder), self.name.clone(), Arc::clone(&self.notify));
        let (send, receive) = mpsc::channel();
        let work = move || {
            let done = file.sync_all().and_then(|()| folder.finish(&name, &file));
            let told = done.map_err(|error| match error.raw_os_error() {
                Some(libc::EEXIST) => exists(),
                Some(libc::ESTALE) => "its partial file was removed or replaced: send it again".to_owned(),
                Some(libc::ENOSPC | libc::EDQUOT) => {
                    "its disk is full: make room, then send again".to_owned()
                }
                _ => format!("it cannot finish the file: {}", reason(&error)),
            });
            // The connection may have ended.
            let _ = send.send(told);
            notify();
        };
        thread::Builder::new()
            .name("dcudp-finish".to_owned())
            .spawn(work)
            .map_err(|error| format!("it cannot start a thread: {}", reason(&error)))?;
        self.state = State::Finishing(receive);
        Ok(())
    }
}

fn exists() -> String {
    "a file of this name exists and differs: remove or rename it first".to_owned()
}

fn slice(bytes: u64) -> usize {
    usize::try_from(bytes).map_or(SLICE_BYTES, |bytes| bytes.min(SLICE_BYTES))
}
