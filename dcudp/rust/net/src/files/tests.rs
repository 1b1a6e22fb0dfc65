//! Transfers between a sender and a receiver without a network.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::folder::Folder;
use super::hasher::Hasher;
use super::receiver::{FileReceiver, Notify};
use super::record::{Hash, Record};
use super::sender::{FileSender, CHUNK_BYTES};
use super::Step;
use crate::testing;

const TRANSFER: u32 = 9;

/// A sender's folder, a receiver's folder, and what happens between them.
struct Bench {
    from: testing::Folder,
    to: testing::Folder,
}

#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    sender: Result<(), String>,
    receiver: Result<(), String>,
    resumed: u64,
    data_bytes: u64,
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 % 251) as u8).collect()
}

fn hash_of(bytes: &[u8]) -> Hash {
    let mut hasher = Hasher::new();
    hasher.update(bytes);
    hasher.hash()
}

fn notify() -> Notify {
    Arc::new(|| {})
}

impl Bench {
    fn new() -> Bench {
        Bench { from: testing::Folder::new(), to: testing::Folder::new() }
    }

    fn source(&self, bytes: &[u8]) -> PathBuf {
        let path = self.from.path().join("file");
        fs::write(&path, bytes).unwrap();
        path
    }

    fn target(&self, name: &str) -> PathBuf {
        self.to.path().join(name)
    }

    fn folder(&self) -> Arc<Folder> {
        Arc::new(Folder::open(self.to.path()).unwrap())
    }

    fn receiver(&self, offer: &[u8]) -> Result<FileReceiver, String> {
        match Record::decode(offer).unwrap() {
            (TRANSFER, Record::Offer { size, hash, name }) => {
                FileReceiver::new(TRANSFER, (size, hash, name), &self.folder(), &notify())
            }
            other => panic!("not an offer: {other:?}"),
        }
    }

    /// Send the source. `disturb` is called before each record of the sender with the count of Data records.
    fn send(&self, path: &Path, mut disturb: impl FnMut(u64)) -> Outcome {
        let mut sender = FileSender::open(TRANSFER, path, "file").unwrap();
        let mut receiver: Option<FileReceiver> = None;
        let mut outcome = Outcome { sender: Ok(()), receiver: Ok(()), resumed: 0, data_bytes: 0 };
        let (mut chunks, mut sender_done, mut receiver_done) = (0, false, false);
        let deadline = Instant::now() + Duration::from_secs(20);
        while !(sender_done && receiver_done) {
            assert!(Instant::now() < deadline, "{outcome:?}");
            match sender.step() {
                Step::Send(bytes) => {
                    disturb(chunks);
                    let (_, record) = Record::decode(&bytes).unwrap();
                    if let Record::Data { bytes, .. } = &record {
                        chunks += 1;
                        outcome.data_bytes += bytes.len() as u64;
                    }
                    let answer = match (&record, &mut receiver) {
                        (Record::Offer { .. }, _) => self.receiver(&bytes).map(|made| receiver = Some(made)),
                        (_, Some(receiver)) => receiver.record(&record),
                        (_, None) => panic!("no receiver"),
                    };
                    if let Err(why) = answer {
                        outcome.receiver = Err(why);
                        return outcome;
                    }
                }
                Step::Failed(why) => {
                    outcome.sender = Err(why);
                    return outcome;
                }
                Step::Busy | Step::Idle | Step::Done(_) => {}
            }
            let step = receiver.as_mut().map_or(Step::Idle, FileReceiver::step);
            match step {
                Step::Send(bytes) => {
                    sender.record(&Record::decode(&bytes).unwrap().1).unwrap();
                }
                Step::Done(Some(bytes)) => {
                    sender_done = sender.record(&Record::decode(&bytes).unwrap().1).unwrap();
                    receiver_done = true;
                }
                Step::Failed(why) => {
                    outcome.receiver = Err(why);
                    return outcome;
                }
                Step::Busy | Step::Idle | Step::Done(None) => {}
            }
        }
        outcome.resumed = sender.resumed();
        assert_eq!(receiver.map(|receiver| receiver.resumed()), Some(sender.resumed()));
        outcome
    }

    fn arrived(&self, bytes: &[u8]) {
        assert!(fs::read(self.target("file")).unwrap() == bytes);
        assert!(!self.target("file.part").exists());
    }
}

#[test]
fn files_of_every_size_arrive() {
    for length in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES + 17] {
        let bench = Bench::new();
        let bytes = content(length);
        let outcome = bench.send(&bench.source(&bytes), |_| {});
        assert_eq!(
            outcome,
            Outcome { sender: Ok(()), receiver: Ok(()), resumed: 0, data_bytes: length as u64 }
        );
        bench.arrived(&bytes);
    }
}

#[test]
fn a_partial_file_is_resumed_if_it_is_the_beginning_of_the_file() {
    let bytes = content(3 * CHUNK_BYTES + 5);
    for (partial, resumed) in [
        (&bytes[..CHUNK_BYTES + 9], CHUNK_BYTES + 9),
        (&bytes[..], bytes.len()),
        (&b"something else"[..], 0),
        (&content(4 * CHUNK_BYTES)[..], 0),
    ] {
        let bench = Bench::new();
        fs::write(bench.target("file.part"), partial).unwrap();
        let outcome = bench.send(&bench.source(&bytes), |_| {});
        assert_eq!((outcome.sender, outcome.receiver), (Ok(()), Ok(())));
        assert_eq!((outcome.resumed, outcome.data_bytes), (resumed as u64, (bytes.len() - resumed) as u64));
        bench.arrived(&bytes);
    }
}

#[test]
fn a_file_that_is_there_already_is_not_sent_again() {
    let bench = Bench::new();
    let bytes = content(CHUNK_BYTES + 1);
    fs::write(bench.target("file"), &bytes).unwrap();
    let outcome = bench.send(&bench.source(&bytes), |_| {});
    assert_eq!((outcome.resumed, outcome.data_bytes), (bytes.len() as u64, 0));
}

#[test]
fn an_existing_file_with_other_content_stays() {
    for other in [content(11), content(10).into_iter().rev().collect()] {
        let bench = Bench::new();
        fs::write(bench.target("file"), &other).unwrap();
        let outcome = bench.send(&bench.source(&content(10)), |_| {});
        assert!(outcome.receiver.unwrap_err().contains("exists and differs"));
        assert_eq!(fs::read(bench.target("file")).unwrap(), other);
    }
}

#[test]
fn a_file_that_appears_during_the_transfer_stays() {
    let bench = Bench::new();
    let outcome = bench.send(&bench.source(&content(3 * CHUNK_BYTES)), |chunks| {
        if chunks == 2 {
            fs::write(bench.target("file"), b"mine").unwrap();
        }
    });
    assert!(outcome.receiver.unwrap_err().contains("exists"));
    assert_eq!(fs::read(bench.target("file")).unwrap(), b"mine");
}

#[test]
fn a_partial_file_that_another_replaced_never_gets_the_name() {
    let bytes = content(3 * CHUNK_BYTES);
    for replace in [true, false] {
        let bench = Bench::new();
        let mut other = None;
        let outcome = bench.send(&bench.source(&bytes), |chunks| {
            if chunks == 2 && other.is_none() {
                fs::remove_file(bench.target("file.part")).unwrap();
                other = replace.then(|| bench.receiver(&offer(10, [0; 32], b"file")).unwrap());
            }
        });
        assert!(outcome.receiver.unwrap_err().contains("was removed or replaced"));
        assert!(!bench.target("file").exists());
        assert_eq!(bench.target("file.part").exists(), replace);
    }
}

#[test]
fn a_file_that_changes_while_it_is_sent_never_gets_its_name() {
    let bytes = content(4 * CHUNK_BYTES);
    let changes: [fn(&Path); 3] = [
        |path| fs::write(path, content(4 * CHUNK_BYTES + 1)).unwrap(),
        |path| fs::write(path, b"short").unwrap(),
        |path| fs::write(path, vec![0; 4 * CHUNK_BYTES]).unwrap(),
    ];
    for change in changes {
        let bench = Bench::new();
        let path = bench.source(&bytes);
        let outcome = bench.send(&path, |chunks| {
            if chunks == 2 {
                change(&path);
            }
        });
        assert_eq!(outcome.sender, Err("the file changed while it was sent: send it again".to_owned()));
        assert!(!bench.target("file").exists());
    }
}

fn offer(size: u64, hash: Hash, name: &[u8]) -> Vec<u8> {
    Record::Offer { size, hash, name }.encode(TRANSFER)
}

fn refusal(bench: &Bench, size: u64, name: &[u8]) -> String {
    bench.receiver(&offer(size, [0; 32], name)).err().unwrap()
}

#[test]
fn a_receiver_writes_only_below_its_folder() {
    let bench = Bench::new();
    let outside = bench.from.path().join("outside");
    fs::write(&outside, b"untouched").unwrap();
    for name in ["../outside", "/etc/passwd", "..", ".", "a/b", "a\0b"] {
        refusal(&bench, 1, name.as_bytes());
    }
    symlink(&outside, bench.target("link")).unwrap();
    symlink(&outside, bench.target("other.part")).unwrap();
    assert!(refusal(&bench, 1, b"link").contains("symbolic link"));
    assert!(refusal(&bench, 1, b"other").contains("not a regular file"));
    fs::hard_link(&outside, bench.target("hard.part")).unwrap();
    assert!(refusal(&bench, 1, b"hard").contains("not a regular file"));
    fs::create_dir(bench.target("folder")).unwrap();
    assert!(refusal(&bench, 1, b"folder").contains("exists"));
    assert_eq!(fs::read(&outside).unwrap(), b"untouched");
    assert_eq!(fs::read_dir(bench.to.path()).unwrap().count(), 4);
}

#[test]
fn a_file_larger_than_the_disk_is_refused_at_the_offer() {
    let bench = Bench::new();
    assert!(refusal(&bench, u64::MAX / 2, b"file").contains("its disk is full"));
    assert_eq!(fs::read_dir(bench.to.path()).unwrap().count(), 0);
}

#[test]
fn two_transfers_of_a_name_do_not_share_a_partial_file() {
    let bench = Bench::new();
    let first = bench.receiver(&offer(10, [0; 32], b"file")).unwrap();
    assert!(refusal(&bench, 10, b"file").contains("another transfer"));
    drop(first);
    assert!(bench.receiver(&offer(10, [0; 32], b"file")).is_ok());
}

/// A receiver that has accepted an offer of `bytes`.
fn accepted(bench: &Bench, bytes: &[u8]) -> FileReceiver {
    let mut receiver = bench.receiver(&offer(bytes.len() as u64, hash_of(bytes), b"file")).unwrap();
    assert!(matches!(receiver.step(), Step::Send(_)));
    receiver
}

#[test]
fn a_transfer_that_fails_leaves_the_partial_file_of_another() {
    let bench = Bench::new();
    let mut first = accepted(&bench, &content(10));
    fs::remove_file(bench.target("file.part")).unwrap();
    let _second = accepted(&bench, &content(10));
    first.discard();
    assert!(bench.target("file.part").exists());
}

#[test]
fn records_that_do_not_fit_end_the_transfer() {
    let bytes = content(10);
    let misfits = [
        vec![Record::Data { offset: 0, bytes: &bytes }],
        vec![Record::End],
        vec![Record::Start { offset: 5 }],
        vec![Record::Start { offset: 0 }, Record::Start { offset: 0 }],
        vec![Record::Start { offset: 0 }, Record::Data { offset: 1, bytes: &bytes[1..] }],
        vec![Record::Start { offset: 0 }, Record::Data { offset: u64::MAX, bytes: &bytes }],
        vec![Record::Start { offset: 0 }, Record::Data { offset: 0, bytes: &[0; 11] }],
        vec![Record::Accept { offset: 0, hash: [0; 32] }],
    ];
    for records in misfits {
        let bench = Bench::new();
        let mut receiver = accepted(&bench, &bytes);
        let results: Vec<_> = records.iter().map(|record| receiver.record(record)).collect();
        assert!(results.last().unwrap().as_ref().unwrap_err().contains("does not fit"), "{records:?}");
        assert!(!bench.target("file").exists());
    }
}

#[test]
fn content_with_another_hash_is_removed() {
    for wrong in [content(9), vec![1; 10]] {
        let bench = Bench::new();
        let mut receiver = accepted(&bench, &content(10));
        receiver.record(&Record::Start { offset: 0 }).unwrap();
        receiver.record(&Record::Data { offset: 0, bytes: &wrong }).unwrap();
        assert!(receiver.record(&Record::End).unwrap_err().contains("differs from the offered hash"));
        assert_eq!(fs::read_dir(bench.to.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_receiver_that_claims_more_than_the_file_is_refused() {
    let bench = Bench::new();
    let mut sender = FileSender::open(TRANSFER, &bench.source(&content(10)), "file").unwrap();
    while !matches!(sender.step(), Step::Send(_)) {}
    assert!(sender.record(&Record::Accept { offset: 11, hash: [0; 32] }).is_err());
    assert!(sender.record(&Record::Start { offset: 0 }).is_err());
}

#[test]
fn what_is_not_a_regular_file_is_not_sent() {
    let bench = Bench::new();
    assert!(FileSender::open(1, bench.from.path(), "x").unwrap_err().contains("not a regular file"));
    assert!(FileSender::open(1, &bench.target("missing"), "x").unwrap_err().contains("no such file"));
    assert!(FileSender::open(1, &bench.source(b""), "a/b").unwrap_err().contains("slash"));
}
