//! The C interface. `dcudp/dcudp.h` describes each function and structure; the structures here repeat its layout.
//!
//! Pointers from C are used only during a call, except the node's. A panic does not pass into C.

use std::ffi::{CStr, CString, OsStr};
use std::net::SocketAddr;
use std::os::raw::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::ptr;

use dcudp_proto::{Config, Mode, SendError};

use crate::event::{AppEvent, FileState};
use crate::key;
use crate::node::{Node, Options};
use crate::socket::Offloads;

const ABI: u32 = 1;

const LISTENS: u32 = 1;
const COUNTS_LOAD: u32 = 2;
const NO_SEGMENT: u32 = 4;
const NO_GRO: u32 = 8;
const NO_TXTIME: u32 = 16;

#[repr(C)]
pub struct COptions {
    bind: *const c_char,
    peer: *const c_char,
    key_file: *const c_char,
    folder: *const c_char,
    max_rate_bps: u64,
    link_rate_bps: u64,
    dead_after_us: u64,
    handshake_timeout_us: u64,
    mtu_bytes: u32,
    flags: u32,
}

#[repr(C)]
pub struct CEvent {
    kind: u32,
    connection: u32,
    number: u32,
    incoming: u8,
    last: u8,
    done: u64,
    size: u64,
    resumed: u64,
    elapsed_us: u64,
    cpu_us: u64,
    data: *const u8,
    data_bytes: usize,
    text: *const c_char,
    hash: [u8; 32],
    owner: *mut c_void,
}

#[repr(C)]
pub struct CStatistics {
    mode: u32,
    mtu_bytes: u32,
    rate_pps: f64,
    rtt_us: u64,
    rtt_idle_us: u64,
    send_buffer_bytes: u64,
    receive_buffer_bytes: u64,
    data_sent: u64,
    retransmitted: u64,
    acknowledged: u64,
    data_received: u64,
    duplicates: u64,
    lost: u64,
    ce_received: u64,
    control_sent: u64,
    congestion_entries: u64,
    timeouts: u64,
    peer_window_packets: u32,
    ecn_bleached: u32,
}

#[repr(C)]
pub struct CNodeStatistics {
    packets_sent: u64,
    bytes_sent: u64,
    send_calls: u64,
    joined_sent: u64,
    packets_received: u64,
    bytes_received: u64,
    receive_calls: u64,
    joined_received: u64,
    ce_received: u64,
    too_large: u64,
    refused: u64,
    paced: u64,
    late_mean_us: u64,
    late_p99_us: u64,
    late_max_us: u64,
    cpu_us: u64,
    segments: u32,
    txtime: u32,
    fragments: u32,
}

/// What an event's pointers lead to.
struct Owned {
    data: Vec<u8>,
    start: usize,
    text: Option<CString>,
}

/// Run `work`, and turn a panic into `otherwise`.
fn guarded<R>(otherwise: R, work: impl FnOnce() -> R) -> R {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

/// # Safety
/// `text` is NULL or a string that lives during the call.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller vouches for the string.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// # Safety
/// As `text`.
unsafe fn path(name: *const c_char) -> Option<PathBuf> {
    // SAFETY: the caller vouches for the string.
    unsafe { text(name) }.map(|name| PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// # Safety
/// As `text`.
unsafe fn address(name: *const c_char) -> Result<Option<SocketAddr>, String> {
    // SAFETY: the caller vouches for the string.
    let name = match unsafe { text(name) } {
        Some(name) => name.to_string_lossy(),
        None => return Ok(None),
    };
    let parsed = name
        .parse()
        .map_err(|_| format!("{name} is not an address and port, such as 127.0.0.1:9000 or [::1]:9000"));
    parsed.map(Some)
}

/// Copy a text, cut to the buffer, with its terminator.
///
/// # Safety
/// `buffer` is NULL or has `bytes` bytes.
unsafe fn put_text(text: &str, buffer: *mut c_char, bytes: usize) {
    if buffer.is_null() || bytes == 0 {
        return;
    }
    let length = text.len().min(bytes - 1);
    // SAFETY: the caller vouches for the buffer, which holds `length` bytes and a terminator.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast::<u8>(), length);
        *buffer.add(length) = 0;
    }
}

/// Store the value of a success, or the sentence of an error.
///
/// # Safety
/// `error` as in `put_text`; `place` is NULL or may be written.
unsafe fn finish<T>(
    result: Result<T, String>,
    place: *mut T,
    error: *mut c_char,
    error_bytes: usize,
) -> c_int {
    match result {
        Ok(value) => {
            if !place.is_null() {
                // SAFETY: the caller vouches for the place.
                unsafe { *place = value };
            }
            0
        }
        Err(why) => {
            // SAFETY: the caller vouches for the buffer.
            unsafe { put_text(&why, error, error_bytes) };
            -1
        }
    }
}

const PANICKED: &str = "internal error: please report the message that was printed";

/// # Safety
/// See dcudp.h.
unsafe fn options(raw: &COptions) -> Result<Options, String> {
    // SAFETY: the caller vouches for the strings.
    let (bind, peer, key_file, folder) =
        unsafe { (address(raw.bind)?, address(raw.peer)?, path(raw.key_file), path(raw.folder)) };
    let mut protocol = Config { mtu_bytes: raw.mtu_bytes as usize, ..Config::default() };
    let or = |value: u64, default: u64| if value == 0 { default } else { value };
    protocol.link_rate_bps = or(raw.link_rate_bps, protocol.link_rate_bps);
    protocol.max_rate_bps = or(raw.max_rate_bps, protocol.link_rate_bps);
    protocol.dead_after_us = or(raw.dead_after_us, protocol.dead_after_us);
    // Keep-alives have to come several times in that time.
    protocol.idle_interval_us = protocol.idle_interval_us.min(protocol.dead_after_us / 4);
    protocol.handshake_timeout_us = or(raw.handshake_timeout_us, protocol.handshake_timeout_us);
    let has = |flag: u32| raw.flags & flag != 0;
    Ok(Options {
        bind: bind.ok_or("an address to bind to is missing")?,
        peer,
        listens: has(LISTENS),
        key_file,
        folder,
        counts_load: has(COUNTS_LOAD),
        offloads: Offloads { segment: !has(NO_SEGMENT), gro: !has(NO_GRO) },
        txtime: !has(NO_TXTIME),
        protocol,
    })
}

#[no_mangle]
pub extern "C" fn dcudp_abi() -> u32 {
    ABI
}

/// # Safety
/// See dcudp.h.
#[no_mangle]
pub unsafe extern "C" fn dcudp_open(
    raw: *const COptions,
    error: *mut c_char,
    error_bytes: usize,
) -> *mut Node {
    let opened = guarded(Err(PANICKED.to_owned()), || {
        // SAFETY: the caller vouches for the options.
        unsafe { options(&*raw) }.and_then(Node::open)
    });
    match opened {
        Ok(node) => Box::into_raw(Box::new(node)),
        Err(why) => {
            // SAFETY: the caller vouches for the buffer.
            unsafe { put_text(&why, error, error_bytes) };
            ptr::null_mut()
        }
    }
}

/// # Safety
/// `node` comes from `dcudp_open` and is not used again.
#[no_mangle]
pub unsafe extern "C" fn dcudp_close(node: *mut Node) {
    if !node.is_null() {
        // SAFETY: the node was made by Box::into_raw, and the caller gives it up.
        guarded((), || drop(unsafe { Box::from_raw(node) }));
    }
}

/// # Safety
/// See dcudp.h.
#[no_mangle]
pub unsafe extern "C" fn dcudp_local(node: *const Node, buffer: *mut c_char, bytes: usize) -> c_int {
    // SAFETY: the caller vouches for the node and the buffer.
    unsafe { put_text(&(*node).local().to_string(), buffer, bytes) };
    0
}

/// # Safety
/// See dcudp.h.
#[no_mangle]
pub unsafe extern "C" fn dcudp_event_fd(node: *const Node) -> c_int {
    // SAFETY: the caller vouches for the node.
    unsafe { &*node }.events().ready.fd()
}

/// # Safety
/// See dcudp.h.
#[no_mangle]
pub unsafe extern "C" fn dcudp_next_event(node: *const Node, event: *mut CEvent) -> c_int {
    guarded(0, || {
        // SAFETY: the caller vouches for the node and the event.
        match unsafe { &*node }.next_event() {
            Some((connection, next)) => {
                unsafe { *event = c_event(connection, next) };
                1
            }
            None => 0,
        }
    })
}

/// # Safety
/// The event comes from `dcudp_next_event`. It may be freed twice, but not copied in between.
#[no_mangle]
pub unsafe extern "C" fn dcudp_free_event(event: *mut CEvent) {
    // SAFETY: the owner was made by Box::into_raw in `c_event` and is freed once.
    unsafe {
        let owner = std::mem::replace(&mut (*event).owner, ptr::null_mut());
        if !owner.is_null() {
            drop(Box::from_raw(owner.cast::<Owned>()));
        }
    }
}

fn c_event(connection: u32, event: AppEvent) -> CEvent {
    let mut made = CEvent {
        kind: 0,
        connection,
        number: 0,
        incoming: 0,
        last: 0,
        done: 0,
        size: 0,
        resumed: 0,
        elapsed_us: 0,
        cpu_us: 0,
        data: ptr::null(),
        data_bytes: 0,
        text: ptr::null(),
        hash: [0; 32],
        owner: ptr::null_mut(),
    };
    let mut owned = Owned { data: Vec::new(), start: 0, text: None };
    made.kind = match event {
        AppEvent::Connected { peer, incoming } => {
            made.incoming = u8::from(incoming);
            owned.text = c_text(&peer.to_string());
            1
        }
        AppEvent::Message(content) => {
            owned.start = content.start;
            owned.data = content.data;
            2
        }
        AppEvent::Stream { stream, last, content } => {
            made.number = stream;
            made.last = u8::from(last);
            owned.start = content.start;
            owned.data = content.data;
            3
        }
        AppEvent::Writable => 4,
        AppEvent::ModeChanged(mode) => {
            made.number = mode_number(mode);
            5
        }
        AppEvent::FileProgress(state) => put_file(&mut made, &mut owned, state, 6),
        AppEvent::FileDone(state) => put_file(&mut made, &mut owned, state, 7),
        AppEvent::FileFailed(state, why) => {
            owned.text = c_text(&why);
            put_file(&mut made, &mut owned, state, 8)
        }
        AppEvent::LoadDone(measured) => {
            (made.done, made.elapsed_us, made.cpu_us) =
                (measured.bytes, measured.elapsed_us, measured.cpu_us);
            9
        }
        AppEvent::LoadRefused => 10,
        AppEvent::Closed { error } => {
            owned.text = error.as_deref().and_then(c_text);
            11
        }
        AppEvent::Broken(why) => {
            owned.text = c_text(&why);
            12
        }
    };
    let owned = Box::new(owned);
    made.data = owned.data[owned.start..].as_ptr();
    made.data_bytes = owned.data.len() - owned.start;
    made.text = owned.text.as_deref().map_or(ptr::null(), CStr::as_ptr);
    made.owner = Box::into_raw(owned).cast();
    made
}

fn put_file(made: &mut CEvent, owned: &mut Owned, state: FileState, kind: u32) -> u32 {
    made.number = state.transfer;
    made.incoming = u8::from(state.incoming);
    (made.done, made.size, made.resumed) = (state.done, state.size, state.resumed);
    made.hash = state.hash;
    owned.data = state.name.into_bytes();
    kind
}

fn c_text(text: &str) -> Option<CString> {
    CString::new(text.replace('\0', " ")).ok()
}

fn mode_number(mode: Mode) -> u32 {
    match mode {
        Mode::Udp => 0,
        Mode::Congestion => 1,
    }
}

/// # Safety
/// See dcudp.h.
#[no_mangle]
pub unsafe extern "C" fn dcudp_connect(
    node: *const Node,
    peer: *const c_char,
    connection: *mut u32,
    error: *mut c_char,
    error_bytes: usize,
) -> c_int {
    let result = guarded(Err(PANICKED.to_owned()), || {
        // SAFETY: the caller vouches for the node and the string.
        let to = unsafe { address(peer) }?.ok_or("a peer's address is missing")?;
        unsafe { &*node }.connect(to)
    });
    // SAFETY: the caller vouches for the places.
    unsafe { finish(result, connection, error, error_bytes) }
}

/// # Safety
/// `data` is NULL or has `bytes` bytes.
unsafe fn bytes<'a>(data: *const u8, bytes: usize) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: the caller vouches for the data.
    unsafe { std::slice::from_raw_parts(data, bytes) }
}

fn sent(result: Result<(), SendError>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(SendError::Full) => 1,
        Err(SendError::TooLarge(_)) => 2,
        Err(SendError::Closed) => 3,
    }
}

/// # Safety
/// See dcudp.h.
#[no_mangle]
pub unsafe extern "C" fn dcudp_send_message(
    node: *const Node,
    connection: u32,
    data: *const u8,
    data_bytes: usize,
) -> c_int {
    // SAFETY: the caller vouches for the node and the data.
    guarded(3, || unsafe { sent((*node).send_message(connection, bytes(data, data_bytes))) })
}

/// # Safety
/// See dcudp.h.
#[no_mangle]
pub unsafe extern "C" fn dcudp_send_stream(
    node: *const Node,
    connection: u32,
    stream: u32,
    last: c_int,
    data: *const u8,
    data_bytes: usize,
) -> c_int {
    // SAFETY: the caller vouches for the node and the data.
    guarded(3, || unsafe {
        sent((*node).send_stream(connection, stream, last != 0, bytes(data, data_bytes)))
    })
}

/// # Safety
/// See dcudp.h.
#[no_mangle]
pub unsafe extern "C" fn dcudp_send_file(
    node: *const Node,
    connection: u32,
    file: *const c_char,
    name: *const c_char,
    transfer: *mut u32,
    error: *mut c_char,
    error_bytes: usize,
) -> c_int {
    let result = guarded(Err(PANICKED.to_owned()), || {
        // SAFETY: the caller vouches for the node and the strings.
        let (file, name) = unsafe { (path(file), text(name)) };
        let name = name.ok_or("a name for the receiver is missing")?;
        let name = name.to_str().map_err(|_| "the name for the receiver is not UTF-8".to_owned())?;
        unsafe { &*node }.send_file(connection, file.as_deref().unwrap_or_else(|| Path::new("")), name)
    });
    // SAFETY: the caller vouches for the places.
    unsafe { finish(result, transfer, error, error_bytes) }
}

/// # Safety
/// See dcudp.h.
#[no_mangle]
pub unsafe extern "C" fn dcudp_send_load(
    node: *const Node,
    connection: u32,
    duration_us: u64,
    error: *mut c_char,
    error_bytes: usize,
) -> c_int {
    // SAFETY: the caller vouches for the node and the buffer.
    unsafe {
        let result = guarded(Err(PANICKED.to_owned()), || (*node).send_load(connection, duration_us));
        finish(result, ptr::null_mut(), error, error_bytes)
    }
}

/// # Safety
/// See dcudp.h.
#[no_mangle]
pub unsafe extern "C" fn dcudp_close_connection(node: *const Node, connection: u32) {
    // SAFETY: the caller vouches for the node.
    guarded((), || unsafe { (*node).close_connection(connection) });
}

/// # Safety
/// See dcudp.h.
#[no_mangle]
pub unsafe extern "C" fn dcudp_abort_connection(node: *const Node, connection: u32) {
    // SAFETY: the caller vouches for the node.
    guarded((), || unsafe { (*node).abort_connection(connection) });
}

/// # Safety
/// See dcudp.h.
#[no_mangle]
pub unsafe extern "C" fn dcudp_get_statistics(
    node: *const Node,
    connection: u32,
    place: *mut CStatistics,
) -> c_int {
    // SAFETY: the caller vouches for the node.
    let found = match guarded(None, || unsafe { (*node).statistics(connection) }) {
        Some(found) => found,
        None => return -1,
    };
    let made = CStatistics {
        mode: mode_number(found.mode),
        mtu_bytes: found.mtu_bytes as u32,
        rate_pps: found.rate_pps,
        rtt_us: found.rtt_us,
        rtt_idle_us: found.rtt_idle_us,
        send_buffer_bytes: found.send_buffer_bytes as u64,
        receive_buffer_bytes: found.receive_buffer_bytes as u64,
        data_sent: found.data_sent,
        retransmitted: found.retransmitted,
        acknowledged: found.acknowledged,
        data_received: found.data_received,
        duplicates: found.duplicates,
        lost: found.lost,
        ce_received: found.ce_received,
        control_sent: found.control_sent,
        congestion_entries: found.congestion_entries,
        timeouts: found.timeouts,
        peer_window_packets: found.peer_window_packets,
        ecn_bleached: u32::from(found.ecn_bleached),
    };
    // SAFETY: the caller vouches for the place.
    unsafe { *place = made };
    0
}

/// # Safety
/// See dcudp.h.
#[no_mangle]
pub unsafe extern "C" fn dcudp_get_node_statistics(node: *const Node, place: *mut CNodeStatistics) {
    // SAFETY: the caller vouches for the node.
    let found = guarded(Default::default(), || unsafe { (*node).node_statistics() });
    let (socket, lateness) = (found.socket, &found.lateness);
    let made = CNodeStatistics {
        packets_sent: socket.packets_sent,
        bytes_sent: socket.bytes_sent,
        send_calls: socket.send_calls,
        joined_sent: socket.joined_sent,
        packets_received: socket.packets_received,
        bytes_received: socket.bytes_received,
        receive_calls: socket.receive_calls,
        joined_received: socket.joined_received,
        ce_received: socket.ce_received,
        too_large: socket.too_large,
        refused: socket.refused,
        paced: lateness.count(),
        late_mean_us: lateness.mean_us(),
        late_p99_us: lateness.p99_us(),
        late_max_us: lateness.max_us(),
        cpu_us: found.cpu_us,
        segments: u32::from(found.segments),
        txtime: u32::from(found.txtime),
        fragments: u32::from(found.fragments),
    };
    // SAFETY: the caller vouches for the place.
    unsafe { *place = made };
}

/// # Safety
/// See dcudp.h.
#[no_mangle]
pub unsafe extern "C" fn dcudp_make_key(
    file: *const c_char,
    error: *mut c_char,
    error_bytes: usize,
) -> c_int {
    // SAFETY: the caller vouches for the string and the buffer.
    unsafe {
        let result = guarded(Err(PANICKED.to_owned()), || match path(file) {
            Some(file) => key::write(&file),
            None => Err("a file name is missing".to_owned()),
        });
        finish(result, ptr::null_mut(), error, error_bytes)
    }
}
