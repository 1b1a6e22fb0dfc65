//! The send buffer: messages cut into packets, what the peer acknowledged, and what it lost.
//!
//! Positions count packets from 0 and do not wrap; sequence numbers are positions plus the initial number,
//! modulo 2^31.

use std::collections::{BTreeSet, VecDeque};

use crate::wire::LossRange;
use crate::{seq::Seq, Micros};

/// A packet that waits for its acknowledgement.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// A part of a message.
    pub payload: Vec<u8>,
    /// The first packet of its message.
    pub first: bool,
    /// The last packet of its message.
    pub last: bool,
    /// The position of its message.
    pub message: u64,
    sent_us: Micros,
    sendings: u32,
}

/// A report contradicts what was sent. It is dropped as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contradiction;

/// Packets from the oldest that is not acknowledged.
#[derive(Debug)]
pub struct SendBuffer {
    initial: Seq,
    packets: VecDeque<Outgoing>,
    base: u64,
    next: u64,
    window_end: u64,
    lost: BTreeSet<u64>,
    arrived: u64,
    bytes: usize,
    /// Acknowledged bytes of the oldest message that is not acknowledged as a whole.
    begun_bytes: usize,
    messages: u64,
}

impl SendBuffer {
    /// `window_packets` is the peer's first window.
    pub fn new(initial: Seq, window_packets: u32) -> SendBuffer {
        SendBuffer {
            initial,
            packets: VecDeque::new(),
            base: 0,
            next: 0,
            window_end: u64::from(window_packets),
            lost: BTreeSet::new(),
            arrived: 0,
            bytes: 0,
            begun_bytes: 0,
            messages: 0,
        }
    }

    /// Bytes in the buffer. Each packet counts as at least 64, so that empty messages are bounded too.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of messages that the peer did not acknowledge as a whole. Without its rest a message is lost.
    pub fn unconfirmed_bytes(&self) -> usize {
        self.begun_bytes + self.bytes - 64 * self.packets.len()
    }

    /// The bytes that a message takes in the buffer.
    pub fn cost(length: usize, payload_bytes: usize) -> usize {
        let packets = length / payload_bytes + 1;
        length + 64 * packets
    }

    /// Appends a message and returns its position.
    pub fn push(&mut self, data: &[u8], payload_bytes: usize) -> u64 {
        let message = self.messages;
        self.messages += 1;
        let count = (data.len().max(1) + payload_bytes - 1) / payload_bytes;
        for index in 0..count {
            let end = data.len().min((index + 1) * payload_bytes);
            let payload = data[index * payload_bytes..end].to_vec();
            self.bytes += payload.len() + 64;
            let (first, last) = (index == 0, index + 1 == count);
            self.packets.push_back(Outgoing { payload, first, last, message, sent_us: 0, sendings: 0 });
        }
        message
    }

    /// The sequence number of a position.
    pub fn sequence(&self, position: u64) -> Seq {
        self.initial.plus(position as u32)
    }

    /// The position of the next new packet.
    pub fn next_position(&self) -> u64 {
        self.next
    }

    /// The position after the last packet that arrived, or that the peer knows to be lost.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// How many packets the peer acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.base
    }

    /// The free window in packets.
    pub fn window_packets(&self) -> u64 {
        self.window_end.saturating_sub(self.next)
    }

    /// True if sent packets are not acknowledged.
    pub fn awaits_acknowledgement(&self) -> bool {
        self.next > self.base
    }

    /// True if nothing waits for sending or acknowledgement.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// True if packets wait that were never sent.
    pub fn has_new(&self) -> bool {
        self.next < self.base + self.packets.len() as u64
    }

    /// True if a packet may be sent now, apart from pacing.
    pub fn can_send(&self) -> bool {
        !self.lost.is_empty() || (self.has_new() && self.next < self.window_end)
    }

    fn peek(&self) -> Option<u64> {
        match self.lost.iter().next() {
            Some(position) => Some(*position),
            None if self.can_send() => Some(self.next),
            None => None,
        }
    }

    /// The packet to send now with its position, lost ones first; true if it was sent before.
    pub fn take(&mut self, now: Micros) -> Option<(u64, &Outgoing, bool)> {
        let position = self.peek()?;
        if !self.lost.remove(&position) {
            self.next += 1;
        }
        let packet = &mut self.packets[(position - self.base) as usize];
        packet.sent_us = now;
        packet.sendings = packet.sendings.saturating_add(1);
        let again = packet.sendings > 1;
        Some((position, packet, again))
    }

    /// The position of a sequence number that lies near the packets in flight.
    fn position(&self, sequence: Seq) -> Option<u64> {
        let offset = self.sequence(self.base).offset(sequence);
        if offset >= 0 {
            return Some(self.base + offset as u64);
        }
        self.base.checked_sub(u64::from(offset.unsigned_abs()))
    }

    /// Takes the acknowledgement and the window of a report.
    ///
    /// A report may be older than another. Then its acknowledgement and window change nothing.
    pub fn acknowledge(
        &mut self,
        next_expected: Seq,
        end: Seq,
        window_end: Seq,
    ) -> Result<u64, Contradiction> {
        let expected = self.position(next_expected).ok_or(Contradiction)?;
        let end = self.position(end).ok_or(Contradiction)?;
        let window = self.position(window_end).ok_or(Contradiction)?;
        if expected > self.next || end > self.next || end < expected || window < expected {
            return Err(Contradiction);
        }
        self.window_end = self.window_end.max(window);
        self.arrived = self.arrived.max(end);
        let acknowledged = expected.saturating_sub(self.base);
        for _ in 0..acknowledged {
            if let Some(packet) = self.packets.pop_front() {
                self.bytes -= packet.payload.len() + 64;
                self.begun_bytes = if packet.last { 0 } else { self.begun_bytes + packet.payload.len() };
            }
        }
        self.base += acknowledged;
        self.lost = self.lost.split_off(&self.base);
        Ok(acknowledged)
    }

    /// Takes the losses of a report, and returns how many are new and the position after the last of them.
    ///
    /// A packet that was sent again less than `guard_us` ago may still be on its way.
    pub fn mark_lost(
        &mut self,
        now: Micros,
        ranges: &[LossRange],
        guard_us: Micros,
    ) -> Result<(u64, u64), Contradiction> {
        let (mut lost, mut lost_end, mut from) = (0, 0, 0);
        for range in ranges {
            let first = self.position(range.first).ok_or(Contradiction)?;
            let last = self.position(range.last).ok_or(Contradiction)?;
            // Ranges that ascend name each packet once, so a report costs at most the window.
            if last >= self.next || last < first || first < from {
                return Err(Contradiction);
            }
            from = last + 1;
            for position in first.max(self.base)..=last {
                let packet = &self.packets[(position - self.base) as usize];
                let on_its_way = packet.sendings > 1 && now.saturating_sub(packet.sent_us) < guard_us;
                if !on_its_way && self.lost.insert(position) {
                    lost += 1;
                    lost_end = position + 1;
                }
            }
        }
        Ok((lost, lost_end))
    }
}
