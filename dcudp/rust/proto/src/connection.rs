//! One connection after its handshake: reliability, flow control, the two modes, and its end.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::handshake::{self, Answer};
use crate::incoming::{Arrival, ReceiveBuffer, Rtt};
use crate::observer::{AckFlags, Observation, Observer};
use crate::outgoing::SendBuffer;
use crate::sender::{Progress, RateControl, Reaction};
use crate::seq::Seq;
use crate::wire::{
    decode_obs_change, encode_obs_change, Bits, ControlHeader, ControlType, DataHeader, Header, Report,
    Shutdown, HEADER_BYTES, MESSAGE_NUMBERS, REPORT_BYTES, SHUTDOWN_BYTES, VERSION,
};
use crate::{
    CloseReason, Config, Ecn, Event, MessageId, Micros, Mode, Protect, Route, SendError, Statistics, Transmit,
};

/// A sender that is late by at most this time catches up with a burst.
const CATCH_UP_US: f64 = 250.0;
/// The RTT before one is measured.
const FIRST_RTT_US: Micros = 1000;
/// A burst in the UDP Mode asks for a report after so many packets,
const ASKS_AFTER_PACKETS: u32 = 32;
/// and after so many it sends one packet per RTT until it has heard of one of them.
const UNKNOWN_PATH_PACKETS: f64 = 64.0;
/// The same in C x RTT_idle, if that is more.
const UNKNOWN_PATH_BDPS: f64 = 1.5;
/// In the Congestion Mode a sender sends fewer packets than arrive if more than so many C x RTT_idle are in
/// flight,
const MOST_BDPS: f64 = 4.0;
/// and more than so many packets.
const LEAST_FLIGHT_PACKETS: f64 = 16.0;
/// A larger window of the peer counts as this.
const MAX_WINDOW_PACKETS: u32 = 1 << 20;
/// Limits of an RTT that the peer reports.
const PEER_RTT_US: (Micros, Micros) = (10, 10_000_000);
/// Shutdowns that are sent without an answer.
const SHUTDOWNS: u32 = 5;
/// Data packets without ECT, and none with it, that show a path which erases ECN.
const BLEACHED_PACKETS: u64 = 16;
/// So many losses without a mark show that the path does not mark.
const UNMARKED_LOSSES: u64 = 16;
/// Timeouts after which the interval of probes no longer doubles.
const MAX_BACKOFF: u32 = 6;

/// What a connection needs from its handshake.
pub struct Opening {
    /// The peer's number of the connection.
    pub peer_id: u32,
    /// The peer's address, and this host's if the peer has chosen it.
    pub route: Route,
    /// This host's first data sequence number.
    pub initial_sequence: Seq,
    /// The peer's.
    pub peer_initial_sequence: Seq,
    /// The peer's receive window.
    pub peer_window_packets: u32,
    /// The size of datagrams that the path carries.
    pub mtu_bytes: usize,
    /// The RTT of the handshake.
    pub rtt_us: Option<Micros>,
    /// This host's first control sequence number.
    pub control_sequence: Seq,
    /// The keys.
    pub protect: Box<dyn Protect + Send>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Life {
    Open,
    /// `close` waits for acknowledgements.
    Draining {
        until_us: Micros,
    },
    /// A shutdown waits for its answer.
    Closing {
        reason: CloseReason,
        kind: Shutdown,
        sent: u32,
        next_us: Micros,
    },
    /// The peer closed: its repeated shutdowns are answered.
    Answering {
        until_us: Micros,
    },
    Ended,
}

/// An event, and the part of the receive window that it occupies until it is read.
#[derive(Debug)]
pub struct Queued {
    /// The event.
    pub event: Event,
    /// Packets of its message.
    pub packets: u32,
}

#[derive(Debug, Default)]
struct Counts {
    data_sent: u64,
    retransmitted: u64,
    data_received: u64,
    duplicates: u64,
    lost: u64,
    ce_received: u64,
    /// Losses of the packets that this end receives; `lost` counts both directions.
    missed: u64,
    ect_received: u64,
    control_sent: u64,
    congestion_entries: u64,
    timeouts: u64,
    dropped: u64,
}

/// Answers that are due. Each kind is kept once, so hostile packets cannot queue them.
#[derive(Debug, Default)]
struct Due {
    ack2: Option<Seq>,
    obs_change: Option<Seq>,
    keep_alive: bool,
    reply: bool,
    shutdown_answer: bool,
    cwr: bool,
}

/// A connection.
pub struct Connection {
    config: Arc<Config>,
    peer_id: u32,
    route: Route,
    protect: Box<dyn Protect + Send>,
    life: Life,
    started_us: Micros,
    mtu_bytes: usize,
    largest_payload: usize,
    peer_window_packets: u32,
    send: SendBuffer,
    receive: ReceiveBuffer,
    rate: RateControl,
    observer: Observer,
    peer_rtt_us: Option<Micros>,
    control_sequence: Seq,
    last_report: Option<Seq>,
    next_send_us: f64,
    idle: bool,
    /// The position of the first packet of the present burst in the UDP Mode, and how many were sent since then.
    burst_from: u64,
    burst_packets: u32,
    last_heard_us: Micros,
    last_sent_us: Micros,
    last_data_sent_us: Micros,
    silent_since_us: Micros,
    backoff: u32,
    tail_probed: u64,
    unreported: u32,
    unreported_since_us: Micros,
    advertised_end: Seq,
    wants_writable: bool,
    mode_event: bool,
    due: Due,
    counts: Counts,
    events: VecDeque<Queued>,
    scratch: Vec<u8>,
}

impl Connection {
    /// Begins a connection.
    pub fn new(now: Micros, config: Arc<Config>, opening: Opening) -> Connection {
        let receive = ReceiveBuffer::new(
            opening.peer_initial_sequence,
            config.receive_window_packets,
            config.reorder_packets,
        );
        let mut observer = Observer::new(&config);
        if let Some(rtt_us) = opening.rtt_us {
            observer.on_rtt(rtt_us);
        }
        let mut rate = RateControl::new(config.link_rate_bps, config.max_rate_bps, opening.mtu_bytes);
        rate.set_rtt(opening.rtt_us.unwrap_or(FIRST_RTT_US));
        Connection {
            peer_id: opening.peer_id,
            route: opening.route,
            largest_payload: opening.mtu_bytes,
            protect: opening.protect,
            life: Life::Open,
            started_us: now,
            mtu_bytes: opening.mtu_bytes,
            peer_window_packets: opening.peer_window_packets.min(MAX_WINDOW_PACKETS),
            send: SendBuffer::new(
                opening.initial_sequence,
                opening.peer_window_packets.min(MAX_WINDOW_PACKETS),
            ),
            advertised_end: receive.window_end(),
            receive,
            rate,
            observer,
            peer_rtt_us: None,
            control_sequence: opening.control_sequence,
            last_report: None,
            next_send_us: 0.0,
            idle: true,
            burst_from: 0,
            burst_packets: 0,
            last_heard_us: now,
            last_sent_us: now,
            last_data_sent_us: now,
            silent_since_us: now,
            backoff: 0,
            tail_probed: 0,
            unreported: 0,
            unreported_since_us: now,
            wants_writable: false,
            mode_event: false,
            due: Due::default(),
            counts: Counts::default(),
            events: VecDeque::new(),
            scratch: Vec::new(),
            config,
        }
    }

    /// The peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.route.peer
    }

    /// The peer's number of the connection.
    pub fn peer_id(&self) -> u32 {
        self.peer_id
    }

    /// A responder's ACCEPT of this length.
    pub fn accept(&mut self, now: Micros, answer: &Answer, window_packets: u32, length: usize) -> Transmit {
        let packet = answer.packet(self.peer_id, window_packets);
        let contents = handshake::seal(self.protect.as_mut(), packet, length);
        self.route.handshake(now, contents)
    }

    /// The next event.
    pub fn pop_event(&mut self) -> Option<Queued> {
        self.events.pop_front()
    }

    /// True once nothing is left to do.
    pub fn is_ended(&self) -> bool {
        self.life == Life::Ended
    }

    /// Bytes of received data.
    pub fn receive_bytes(&self) -> usize {
        self.receive.bytes()
    }

    /// Bytes of received data that are not in events.
    pub fn unassembled_bytes(&self) -> usize {
        self.receive.bytes() - self.receive.unread_bytes()
    }

    /// A keep-alive is sent as soon as possible.
    pub fn greet(&mut self) {
        self.due.keep_alive = true;
    }

    /// The handshake found that the path carries only smaller datagrams.
    pub fn lower_mtu(&mut self, mtu_bytes: usize) {
        if mtu_bytes < self.mtu_bytes {
            self.rate.shrink_packets(self.mtu_bytes as f64 / mtu_bytes as f64);
            self.mtu_bytes = mtu_bytes;
        }
    }

    fn rtt_us(&self) -> Micros {
        let measured = self.observer.rtt_us().map(|rtt| rtt as Micros);
        self.peer_rtt_us.or(measured).unwrap_or(FIRST_RTT_US).max(1)
    }

    fn payload_bytes(&self) -> usize {
        self.mtu_bytes - HEADER_BYTES - self.protect.overhead()
    }

    /// The largest message: it must fit into half of the peer's window, and into the send buffer.
    pub fn max_message_bytes(&self) -> usize {
        let window = (self.peer_window_packets as usize / 2).max(1) * self.payload_bytes();
        let buffer = self.config.send_buffer_bytes / 2;
        window.min(buffer)
    }

    /// Takes a message for sending.
    pub fn send_message(&mut self, now: Micros, data: &[u8]) -> Result<MessageId, SendError> {
        if self.life != Life::Open {
            return Err(SendError::Closed);
        }
        if data.len() > self.max_message_bytes() {
            return Err(SendError::TooLarge(self.max_message_bytes()));
        }
        let cost = SendBuffer::cost(data.len(), self.payload_bytes());
        if self.send.bytes() + cost > self.config.send_buffer_bytes {
            self.wants_writable = true;
            return Err(SendError::Full);
        }
        if self.send.is_empty() {
            self.silent_since_us = now;
            self.backoff = 0;
        }
        Ok(MessageId(self.send.push(data, self.payload_bytes())))
    }

    /// The application read a message event.
    pub fn on_read(&mut self, packets: u32, bytes: usize) {
        self.receive.read(packets, bytes);
    }

    /// The application read a mode event: the mode that it sees.
    pub fn on_mode_read(&mut self) -> Mode {
        self.mode_event = false;
        self.rate.mode()
    }

    /// Closes after all data is acknowledged.
    pub fn close(&mut self, now: Micros) {
        if self.life == Life::Open {
            self.life = Life::Draining { until_us: now + self.config.linger_us };
            self.drain(now);
            self.ask_if_all_is_sent();
        }
    }

    /// Ends at once.
    pub fn abort(&mut self, now: Micros) {
        if matches!(self.life, Life::Open | Life::Draining { .. }) {
            let reason =
                if self.send.is_empty() { CloseReason::Local } else { CloseReason::LocalUnacknowledged };
            self.begin_closing(now, reason, Shutdown::Abort);
        }
    }

    fn begin_closing(&mut self, now: Micros, reason: CloseReason, kind: Shutdown) {
        self.life = Life::Closing { reason, kind, sent: 0, next_us: now };
    }

    fn drain(&mut self, now: Micros) {
        if let Life::Draining { until_us } = self.life {
            if self.send.is_empty() {
                self.begin_closing(now, CloseReason::Local, Shutdown::Close);
            } else if now >= until_us {
                self.begin_closing(now, CloseReason::LocalUnacknowledged, Shutdown::Abort);
            }
        }
    }

    /// A connection that closes waits for the report of all its data, so it asks for it behind the last packet.
    fn ask_if_all_is_sent(&mut self) {
        self.due.reply |= matches!(self.life, Life::Draining { .. }) && !self.send.can_send();
    }

    fn end(&mut self, reason: CloseReason) {
        self.life = Life::Ended;
        self.push_closed(reason);
    }

    fn push_closed(&mut self, reason: CloseReason) {
        let unconfirmed_bytes = self.send.unconfirmed_bytes();
        self.push_event(Event::Closed { reason, unconfirmed_bytes });
    }

    fn push_event(&mut self, event: Event) {
        self.events.push_back(Queued { event, packets: 0 });
    }

    /// Takes a datagram of this connection from its peer's address. `may_store` is false if the endpoint's
    /// memory is used up. Returns true if the datagram is authentic.
    pub fn handle(&mut self, now: Micros, ecn: Ecn, datagram: &[u8], may_store: bool) -> bool {
        let header = match Header::decode(datagram) {
            Ok(header) if self.life != Life::Ended => header,
            _ => return self.drop_packet(),
        };
        let mut body = std::mem::take(&mut self.scratch);
        body.clear();
        body.extend_from_slice(&datagram[HEADER_BYTES..]);
        let authentic = self.protect.open(&datagram[..HEADER_BYTES], &mut body).is_ok();
        if authentic {
            self.last_heard_us = now;
            match header {
                Header::Data(header) => self.on_data(now, ecn, &header, &body, may_store),
                Header::Control(header) => self.on_control(now, &header, &body),
            }
        } else {
            self.drop_packet();
        }
        self.scratch = body;
        authentic
    }

    fn drop_packet(&mut self) -> bool {
        self.counts.dropped += 1;
        false
    }

    fn is_closing(&self) -> bool {
        matches!(self.life, Life::Closing { .. } | Life::Answering { .. } | Life::Ended)
    }

    fn on_data(&mut self, now: Micros, ecn: Ecn, header: &DataHeader, payload: &[u8], may_store: bool) {
        if self.is_closing() || payload.len() > self.largest_payload || !may_store {
            self.drop_packet();
            return;
        }
        self.counts.data_received += 1;
        self.counts.ce_received += u64::from(ecn == Ecn::Ce);
        self.counts.ect_received += u64::from(ecn != Ecn::NotEct);
        let least_us = self.observer.rtt_idle_us().map_or(0, |rtt| rtt as Micros);
        let rtt = Rtt { smoothed_us: self.rtt_us(), least_us };
        match self.receive.insert(now, header, payload, rtt) {
            Arrival::New => {}
            Arrival::Duplicate => self.counts.duplicates += 1,
            Arrival::Refused | Arrival::Malformed => {
                self.drop_packet();
                return;
            }
        }
        if self.ecn_bleached() || self.marks_are_missing() {
            self.observer.on_erased_ecn();
        }
        self.observer.on_data(now, ecn == Ecn::Ce, header.bits.cwr);
        if header.bits.obs {
            self.observer.on_stale_obs(now);
        }
        if self.unreported == 0 {
            self.unreported_since_us = now;
        }
        self.unreported += 1;
        self.note_losses(now);
        self.collect_messages();
    }

    fn note_losses(&mut self, now: Micros) {
        let lost = self.receive.take_new_losses(now);
        if lost > 0 {
            self.counts.lost += u64::from(lost);
            self.counts.missed += u64::from(lost);
            self.observer.on_lost(now, lost);
        }
    }

    fn collect_messages(&mut self) {
        while let Some(complete) = self.receive.pop() {
            let event = Event::Message { id: MessageId(complete.message), data: complete.data };
            self.events.push_back(Queued { event, packets: complete.packets });
        }
    }

    fn on_control(&mut self, now: Micros, header: &ControlHeader, body: &[u8]) {
        if header.version != VERSION {
            self.drop_packet();
            return;
        }
        match header.kind {
            ControlType::KeepAlive | ControlType::Ack | ControlType::Nak => {
                let accepted = match Report::decode(body) {
                    Ok(report) => self.on_report(now, header, &report),
                    Err(_) => false,
                };
                if !accepted {
                    self.drop_packet();
                }
            }
            ControlType::Ack2 => {
                self.observer.on_ack2(now, header.sequence);
            }
            ControlType::ObsChange => match decode_obs_change(body) {
                Ok(ack) => {
                    self.observer.on_obs_change(ack);
                }
                Err(_) => {
                    self.drop_packet();
                }
            },
            ControlType::Shutdown => match Shutdown::decode(body) {
                Ok(kind) => self.on_shutdown(now, kind, &body[SHUTDOWN_BYTES..]),
                Err(_) => {
                    self.drop_packet();
                }
            },
            ControlType::Handshake | ControlType::Unknown(_) => {
                self.drop_packet();
            }
        }
    }

    /// A report of the peer. False if it contradicts what was sent; then nothing of it is used.
    fn on_report(&mut self, now: Micros, header: &ControlHeader, report: &Report) -> bool {
        if self.is_closing() {
            return true;
        }
        let had_data = !self.send.is_empty();
        if self.send.acknowledge(report.next_expected, report.end, report.window_end).is_err() {
            return false;
        }
        self.last_feedback(now);
        if self.last_report.map_or(true, |last| last.before(header.sequence)) {
            self.last_report = Some(header.sequence);
            self.rate.on_report(header.sequence);
            self.rate.set_ecn_works(!report.no_ecn);
            self.due.keep_alive |= report.reply;
            // Packets with a later sending time may have been handed out before the report was.
            let wait_us = self.rtt_us() / 2 + self.config.pacing_ahead_us + 1000;
            self.receive.note_peer_next(now, report.next_sequence, wait_us);
            if !self.on_losses(now, report) {
                return false;
            }
        }
        if header.kind == ControlType::Ack {
            self.on_ack(now, header, report);
        }
        if had_data && self.wants_writable && self.send.bytes() <= self.config.send_buffer_bytes / 2 {
            self.wants_writable = false;
            self.push_event(Event::Writable);
        }
        self.drain(now);
        true
    }

    fn last_feedback(&mut self, now: Micros) {
        self.silent_since_us = now;
        self.backoff = 0;
        self.rate.on_feedback(now);
    }

    fn on_losses(&mut self, now: Micros, report: &Report) -> bool {
        let (lost, lost_end) = match self.send.mark_lost(now, &report.losses, self.rtt_us()) {
            Ok(result) => result,
            Err(_) => return false,
        };
        self.counts.lost += lost;
        if lost > 0 {
            self.rate.on_loss(lost_end, self.progress(now));
        }
        true
    }

    fn progress(&self, now: Micros) -> Progress {
        Progress { now_us: now, sent: self.send.next_position(), arrived: self.send.arrived() }
    }

    fn on_ack(&mut self, now: Micros, header: &ControlHeader, report: &Report) {
        let bits = header.bits;
        let reaction = self.rate.on_ack(header.sequence, bits.obs, bits.ece, self.progress(now));
        if reaction == Reaction::Stale {
            return;
        }
        if self.flight_ratio() > 1.0 {
            self.rate.forget_unused();
        }
        if !report.no_ack2 {
            self.due.ack2 = Some(header.sequence);
        }
        if report.rtt_us > 0 {
            let rtt_us = Micros::from(report.rtt_us).clamp(PEER_RTT_US.0, PEER_RTT_US.1);
            self.peer_rtt_us = Some(rtt_us);
            self.rate.set_rtt(rtt_us);
        }
        if !header.bits.obs {
            self.due.obs_change = Some(header.sequence);
        }
        self.due.cwr |= header.bits.obs && header.bits.ece;
        if reaction == Reaction::Changed {
            let mode = self.rate.mode();
            self.begin_burst(self.send.next_position());
            self.counts.congestion_entries += u64::from(mode == Mode::Congestion);
            // One event at a time waits to be read, so a peer cannot queue them.
            if !self.mode_event {
                self.mode_event = true;
                self.push_event(Event::ModeChanged(mode));
            }
        }
    }

    /// A shutdown, and the report in it. It confirms data whose report is still due or was lost.
    fn on_shutdown(&mut self, now: Micros, kind: Shutdown, report: &[u8]) {
        if let Ok(report) = Report::decode(report) {
            // A report that contradicts what was sent changes nothing, and the connection ends all the same.
            let _ = self.send.acknowledge(report.next_expected, report.end, report.window_end);
        }
        match (kind, self.life.clone()) {
            (Shutdown::Answer, Life::Closing { reason, .. }) => self.end(reason),
            (Shutdown::Answer, _) => {}
            (_, Life::Open) | (_, Life::Draining { .. }) => {
                let reason =
                    if kind == Shutdown::Close { CloseReason::Peer } else { CloseReason::PeerAborted };
                self.due.shutdown_answer = true;
                let until_us = now + u64::from(SHUTDOWNS) * self.shutdown_interval_us();
                self.life = Life::Answering { until_us };
                self.push_closed(reason);
            }
            _ => self.due.shutdown_answer = true,
        }
    }

    fn shutdown_interval_us(&self) -> Micros {
        self.config.min_timeout_us.max(2 * self.rtt_us())
    }

    /// The time without feedback after which the sender asks for a report.
    fn silence_us(&self) -> Micros {
        let base = self.config.min_timeout_us.max(2 * self.rtt_us() + 2 * self.config.report_interval_us);
        base << self.backoff
    }

    fn awaits_feedback(&self) -> bool {
        let blocked = self.send.has_new() && self.send.window_packets() == 0;
        !self.is_closing() && (self.send.awaits_acknowledgement() || blocked)
    }

    /// When the end of a burst is probed: all is sent, and nothing was heard of it for two RTTs.
    fn tail_probe_us(&self) -> Option<Micros> {
        let waits = self.awaits_feedback() && !self.send.can_send();
        if waits && self.tail_probed != self.counts.data_sent {
            return Some(self.last_data_sent_us + 2 * self.rtt_us() + 1000);
        }
        None
    }

    fn keep_alive_us(&self) -> Micros {
        let window = self.config.receive_window_packets / 4;
        if self.due.keep_alive || self.due.reply || self.unreported >= window {
            return 0;
        }
        if self.advertised_end.offset(self.receive.window_end()) >= window as i32 {
            return 0;
        }
        let idle_us = self.last_sent_us + self.config.idle_interval_us;
        if self.unreported > 0 {
            return idle_us.min(self.unreported_since_us + self.config.report_interval_us);
        }
        idle_us
    }

    /// When `poll_transmit` has something to do.
    pub fn next_wakeup_us(&self) -> Micros {
        if self.due.shutdown_answer {
            return 0;
        }
        let dead_us = self.last_heard_us + self.config.dead_after_us;
        match &self.life {
            Life::Ended => return 0,
            Life::Answering { until_us } => return *until_us,
            Life::Closing { next_us, .. } => return (*next_us).min(dead_us),
            Life::Open | Life::Draining { .. } => {}
        }
        if self.due.ack2.is_some() || self.due.obs_change.is_some() {
            return 0;
        }
        let mut times =
            [Some(dead_us), Some(self.keep_alive_us()), self.tail_probe_us(), None, None, None, None];
        times[3] = self.observer.next_ack_us();
        times[4] = self.receive.next_report_us();
        if self.awaits_feedback() {
            times[5] = Some(self.silent_since_us + self.silence_us());
        }
        if self.send.can_send() {
            times[6] = Some((self.next_send_us as Micros).saturating_sub(self.config.pacing_ahead_us));
        }
        let mut earliest = dead_us;
        for time in times.iter().flatten() {
            earliest = earliest.min(*time);
        }
        if let Life::Draining { until_us } = self.life {
            earliest = earliest.min(until_us);
        }
        earliest
    }

    fn run_timers(&mut self, now: Micros) {
        self.drain(now);
        match &self.life {
            Life::Ended => return,
            Life::Answering { until_us } if now >= *until_us => {
                self.life = Life::Ended;
                return;
            }
            Life::Closing { sent, next_us, reason, .. } if *sent >= SHUTDOWNS && now >= *next_us => {
                let reason = reason.clone();
                self.end(reason);
                return;
            }
            _ => {}
        }
        if now >= self.last_heard_us.saturating_add(self.config.dead_after_us) {
            if matches!(self.life, Life::Answering { .. }) {
                self.life = Life::Ended;
            } else {
                self.end(CloseReason::Timeout);
            }
            return;
        }
        if self.tail_probe_us().map_or(false, |at| now >= at) {
            self.tail_probed = self.counts.data_sent;
            self.due.reply = true;
        }
        if self.awaits_feedback() && now >= self.silent_since_us + self.silence_us() {
            // The first probe asks. If it or its answer is missing too, the rate falls.
            if self.backoff > 0 {
                self.rate.on_silence();
                self.counts.timeouts += 1;
            }
            self.silent_since_us = now;
            self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
            self.due.reply = true;
        }
        self.note_losses(now);
    }

    /// Runs timers, and returns the next datagram.
    pub fn poll_transmit(&mut self, now: Micros) -> Option<Transmit> {
        self.run_timers(now);
        if self.due.shutdown_answer {
            self.due.shutdown_answer = false;
            return Some(self.shutdown(now, Shutdown::Answer));
        }
        match self.life.clone() {
            Life::Ended | Life::Answering { .. } => return None,
            Life::Closing { reason, kind, sent, next_us } => {
                if now < next_us {
                    return None;
                }
                let next_us = now + self.shutdown_interval_us();
                self.life = Life::Closing { reason, kind, sent: sent + 1, next_us };
                return Some(self.shutdown(now, kind));
            }
            Life::Open | Life::Draining { .. } => {}
        }
        if let Some(control) = self.poll_control(now) {
            return Some(control);
        }
        self.poll_data(now)
    }

    fn poll_control(&mut self, now: Micros) -> Option<Transmit> {
        let obs = self.rate.mode() == Mode::Congestion;
        if let Some(sequence) = self.due.ack2.take() {
            let bits = Bits { obs, ..Bits::default() };
            return Some(self.control(now, ControlType::Ack2, sequence, bits, Vec::new()));
        }
        if let Some(ack) = self.due.obs_change.take() {
            let mut body = Vec::new();
            encode_obs_change(ack, &mut body);
            let (sequence, bits) = (self.next_control(), Bits { obs, ..Bits::default() });
            return Some(self.control(now, ControlType::ObsChange, sequence, bits, body));
        }
        if self.observer.next_ack_us().map_or(false, |at| at <= now) {
            let sequence = self.next_control();
            let AckFlags { obs, ece, asks } = self.observer.on_ack_sent(now, sequence);
            return Some(self.report(now, ControlType::Ack, sequence, Bits { obs, ece, cwr: false }, !asks));
        }
        let bits = Bits { obs: self.observes(), ..Bits::default() };
        if self.receive.next_report_us().map_or(false, |at| at <= now) {
            let sequence = self.next_control();
            return Some(self.report(now, ControlType::Nak, sequence, bits, false));
        }
        if self.keep_alive_us() <= now {
            let sequence = self.next_control();
            return Some(self.report(now, ControlType::KeepAlive, sequence, bits, false));
        }
        None
    }

    fn observes(&self) -> bool {
        matches!(self.observer.state(), Observation::Congested | Observation::Easing)
    }

    fn next_control(&mut self) -> Seq {
        let sequence = self.control_sequence;
        self.control_sequence = sequence.plus(1);
        sequence
    }

    /// A report in an ACK, a NAK or a keep-alive. Each carries all that reliability needs, so any of them may
    /// be lost.
    fn report(
        &mut self,
        now: Micros,
        kind: ControlType,
        sequence: Seq,
        bits: Bits,
        no_ack2: bool,
    ) -> Transmit {
        let repeat_us = self.rtt_us() * 3 / 2 + 1000;
        // Two words for each range.
        let limit = (self.payload_bytes() - REPORT_BYTES) / 8;
        let losses = self.receive.due_losses(now, repeat_us, limit);
        let report = Report { reply: self.due.reply, no_ack2, losses, ..self.arrivals(now) };
        self.due.reply = false;
        self.due.keep_alive = false;
        self.unreported = 0;
        self.advertised_end = report.window_end;
        let mut body = Vec::new();
        report.encode(&mut body);
        self.control(now, kind, sequence, bits, body)
    }

    /// A report that asks for nothing.
    fn arrivals(&self, now: Micros) -> Report {
        Report {
            next_expected: self.receive.next_expected(),
            end: self.receive.end(),
            window_end: self.receive.window_end(),
            next_sequence: self.send.sequence(self.send.next_position()),
            rtt_us: self.observer.reported_rtt_us(now).map_or(0, |rtt| rtt.min(f64::from(u32::MAX)) as u32),
            reply: false,
            no_ecn: self.ecn_bleached() || self.marks_are_missing(),
            no_ack2: false,
            losses: Vec::new(),
        }
    }

    fn shutdown(&mut self, now: Micros, kind: Shutdown) -> Transmit {
        let mut body = Vec::new();
        kind.encode(&mut body);
        self.arrivals(now).encode(&mut body);
        let sequence = self.next_control();
        self.control(now, ControlType::Shutdown, sequence, Bits::default(), body)
    }

    fn control(
        &mut self,
        now: Micros,
        kind: ControlType,
        sequence: Seq,
        bits: Bits,
        body: Vec<u8>,
    ) -> Transmit {
        self.counts.control_sent += 1;
        let header = ControlHeader {
            sequence,
            kind,
            bits,
            version: VERSION,
            timestamp_us: self.timestamp(now),
            connection: self.peer_id,
        };
        self.seal(now, Header::Control(header), body, Ecn::NotEct)
    }

    fn timestamp(&self, now: Micros) -> u32 {
        now.wrapping_sub(self.started_us) as u32
    }

    fn seal(&mut self, at: Micros, header: Header, mut body: Vec<u8>, ecn: Ecn) -> Transmit {
        let header = header.encode();
        self.protect.seal(&header, &mut body);
        let mut contents = Vec::with_capacity(HEADER_BYTES + body.len());
        contents.extend_from_slice(&header);
        contents.extend_from_slice(&body);
        self.last_sent_us = self.last_sent_us.max(at);
        self.route.transmit(ecn, contents, at)
    }

    fn poll_data(&mut self, now: Micros) -> Option<Transmit> {
        let ahead_us = now + self.config.pacing_ahead_us;
        if !self.send.can_send() {
            self.idle = true;
            return None;
        }
        // Only a sender that was late catches up. One that had nothing to send has nothing to catch up.
        if std::mem::take(&mut self.idle) {
            self.next_send_us = self.next_send_us.max(now as f64);
        }
        if self.next_send_us as Micros > ahead_us {
            return None;
        }
        let at = (self.next_send_us as Micros).max(now);
        let nothing_sent = !self.send.awaits_acknowledgement();
        let timestamp_us = self.timestamp(at);
        let (position, packet, again) = self.send.take(at)?;
        let (payload, first, last) = (packet.payload.clone(), packet.first, packet.last);
        let message = (packet.message % u64::from(MESSAGE_NUMBERS)) as u32;
        if nothing_sent {
            self.silent_since_us = now;
            self.backoff = 0;
            self.begin_burst(position);
        }
        self.burst_packets = self.burst_packets.saturating_add(1);
        self.due.reply |= self.burst_packets == ASKS_AFTER_PACKETS && self.path_is_unknown();
        let bits = Bits { obs: self.rate.mode() == Mode::Congestion, cwr: self.due.cwr, ece: false };
        self.due.cwr = false;
        let header = DataHeader {
            sequence: self.send.sequence(position),
            bits,
            first,
            last,
            ordered: self.config.ordered,
            message,
            timestamp_us,
            connection: self.peer_id,
        };
        self.counts.data_sent += 1;
        self.counts.retransmitted += u64::from(again);
        self.last_data_sent_us = at;
        self.rate.on_data_sent();
        let transmit = self.seal(at, Header::Data(header), payload, Ecn::Ect0);
        // Interval_data is for a packet of PktSize. Shorter packets take their part of it.
        let mut interval_us =
            1e6 / self.rate.allowed_pps() * transmit.contents.len() as f64 / self.mtu_bytes as f64;
        if let Some(most_pps) = self.bounded_pps() {
            interval_us = interval_us.max(1e6 / most_pps);
        }
        self.next_send_us = self.next_send_us.max(now as f64 - CATCH_UP_US) + interval_us;
        self.ask_if_all_is_sent();
        Some(transmit)
    }

    /// The UDP Mode begins, or data after all was acknowledged.
    fn begin_burst(&mut self, position: u64) {
        self.burst_from = position;
        self.burst_packets = 0;
    }

    /// In the UDP Mode nothing was heard of the packets of this burst. A long queue delays the first mark, so
    /// the sender must not go on at its full rate until it comes.
    fn path_is_unknown(&self) -> bool {
        self.rate.mode() == Mode::Udp && self.send.arrived() <= self.burst_from
    }

    /// The packets in flight, divided by the most that should be in the Congestion Mode. Marks and ACKs are late
    /// in a long queue, so rates alone do not bound it.
    fn flight_ratio(&self) -> f64 {
        let most = (MOST_BDPS * self.bdp_packets()).max(LEAST_FLIGHT_PACKETS);
        (self.send.next_position() - self.send.arrived()) as f64 / most
    }

    /// C x RTT_idle.
    fn bdp_packets(&self) -> f64 {
        let idle_us = self.observer.rtt_idle_us().unwrap_or(FIRST_RTT_US as f64);
        self.rate.link_pps() * idle_us / 1e6
    }

    /// The rate above which packets would only make a queue longer; None if few are in flight.
    fn bounded_pps(&self) -> Option<f64> {
        match self.rate.mode() {
            Mode::Udp => {
                let most = (UNKNOWN_PATH_BDPS * self.bdp_packets()).max(UNKNOWN_PATH_PACKETS);
                let is_over = f64::from(self.burst_packets) >= most && self.path_is_unknown();
                is_over.then(|| 1e6 / self.rtt_us() as f64)
            }
            Mode::Congestion => {
                let over = self.flight_ratio();
                (over > 1.0).then(|| self.rate.bounded_pps(over))
            }
        }
    }

    fn ecn_bleached(&self) -> bool {
        self.counts.ect_received == 0 && self.counts.data_received >= BLEACHED_PACKETS
    }

    /// Packets were lost and none was marked: the switches on the path mark too late, or never.
    fn marks_are_missing(&self) -> bool {
        self.counts.ce_received == 0 && self.counts.missed >= UNMARKED_LOSSES
    }

    /// Counters and state.
    pub fn statistics(&self) -> Statistics {
        let counts = &self.counts;
        Statistics {
            mode: self.rate.mode(),
            rate_pps: self.rate.allowed_pps(),
            rtt_us: self.rtt_us(),
            rtt_idle_us: self.observer.rtt_idle_us().map_or(FIRST_RTT_US, |rtt| rtt as Micros),
            mtu_bytes: self.mtu_bytes,
            peer_window_packets: self.send.window_packets() as u32,
            send_buffer_bytes: self.send.bytes(),
            receive_buffer_bytes: self.receive.bytes(),
            data_sent: counts.data_sent,
            retransmitted: counts.retransmitted,
            acknowledged: self.send.acknowledged(),
            data_received: counts.data_received,
            duplicates: counts.duplicates,
            lost: counts.lost,
            ce_received: counts.ce_received,
            control_sent: counts.control_sent,
            dropped: counts.dropped,
            congestion_entries: counts.congestion_entries,
            timeouts: counts.timeouts,
            ecn_bleached: self.ecn_bleached(),
        }
    }
}
