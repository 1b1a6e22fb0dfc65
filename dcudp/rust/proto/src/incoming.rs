//! The receive buffer: packets behind gaps, the gaps themselves, and messages that become complete.

use std::collections::{BTreeMap, VecDeque};

use crate::seq::Seq;
use crate::wire::{DataHeader, LossRange, MESSAGE_NUMBERS};
use crate::Micros;

/// Gaps that are remembered. A packet that would make one more is dropped, as if the network had lost it.
pub const MAX_GAPS: usize = 2048;

/// What the place of a packet takes beside its payload.
pub const PLACE_BYTES: usize = 64;
/// The least wait before a gap is reported with nothing behind it.
const LEAST_WAIT_US: Micros = 500;

/// What the connection knows of the path.
#[derive(Debug, Clone, Copy)]
pub struct Rtt {
    /// The smoothed RTT.
    pub smoothed_us: Micros,
    /// RTT_idle.
    pub least_us: Micros,
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It was stored.
    New,
    /// It was there already.
    Duplicate,
    /// It lies beyond the window or would make too many gaps.
    Refused,
    /// It contradicts packets that arrived earlier.
    Malformed,
}

#[derive(Debug)]
struct Stored {
    payload: Vec<u8>,
    header: DataHeader,
}

#[derive(Debug)]
enum Slot {
    Missing,
    Present(Stored),
    Delivered,
}

#[derive(Debug, Clone, Copy)]
struct Gap {
    end: u64,
    due_us: Micros,
    reports: u32,
    since_us: Micros,
    /// When the gap became a loss.
    lost_us: Option<Micros>,
}

#[derive(Debug, Default)]
struct Partial {
    first: Option<u64>,
    last: Option<u64>,
    count: u64,
}

/// A complete message.
#[derive(Debug, PartialEq, Eq)]
pub struct Complete {
    /// The position among the peer's messages.
    pub message: u64,
    /// The content.
    pub data: Vec<u8>,
    /// The window that it occupies until the application reads it.
    pub packets: u32,
}

/// Received packets from the oldest that is not delivered.
#[derive(Debug)]
pub struct ReceiveBuffer {
    initial: Seq,
    capacity: u64,
    reorder: u64,
    slots: VecDeque<Slot>,
    base: u64,
    next_expected: u64,
    end: u64,
    window_end: u64,
    lateness_us: Micros,
    unread: u64,
    unread_bytes: usize,
    bytes: usize,
    message_start: u64,
    last_message: u64,
    gaps: BTreeMap<u64, Gap>,
    fresh: VecDeque<u64>,
    partials: BTreeMap<u64, Partial>,
    ready: VecDeque<Complete>,
}

impl ReceiveBuffer {
    /// `initial` is the peer's first sequence number.
    pub fn new(initial: Seq, capacity_packets: u32, reorder_packets: u32) -> ReceiveBuffer {
        ReceiveBuffer {
            initial,
            capacity: u64::from(capacity_packets),
            reorder: u64::from(reorder_packets),
            slots: VecDeque::new(),
            base: 0,
            next_expected: 0,
            end: 0,
            window_end: u64::from(capacity_packets),
            lateness_us: 0,
            unread: 0,
            unread_bytes: 0,
            bytes: 0,
            message_start: 0,
            last_message: 0,
            gaps: BTreeMap::new(),
            fresh: VecDeque::new(),
            partials: BTreeMap::new(),
            ready: VecDeque::new(),
        }
    }

    fn sequence(&self, position: u64) -> Seq {
        self.initial.plus(position as u32)
    }

    /// The number before which all arrived.
    pub fn next_expected(&self) -> Seq {
        self.sequence(self.next_expected)
    }

    /// The number after the highest that arrived or that the peer sent.
    pub fn end(&self) -> Seq {
        self.sequence(self.end)
    }

    /// The number before which the peer may send.
    pub fn window_end(&self) -> Seq {
        self.sequence(self.window_end)
    }

    /// Bytes behind gaps, in incomplete messages, and in messages that the application has not read. Each
    /// place of a packet counts as `PLACE_BYTES`, so that empty packets and gaps are bounded too.
    pub fn bytes(&self) -> usize {
        self.bytes + (self.slots.len() + self.unread as usize) * PLACE_BYTES
    }

    /// Those of `bytes` that are in messages which the application has not read.
    pub fn unread_bytes(&self) -> usize {
        self.unread_bytes + self.unread as usize * PLACE_BYTES
    }

    fn position(&self, sequence: Seq) -> Option<u64> {
        let offset = self.next_expected().offset(sequence);
        if offset >= 0 {
            return Some(self.next_expected + offset as u64);
        }
        self.next_expected.checked_sub(u64::from(offset.unsigned_abs()))
    }

    /// Stores a packet. A new gap is reported after half an RTT even if nothing arrives behind it.
    pub fn insert(&mut self, now: Micros, header: &DataHeader, payload: &[u8], rtt: Rtt) -> Arrival {
        let position = match self.position(header.sequence) {
            Some(position) => position,
            None => return Arrival::Duplicate,
        };
        if position < self.next_expected {
            return Arrival::Duplicate;
        }
        if position >= self.window_end {
            return Arrival::Refused;
        }
        let index = (position - self.base) as usize;
        match self.slots.get(index) {
            None | Some(Slot::Missing) => {}
            Some(_) => return Arrival::Duplicate,
        }
        // Each incomplete message has a packet here, so more of them than places contradict earlier packets.
        if !self.fits_neighbours(position, header) || self.partials.len() > self.slots.len() {
            return Arrival::Malformed;
        }
        if !self.note_gaps(now, position, rtt) {
            return Arrival::Refused;
        }
        while self.slots.len() <= index {
            self.slots.push_back(Slot::Missing);
        }
        self.bytes += payload.len();
        self.slots[index] = Slot::Present(Stored { payload: payload.to_vec(), header: *header });
        if !header.ordered {
            self.note_partial(position, header);
        }
        self.advance();
        Arrival::New
    }

    /// Packets next to each other agree on where a message ends, which number it has, and whether it is
    /// ordered.
    fn fits_neighbours(&self, position: u64, header: &DataHeader) -> bool {
        let neighbour =
            |at: Option<u64>| match at.and_then(|at| self.slots.get((at.checked_sub(self.base)?) as usize)) {
                Some(Slot::Present(stored)) => Some(stored.header),
                _ => None,
            };
        let joins = |before: &DataHeader, after: &DataHeader| {
            if before.last != after.first {
                return false;
            }
            let step = after.message.wrapping_sub(before.message) & (MESSAGE_NUMBERS - 1);
            step == u32::from(before.last) && (before.last || before.ordered == after.ordered)
        };
        if position == 0 && !(header.first && header.message == 0) {
            return false;
        }
        let before = neighbour(position.checked_sub(1));
        let after = neighbour(Some(position + 1));
        before.map_or(true, |before| joins(&before, header))
            && after.map_or(true, |after| joins(header, &after))
    }

    /// Opens a gap before a position beyond the end, or closes or splits the gap around it.
    fn note_gaps(&mut self, now: Micros, position: u64, rtt: Rtt) -> bool {
        if position >= self.end {
            if position > self.end {
                if self.gaps.len() >= MAX_GAPS {
                    return false;
                }
                let wait_us = (rtt.smoothed_us / 2).max(LEAST_WAIT_US).max(self.lateness_us);
                self.open_gap(now, position, wait_us);
            }
            self.end = position + 1;
            return true;
        }
        let (start, gap) = match self.gaps.range(..=position).next_back() {
            Some((start, gap)) if position < gap.end => (*start, *gap),
            _ => return true,
        };
        let splits = position > start && position + 1 < gap.end;
        if splits && self.gaps.len() >= MAX_GAPS {
            return false;
        }
        self.note_lateness(now, &gap, rtt);
        self.gaps.remove(&start);
        if position > start {
            self.gaps.insert(start, Gap { end: position, ..gap });
        }
        if position + 1 < gap.end {
            self.gaps.insert(position + 1, gap);
            if gap.lost_us.is_none() {
                self.fresh.push_back(position + 1);
            }
        }
        true
    }

    /// The peer's next number shows packets that were lost behind the last one that arrived.
    pub fn note_peer_next(&mut self, now: Micros, next_sequence: Seq, wait_us: Micros) {
        let position = match self.position(next_sequence) {
            Some(position) => position.min(self.window_end),
            None => return,
        };
        if position > self.end && self.gaps.len() < MAX_GAPS {
            self.open_gap(now, position, wait_us);
            self.end = position;
        }
    }

    fn open_gap(&mut self, now: Micros, position: u64, wait_us: Micros) {
        let gap = Gap { end: position, due_us: now + wait_us, reports: 0, since_us: now, lost_us: None };
        self.gaps.insert(self.end, gap);
        self.fresh.push_back(self.end);
    }

    /// A packet of a gap arrived. If the gap became a loss less than the least RTT ago, this is not the
    /// retransmission: the packet was only late, and others as late are waited for.
    fn note_lateness(&mut self, now: Micros, gap: &Gap, rtt: Rtt) {
        if gap.lost_us.map_or(false, |lost_us| now.saturating_sub(lost_us) < rtt.least_us) {
            let lateness_us = now.saturating_sub(gap.since_us) * 5 / 4;
            self.lateness_us = self.lateness_us.max(lateness_us).min(rtt.smoothed_us);
        }
    }

    fn message_position(&self, number: u32) -> u64 {
        // The signed distance between 26-bit numbers, as `Seq::offset` does it for 31 bits.
        let distance = ((number.wrapping_sub(self.last_message as u32) << 6) as i32) >> 6;
        if distance >= 0 {
            return self.last_message + distance as u64;
        }
        self.last_message.saturating_sub(u64::from(distance.unsigned_abs()))
    }

    fn note_partial(&mut self, position: u64, header: &DataHeader) {
        let message = self.message_position(header.message);
        let partial = self.partials.entry(message).or_default();
        partial.count += 1;
        if header.first {
            partial.first = Some(position);
        }
        if header.last {
            partial.last = Some(position);
        }
        if let (Some(first), Some(last)) = (partial.first, partial.last) {
            // A peer that contradicts itself can have `first` delivered with another message.
            let whole = (self.base..=last).contains(&first)
                && last - first + 1 == partial.count
                && (first..=last).all(|at| matches!(self.slots[(at - self.base) as usize], Slot::Present(_)));
            if whole {
                self.partials.remove(&message);
                self.last_message = self.last_message.max(message);
                self.deliver(message, first, last);
            }
        }
    }

    /// Moves `next_expected` over what arrived, and delivers ordered messages that are complete.
    fn advance(&mut self) {
        loop {
            let slot = match self.slots.get((self.next_expected - self.base) as usize) {
                None | Some(Slot::Missing) => break,
                Some(slot) => slot,
            };
            let (start, position) = (self.message_start, self.next_expected);
            self.next_expected += 1;
            match slot {
                Slot::Present(stored) if stored.header.last => {
                    let message = self.message_position(stored.header.message);
                    self.message_start = position + 1;
                    self.last_message = self.last_message.max(message);
                    // A peer that contradicts itself sends packets of this message in other places too.
                    self.partials.remove(&message);
                    self.deliver(message, start, position);
                }
                Slot::Delivered => self.message_start = position + 1,
                _ => {}
            }
        }
        while self.base < self.next_expected && matches!(self.slots.front(), Some(Slot::Delivered)) {
            self.slots.pop_front();
            self.base += 1;
        }
        self.open_window();
    }

    fn deliver(&mut self, message: u64, first: u64, last: u64) {
        let mut data = Vec::new();
        for position in first..=last {
            let index = (position - self.base) as usize;
            if let Slot::Present(stored) = std::mem::replace(&mut self.slots[index], Slot::Delivered) {
                data.extend_from_slice(&stored.payload);
            }
        }
        let packets = last - first + 1;
        self.unread += packets;
        self.unread_bytes += data.len();
        self.ready.push_back(Complete { message, data, packets: packets as u32 });
    }

    /// The next complete message. It occupies the window until `read`.
    pub fn pop(&mut self) -> Option<Complete> {
        self.ready.pop_front()
    }

    /// The application read a message.
    pub fn read(&mut self, packets: u32, bytes: usize) {
        self.unread = self.unread.saturating_sub(u64::from(packets));
        self.bytes = self.bytes.saturating_sub(bytes);
        self.unread_bytes = self.unread_bytes.saturating_sub(bytes);
        self.open_window();
    }

    fn open_window(&mut self) {
        // An unordered message that was delivered before its place in the order is counted twice until `base`
        // passes it. So the window is at most too small.
        let open = (self.base + self.capacity).saturating_sub(self.unread);
        self.window_end = self.window_end.max(open);
    }

    /// Packets in gaps that became losses: `reorder_packets` later ones arrived and reordered packets would
    /// have arrived, or the gap was reported before.
    pub fn take_new_losses(&mut self, now: Micros) -> u32 {
        let mut packets = 0;
        let (reorder, lateness_us) = (self.reorder.max(1), self.lateness_us);
        let is_lost = |gap: &Gap, end: u64| {
            gap.reports > 0 || (end - gap.end >= reorder && now.saturating_sub(gap.since_us) >= lateness_us)
        };
        for _ in 0..self.fresh.len() {
            let start = match self.fresh.pop_front() {
                Some(start) => start,
                None => break,
            };
            let end = self.end;
            match self.gaps.get_mut(&start) {
                None => {}
                Some(gap) if gap.lost_us.is_some() => {}
                Some(gap) if is_lost(gap, end) => {
                    gap.lost_us = Some(now);
                    if gap.reports == 0 {
                        gap.due_us = 0;
                    }
                    packets += (gap.end - start) as u32;
                }
                Some(_) => self.fresh.push_back(start),
            }
        }
        packets
    }

    /// When a gap must be reported, for the first time or again.
    pub fn next_report_us(&self) -> Option<Micros> {
        self.gaps.values().map(|gap| gap.due_us).min()
    }

    /// The gaps that are due, at most `limit` ranges. Each is due again after `repeat_us` times its reports.
    pub fn due_losses(&mut self, now: Micros, repeat_us: Micros, limit: usize) -> Vec<LossRange> {
        let initial = self.initial;
        let mut ranges = Vec::new();
        for (start, gap) in self.gaps.iter_mut().filter(|(_, gap)| gap.due_us <= now).take(limit) {
            gap.reports = gap.reports.saturating_add(1);
            gap.due_us = now + repeat_us * Micros::from(gap.reports.min(8));
            ranges.push(LossRange {
                first: initial.plus(*start as u32),
                last: initial.plus((gap.end - 1) as u32),
            });
        }
        ranges
    }
}
