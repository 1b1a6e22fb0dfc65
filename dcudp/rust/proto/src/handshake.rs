//! The handshake: REQUEST, COOKIE, CONFIRM, ACCEPT.
//!
//! - The responder keeps no state before a CONFIRM returns its cookie and is sealed with the right key.
//! - COOKIE and REFUSE are as long as a REQUEST. An ACCEPT is as long as its CONFIRM.
//! - The CONFIRM is padded to the datagrams that the initiator wants to send, and the ACCEPT too. So the
//!   handshake proves that the path carries them. After two tries the initiator falls back to
//!   `BASE_MTU_BYTES`.

use std::net::SocketAddr;

use crate::config::BASE_MTU_BYTES;
use crate::connection::Opening;
use crate::random::{CookieFor, CookieJar};
use crate::seq::Seq;
use crate::wire::{
    Bits, ControlHeader, ControlType, Handshake, Header, Refusal, Step, HANDSHAKE_BYTES, HEADER_BYTES,
    VERSION,
};
use crate::{CloseReason, Config, Micros, Protect, ProtectFactory, Route, Stage, Transmit};

/// The first wait for an answer. Each further wait is twice as long, up to `LONGEST_WAIT_US`.
const FIRST_WAIT_US: Micros = 50_000;
const LONGEST_WAIT_US: Micros = 1_000_000;
/// CONFIRMs of full size.
const FULL_SIZE_TRIES: u32 = 2;
/// An initiator asks for a new cookie before the responder forgets this one.
const COOKIE_USE_US: Micros = crate::random::COOKIE_LIFE_US / 2;

fn encode(version: u8, connection: u32, body: &Handshake) -> Vec<u8> {
    let header = ControlHeader {
        sequence: Seq::new(0),
        kind: ControlType::Handshake,
        bits: Bits::default(),
        version,
        timestamp_us: 0,
        connection,
    };
    let mut packet = Header::Control(header).encode().to_vec();
    body.encode(&mut packet);
    packet
}

/// Pads a handshake packet so that it has `length` bytes with the tag, and appends the tag. All of it is
/// authenticated and nothing is encrypted.
pub fn seal(protect: &mut dyn Protect, mut packet: Vec<u8>, length: usize) -> Vec<u8> {
    packet.resize(length.saturating_sub(protect.overhead()).max(packet.len()), 0);
    let mut tag = Vec::new();
    protect.seal(&packet, &mut tag);
    packet.extend_from_slice(&tag);
    packet
}

fn open(protect: &mut dyn Protect, datagram: &[u8]) -> bool {
    let split = match datagram.len().checked_sub(protect.overhead()) {
        Some(split) if split >= HEADER_BYTES + HANDSHAKE_BYTES => split,
        _ => return false,
    };
    let (packet, tag) = datagram.split_at(split);
    protect.open(packet, &mut tag.to_vec()).is_ok()
}

/// A responder's COOKIE for a REQUEST.
pub fn cookie(now: Micros, jar: &CookieJar, from: SocketAddr, request: &Handshake) -> Vec<u8> {
    let subject = CookieFor { peer: from, id: request.id, nonce: request.initiator_nonce, time_us: now };
    let (cookie, responder_nonce) = jar.make(&subject);
    let body = Handshake {
        step: Step::Cookie,
        refusal: Refusal::None,
        id: 0,
        initial_sequence: Seq::new(0),
        window_packets: 0,
        initiator_nonce: request.initiator_nonce,
        responder_nonce,
        cookie_time_us: now,
        cookie,
    };
    encode(VERSION, request.id, &body)
}

/// A responder's REFUSE.
pub fn refusal(call: &Handshake, refusal: Refusal) -> Vec<u8> {
    let body = Handshake {
        step: Step::Refuse,
        refusal,
        id: 0,
        initial_sequence: Seq::new(0),
        window_packets: 0,
        initiator_nonce: call.initiator_nonce,
        responder_nonce: [0; 16],
        cookie_time_us: 0,
        cookie: [0; 16],
    };
    encode(VERSION, call.id, &body)
}

/// True if a CONFIRM returns a cookie that this endpoint gave to this address.
pub fn returns_cookie(now: Micros, jar: &CookieJar, from: SocketAddr, confirm: &Handshake) -> bool {
    let subject = CookieFor {
        peer: from,
        id: confirm.id,
        nonce: confirm.initiator_nonce,
        time_us: confirm.cookie_time_us,
    };
    jar.check(now, &subject, &confirm.cookie) && jar.make(&subject).1 == confirm.responder_nonce
}

/// True if a CONFIRM is sealed with this endpoint's key.
pub fn opens(factory: &dyn ProtectFactory, confirm: &Handshake, datagram: &[u8]) -> bool {
    let nonces = [&confirm.initiator_nonce, &confirm.responder_nonce];
    let mut protect = factory.for_connection(Stage::Confirm, false, 0, confirm.id, nonces);
    open(protect.as_mut(), datagram)
}

/// What a responder's ACCEPT says.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    /// The responder's number of the connection.
    pub id: u32,
    /// The responder's first data sequence number.
    pub initial_sequence: Seq,
    /// The initiator's nonce.
    pub initiator_nonce: [u8; 16],
    /// The responder's new nonce.
    pub responder_nonce: [u8; 16],
}

impl Answer {
    /// The ACCEPT before it is sealed.
    pub fn packet(&self, peer_id: u32, window_packets: u32) -> Vec<u8> {
        let body = Handshake {
            step: Step::Accept,
            refusal: Refusal::None,
            id: self.id,
            initial_sequence: self.initial_sequence,
            window_packets,
            initiator_nonce: self.initiator_nonce,
            responder_nonce: self.responder_nonce,
            cookie_time_us: 0,
            cookie: [0; 16],
        };
        encode(VERSION, peer_id, &body)
    }
}

struct Returned {
    body: Handshake,
    since_us: Micros,
    sent_us: Micros,
    protect: Box<dyn Protect + Send>,
}

/// An initiator's handshake.
pub struct Calling {
    peer: SocketAddr,
    id: u32,
    nonce: [u8; 16],
    initial_sequence: Seq,
    window_packets: u32,
    mtu_bytes: usize,
    until_us: Micros,
    next_us: Micros,
    tries: u32,
    cookie: Option<Returned>,
}

impl Calling {
    /// Begins; the REQUEST is due at once.
    pub fn new(
        now: Micros,
        config: &Config,
        peer: SocketAddr,
        id: u32,
        nonce: [u8; 16],
        initial_sequence: Seq,
    ) -> Calling {
        Calling {
            peer,
            id,
            nonce,
            initial_sequence,
            window_packets: config.receive_window_packets,
            mtu_bytes: config.mtu_bytes,
            until_us: now + config.handshake_timeout_us,
            next_us: now,
            tries: 0,
            cookie: None,
        }
    }

    /// When `poll` has something to do.
    pub fn next_us(&self) -> Micros {
        self.next_us.min(self.until_us)
    }

    /// True if an answer comes from the peer and knows this handshake's nonce.
    pub fn fits(&self, from: SocketAddr, answer: &Handshake) -> bool {
        from == self.peer && answer.initiator_nonce == self.nonce
    }

    /// The next REQUEST or CONFIRM, or why the handshake ended.
    pub fn poll(&mut self, now: Micros) -> Result<Option<Transmit>, CloseReason> {
        if now >= self.until_us {
            return Err(CloseReason::HandshakeTimeout);
        }
        if now < self.next_us {
            return Ok(None);
        }
        if self
            .cookie
            .as_ref()
            .map_or(false, |returned| now.saturating_sub(returned.since_us) > COOKIE_USE_US)
        {
            self.cookie = None;
            self.tries = 0;
        }
        self.next_us = now + (FIRST_WAIT_US << self.tries.min(10)).min(LONGEST_WAIT_US);
        let contents = match &mut self.cookie {
            None => encode(VERSION, 0, &self.request()),
            Some(returned) => {
                let size = if self.tries < FULL_SIZE_TRIES { self.mtu_bytes } else { BASE_MTU_BYTES };
                returned.sent_us = now;
                seal(returned.protect.as_mut(), encode(VERSION, 0, &returned.body), size)
            }
        };
        self.tries += 1;
        Ok(Some(Route::from(self.peer).handshake(now, contents)))
    }

    fn request(&self) -> Handshake {
        Handshake {
            step: Step::Request,
            refusal: Refusal::None,
            id: self.id,
            initial_sequence: self.initial_sequence,
            window_packets: self.window_packets,
            initiator_nonce: self.nonce,
            responder_nonce: [0; 16],
            cookie_time_us: 0,
            cookie: [0; 16],
        }
    }

    /// A COOKIE. The first one counts.
    pub fn on_cookie(&mut self, now: Micros, factory: &dyn ProtectFactory, answer: &Handshake) -> bool {
        if self.cookie.is_some() {
            return false;
        }
        let body = Handshake {
            step: Step::Confirm,
            responder_nonce: answer.responder_nonce,
            cookie_time_us: answer.cookie_time_us,
            cookie: answer.cookie,
            ..self.request()
        };
        let nonces = [&self.nonce, &answer.responder_nonce];
        let protect = factory.for_connection(Stage::Confirm, true, self.id, 0, nonces);
        self.cookie = Some(Returned { body, since_us: now, sent_us: now, protect });
        self.tries = 0;
        self.next_us = now;
        true
    }

    /// A REFUSE: why the handshake ends, if the refusal fits its state.
    pub fn on_refuse(&self, version: u8, refusal: Refusal) -> Option<CloseReason> {
        match refusal {
            Refusal::Version => Some(CloseReason::Version(version)),
            Refusal::Authentication if self.cookie.is_some() => Some(CloseReason::Authentication),
            Refusal::Busy if self.cookie.is_some() => Some(CloseReason::Busy),
            _ => None,
        }
    }

    /// An ACCEPT: the connection, if the packet is sealed with the right key.
    pub fn on_accept(
        &self,
        now: Micros,
        config: &Config,
        factory: &dyn ProtectFactory,
        answer: &Handshake,
        datagram: &[u8],
        control_sequence: Seq,
    ) -> Option<Opening> {
        let returned = self.cookie.as_ref()?;
        if answer.id == 0 || datagram.len() < BASE_MTU_BYTES {
            return None;
        }
        let nonces = [&self.nonce, &answer.responder_nonce];
        let mut protect = factory.for_connection(Stage::Traffic, true, self.id, answer.id, nonces);
        if !open(protect.as_mut(), datagram) {
            return None;
        }
        // With several CONFIRMs on their way it is not known which of them was answered.
        let rtt_us = if self.tries == 1 { Some(now.saturating_sub(returned.sent_us)) } else { None };
        Some(Opening {
            peer_id: answer.id,
            route: self.peer.into(),
            initial_sequence: self.initial_sequence,
            peer_initial_sequence: answer.initial_sequence,
            peer_window_packets: answer.window_packets,
            mtu_bytes: datagram.len().min(config.mtu_bytes),
            rtt_us,
            control_sequence,
            protect,
        })
    }
}
