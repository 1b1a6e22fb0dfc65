//! A connection as the event loop sees it: transfers, loads, and messages that wait for room.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use dcudp_proto::Micros;

use crate::channel::{self, Received};
use crate::event::{AppEvent, Content, FileState};
use crate::files::folder::Folder;
use crate::files::receiver::{FileReceiver, Notify};
use crate::files::record::Record;
use crate::files::sender::FileSender;
use crate::files::Step;
use crate::load;
use crate::watch::Watch;

/// How many files a peer may send at the same time. Each holds a buffer and an open file.
const INCOMING_FILES_MAX: usize = 16;
const PROGRESS_INTERVAL_US: Micros = 100_000;
/// How many queued messages of transfers make the connection wait for room.
const PENDING_MAX: usize = 4;
/// How many answers may wait for a peer that asks more and reads nothing.
const ANSWERS_MAX: usize = 256;

/// What a connection may receive.
#[derive(Clone)]
pub struct Services {
    /// Where received files go; None: offers are refused.
    pub folder: Option<Arc<Folder>>,
    /// Whether this end counts the load of a measurement.
    pub counts_load: bool,
    /// Wakes the event loop.
    pub notify: Notify,
}

/// What a peer did that ends the connection.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation;

/// A load that this end sends.
#[derive(Debug)]
struct Load {
    until_us: Micros,
    message: Vec<u8>,
}

/// One connection.
pub struct Connection {
    /// The peer's address.
    pub peer: SocketAddr,
    services: Services,
    sending: BTreeMap<u32, FileSender>,
    receiving: BTreeMap<u32, FileReceiver>,
    reported_us: BTreeMap<(bool, u32), Micros>,
    next_transfer: u32,
    load: Option<Load>,
    count: Option<load::Count>,
    /// Messages for the peer that did not fit into the send buffer.
    pending: VecDeque<Vec<u8>>,
    events: Vec<AppEvent>,
    /// The application has asked for the end.
    pub closing: bool,
    /// Whether data arrives.
    pub watch: Watch,
}

impl Connection {
    pub fn new(peer: SocketAddr, services: Services) -> Connection {
        Connection {
            peer,
            services,
            sending: BTreeMap::new(),
            receiving: BTreeMap::new(),
            reported_us: BTreeMap::new(),
            next_transfer: 0,
            load: None,
            count: None,
            pending: VecDeque::new(),
            events: Vec::new(),
            closing: false,
            watch: Watch::default(),
        }
    }

    /// Events for the application since the last call.
    pub fn take_events(&mut self) -> Vec<AppEvent> {
        std::mem::take(&mut self.events)
    }

    /// Begin to send a file. Returns the number of the transfer.
    pub fn send_file(&mut self, path: &Path, name: &str) -> Result<u32, String> {
        let transfer = self.next_transfer;
        let sender = FileSender::open(transfer, path, name)?;
        self.next_transfer += 1;
        self.sending.insert(transfer, sender);
        Ok(transfer)
    }

    /// Begin to send a load.
    pub fn send_load(&mut self, until_us: Micros) -> Result<(), String> {
        if self.load.is_some() {
            return Err("a load is being sent on this connection".to_owned());
        }
        self.load = Some(Load { until_us, message: load::data() });
        Ok(())
    }

    /// Take a message of the peer.
    pub fn receive(&mut self, data: Vec<u8>, now: Micros, cpu_us: u64) -> Result<(), Violation> {
        match channel::decode(&data).ok_or(Violation)? {
            Received::Message(_) => self.events.push(AppEvent::Message(Content { start: 1, data })),
            Received::Stream { stream, last, bytes } => {
                let start = data.len() - bytes.len();
                self.events.push(AppEvent::Stream { stream, last, content: Content { start, data } });
            }
            Received::File(record) => {
                let (transfer, record) = Record::decode(record).ok_or(Violation)?;
                self.file_record(transfer, &record, now);
            }
            Received::Load(record) => self.load_record(&load::decode(record).ok_or(Violation)?, now, cpu_us),
        }
        if self.pending.len() > ANSWERS_MAX {
            return Err(Violation);
        }
        Ok(())
    }

    fn load_record(&mut self, record: &load::Record, now: Micros, cpu_us: u64) {
        match record {
            load::Record::Data { .. } | load::Record::End if !self.services.counts_load => {
                // One answer is enough.
                if self.count.is_none() {
                    self.pending.push_back(load::refused());
                }
                self.count = Some(load::Count::new(now, cpu_us));
            }
            load::Record::Data { bytes } => {
                self.count.get_or_insert_with(|| load::Count::new(now, cpu_us)).add(*bytes);
            }
            load::Record::End => {
                let count = self.count.take().unwrap_or_else(|| load::Count::new(now, cpu_us));
                self.pending.push_back(load::result(count.measured(now, cpu_us)));
            }
            load::Record::Result(measured) => self.events.push(AppEvent::LoadDone(*measured)),
            load::Record::Refused => {
                self.load = None;
                self.events.push(AppEvent::LoadRefused);
            }
        }
    }

    /// A record for a transfer that has ended is ignored: it was under way.
    fn file_record(&mut self, transfer: u32, record: &Record, now: Micros) {
        match record {
            Record::Offer { size, hash, name } => self.offered(transfer, *size, *hash, name),
            Record::Accept { .. } | Record::Done | Record::Refused { .. } => {
                let answer = self.sending.get_mut(&transfer).map(|sender| sender.record(record));
                match answer {
                    Some(Ok(true)) => self.sent(transfer),
                    Some(Err(why)) => {
                        let refused = matches!(record, Record::Refused { .. });
                        self.sending_failed(transfer, why, !refused);
                    }
                    Some(Ok(false)) | None => {}
                }
            }
            Record::Failed { reason } => {
                self.reported_us.remove(&(true, transfer));
                // The part stays: the next transfer compares it with its file.
                if let Some(receiver) = self.receiving.remove(&transfer) {
                    let why = format!("the sender gave up: {reason}");
                    self.events.push(AppEvent::FileFailed(incoming(transfer, &receiver), why));
                }
            }
            Record::Start { .. } | Record::Data { .. } | Record::End => {
                let answer = self.receiving.get_mut(&transfer).map(|receiver| receiver.record(record));
                match answer {
                    Some(Err(why)) => self.receiving_failed(transfer, &why),
                    Some(Ok(())) => self.report_progress(true, transfer, now),
                    None => {}
                }
            }
        }
    }

    fn offered(&mut self, transfer: u32, size: u64, hash: [u8; 32], name: &[u8]) {
        let begun = match &self.services.folder {
            _ if self.receiving.contains_key(&transfer) => Err("its number is in use".to_owned()),
            _ if self.receiving.len() >= INCOMING_FILES_MAX => {
                Err(format!("it receives {INCOMING_FILES_MAX} files at the same time and no more"))
            }
            None => Err("it receives no files: start it with a folder".to_owned()),
            Some(folder) => FileReceiver::new(transfer, (size, hash, name), folder, &self.services.notify),
        };
        match begun {
            Ok(receiver) => {
                self.events.push(AppEvent::FileProgress(incoming(transfer, &receiver)));
                self.receiving.insert(transfer, receiver);
            }
            Err(reason) => {
                // The name is the peer's, so it may not be shown as it is.
                let name = String::from_utf8_lossy(name).escape_debug().take(100).collect();
                let state = FileState { transfer, incoming: true, name, size, done: 0, resumed: 0, hash };
                self.events.push(AppEvent::FileFailed(state, reason.clone()));
                self.pending.push_back(channel::file(&Record::Refused { reason }.encode(transfer)));
            }
        }
    }

    /// Whether a call of `work` would do something now.
    pub fn has_work(&self) -> bool {
        !self.pending.is_empty()
            || self.load.is_some()
            || !self.sending.is_empty()
            || !self.receiving.is_empty()
    }

    /// Whether the connection may be closed: this end has no more to say. Files that still arrive are cut off.
    pub fn may_close(&self) -> bool {
        let finishing = self.receiving.values().any(FileReceiver::is_finishing);
        self.pending.is_empty() && self.load.is_none() && self.sending.is_empty() && !finishing
    }

    /// Do a bounded amount of work: at most one step of each transfer. `send` gives a message to the protocol
    /// and returns whether it had room.
    ///
    /// Returns whether there is more to do at once.
    pub fn work(&mut self, now: Micros, room: bool, send: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        while let Some(message) = self.pending.front() {
            if !send(message) {
                return false;
            }
            self.pending.pop_front();
        }
        let mut busy = self.step_receivers(now);
        if room {
            busy |= self.step_senders(now);
            busy |= self.step_load(now, send);
        }
        while let Some(message) = self.pending.front() {
            if !send(message) {
                return false;
            }
            self.pending.pop_front();
        }
        busy
    }

    fn step_receivers(&mut self, now: Micros) -> bool {
        let mut busy = false;
        let numbers: Vec<u32> = self.receiving.keys().copied().collect();
        for transfer in numbers {
            let step = self.receiving.get_mut(&transfer).map_or(Step::Idle, FileReceiver::step);
            match step {
                Step::Busy => {
                    busy = true;
                    self.report_progress(true, transfer, now);
                }
                Step::Idle => {}
                Step::Send(record) => self.pending.push_back(channel::file(&record)),
                Step::Done(record) => {
                    self.pending.extend(record.map(|record| channel::file(&record)));
                    self.reported_us.remove(&(true, transfer));
                    if let Some(receiver) = self.receiving.remove(&transfer) {
                        let state = FileState { done: receiver.size(), ..incoming(transfer, &receiver) };
                        self.events.push(AppEvent::FileDone(state));
                    }
                }
                Step::Failed(why) => self.receiving_failed(transfer, &why),
            }
        }
        busy
    }

    fn step_senders(&mut self, now: Micros) -> bool {
        let mut busy = false;
        let numbers: Vec<u32> = self.sending.keys().copied().collect();
        for transfer in numbers {
            if self.pending.len() >= PENDING_MAX {
                return true;
            }
            let step = self.sending.get_mut(&transfer).map_or(Step::Idle, FileSender::step);
            match step {
                Step::Busy => busy = true,
                Step::Idle => {}
                Step::Send(record) => {
                    busy = true;
                    self.pending.push_back(channel::file(&record));
                    self.report_progress(false, transfer, now);
                }
                Step::Done(_) => self.sent(transfer),
                Step::Failed(why) => self.sending_failed(transfer, why, true),
            }
        }
        busy
    }

    fn step_load(&mut self, now: Micros, send: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        match &self.load {
            Some(load) if now < load.until_us => send(&load.message),
            Some(_) => {
                self.load = None;
                self.pending.push_back(load::end());
                true
            }
            None => false,
        }
    }

    fn sent(&mut self, transfer: u32) {
        self.reported_us.remove(&(false, transfer));
        if let Some(sender) = self.sending.remove(&transfer) {
            self.events.push(AppEvent::FileDone(outgoing(transfer, &sender)));
        }
    }

    fn sending_failed(&mut self, transfer: u32, why: String, inform_peer: bool) {
        self.reported_us.remove(&(false, transfer));
        if let Some(sender) = self.sending.remove(&transfer) {
            if inform_peer {
                self.pending
                    .push_back(channel::file(&Record::Failed { reason: why.clone() }.encode(transfer)));
            }
            self.events.push(AppEvent::FileFailed(outgoing(transfer, &sender), why));
        }
    }

    fn receiving_failed(&mut self, transfer: u32, why: &str) {
        self.reported_us.remove(&(true, transfer));
        if let Some(receiver) = self.receiving.remove(&transfer) {
            let refused = Record::Refused { reason: why.to_owned() };
            self.pending.push_back(channel::file(&refused.encode(transfer)));
            self.events.push(AppEvent::FileFailed(incoming(transfer, &receiver), why.to_owned()));
        }
    }

    fn report_progress(&mut self, is_incoming: bool, transfer: u32, now: Micros) {
        let reported = self.reported_us.entry((is_incoming, transfer)).or_insert(0);
        if now < *reported + PROGRESS_INTERVAL_US {
            return;
        }
        *reported = now;
        let state = if is_incoming {
            self.receiving.get(&transfer).map(|receiver| incoming(transfer, receiver))
        } else {
            self.sending.get(&transfer).map(|sender| outgoing(transfer, sender))
        };
        self.events.extend(state.map(AppEvent::FileProgress));
    }

    /// The connection has ended: so have its transfers. Partial files stay, so that they can be resumed.
    pub fn end(&mut self, why: &str) {
        for (transfer, sender) in std::mem::take(&mut self.sending) {
            self.events.push(AppEvent::FileFailed(outgoing(transfer, &sender), why.to_owned()));
        }
        for (transfer, receiver) in std::mem::take(&mut self.receiving) {
            self.events.push(AppEvent::FileFailed(incoming(transfer, &receiver), why.to_owned()));
        }
    }
}

fn incoming(transfer: u32, receiver: &FileReceiver) -> FileState {
    FileState {
        transfer,
        incoming: true,
        name: receiver.name().to_owned(),
        size: receiver.size(),
        done: receiver.received(),
        resumed: receiver.resumed(),
        hash: receiver.hash(),
    }
}

fn outgoing(transfer: u32, sender: &FileSender) -> FileState {
    FileState {
        transfer,
        incoming: false,
        name: sender.name().to_owned(),
        size: sender.size(),
        done: sender.sent(),
        resumed: sender.resumed(),
        hash: sender.hash(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    const MESSAGES: u32 = 100_000;

    fn connection(folder: Option<Arc<Folder>>) -> Connection {
        let services = Services { folder, counts_load: true, notify: Arc::new(|| {}) };
        Connection::new("127.0.0.1:9".parse().unwrap(), services)
    }

    /// Random records that are mostly well-formed, as a hostile peer with the key may send them.
    #[test]
    fn random_messages_of_a_peer_neither_panic_nor_grow_the_connection() {
        let folder = testing::Folder::new();
        let mut connection = connection(Some(Arc::new(Folder::open(folder.path()).unwrap())));
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let mut violations = 0;
        for _ in 0..MESSAGES {
            let mut message = vec![random(5) as u8, random(10) as u8, 0, 0, 0, random(20) as u8];
            message.extend((0..random(60)).map(|_| (random(3) * random(128)) as u8));
            violations += u32::from(connection.receive(message, 1, 1).is_err());
            connection.work(random(1 << 40), random(2) == 0, &mut |_| random(4) > 0);
            connection.take_events();
            assert!(connection.pending.len() <= ANSWERS_MAX + 2 * INCOMING_FILES_MAX);
            assert!(connection.receiving.len() <= INCOMING_FILES_MAX);
        }
        assert!(violations > 0 && violations < MESSAGES, "{violations}");
    }

    #[test]
    fn a_peer_that_asks_and_reads_nothing_is_cut_off() {
        let mut connection = connection(None);
        let offer = channel::file(&Record::Offer { size: 1, hash: [0; 32], name: b"a" }.encode(1));
        let answers = (0..).take_while(|_| connection.receive(offer.clone(), 1, 1).is_ok()).count();
        assert_eq!(answers, ANSWERS_MAX);
    }

    #[test]
    fn a_sender_that_gives_up_leaves_the_part_for_the_next_transfer() {
        let folder = testing::Folder::new();
        let mut connection = connection(Some(Arc::new(Folder::open(folder.path()).unwrap())));
        let offer = Record::Offer { size: 10, hash: [0; 32], name: b"file" };
        let records = [offer, Record::Start { offset: 0 }, Record::Data { offset: 0, bytes: b"begin" }];
        let failed = Record::Failed { reason: "it cannot read the file".to_owned() };
        for record in records.iter().chain([&failed]) {
            connection.receive(channel::file(&record.encode(1)), 1, 1).unwrap();
            while connection.work(1, true, &mut |_| true) {}
        }
        let last = connection.take_events().pop().unwrap();
        assert!(matches!(last, AppEvent::FileFailed(_, why) if why.contains("the sender gave up")));
        assert_eq!(std::fs::read(folder.path().join("file.part")).unwrap(), b"begin");
        assert!(connection.reported_us.is_empty());
    }

    #[test]
    fn an_end_that_counts_no_load_refuses_it_once() {
        let mut connection = connection(None);
        connection.services.counts_load = false;
        for _ in 0..10 {
            connection.receive(load::data(), 1, 1).unwrap();
        }
        let mut sent = Vec::new();
        connection.work(1, true, &mut |message| {
            sent.push(message.to_vec());
            true
        });
        assert_eq!(sent, [load::refused()]);
    }
}
