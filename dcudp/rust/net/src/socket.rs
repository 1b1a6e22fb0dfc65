//! A UDP socket with ECN per packet, batched system calls and segmentation offload.
//!
//! ECN: the kernel takes the codepoint of a sent packet from a control message (IP_TOS, IPV6_TCLASS) and gives
//! that of a received packet in one (IP_RECVTOS, IPV6_RECVTCLASS); RFC 3168, section 5. `sendmmsg` and
//! `recvmmsg` move many packets in a call. With UDP_SEGMENT (Linux 4.18) one message carries up to 64 packets
//! that the kernel or the interface divides, and with UDP_GRO (Linux 5.0) the kernel gives received packets
//! joined. The kernel joins packets only if their ECN fields are equal, so no mark is lost.
//!
//! A socket that is bound to all addresses learns from IP_PKTINFO or IPV6_PKTINFO (RFC 3542, section 6) to which
//! address a packet was sent, and sends from the address that a `Transmit` names. Otherwise the kernel would choose
//! the primary address of the interface, which the peer does not expect.
//!
//! A socket has one address family. IP_MTU_DISCOVER is PROBE: packets are not fragmented, and the kernel's own
//! opinion of the path MTU does not refuse them. `allow_fragments` is the remedy if a path's MTU shrinks later.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use dcudp_proto::{Ecn, Route, Transmit};

use crate::sys::checked;

/// The most packets in one message with UDP_SEGMENT: UDP_MAX_SEGMENTS of Linux before 6.9.
const SEGMENTS_MAX: usize = 64;
/// The most payload bytes of one message: what an IPv4 datagram carries.
const MESSAGE_BYTES_MAX: usize = 65_507;
/// The most messages of one sendmmsg or recvmmsg.
const MESSAGES_MAX: usize = 32;
const RECEIVE_BYTES: usize = 65_536;
const CONTROL_WORDS: usize = 16;
/// The socket buffers that this crate asks for. Without CAP_NET_ADMIN, net.core.rmem_max and wmem_max limit them.
const BUFFER_BYTES: libc::c_int = 4 << 20;

// Linux's numbers (include/uapi), which some versions of the libc crate lack.
const UDP_SEGMENT: libc::c_int = 103;
const UDP_GRO: libc::c_int = 104;
const SOL_UDP: libc::c_int = 17;
const IPV6_MTU: libc::c_int = 24;
const SO_TXTIME: libc::c_int = 61;
const SCM_TXTIME: libc::c_int = 61;

/// The least MTU of IPv6 (RFC 8200, section 5).
const IPV6_MTU_MIN: libc::c_int = 1_280;

/// struct sock_txtime (include/uapi/linux/net_tstamp.h).
#[repr(C)]
struct TxTime {
    clock: libc::clockid_t,
    flags: u32,
}

/// Features of the kernel that a socket may use. Tests switch them off one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offloads {
    /// UDP_SEGMENT.
    pub segment: bool,
    /// UDP_GRO.
    pub gro: bool,
}

impl Default for Offloads {
    fn default() -> Offloads {
        Offloads { segment: true, gro: true }
    }
}

/// What a socket has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub packets_sent: u64,
    pub bytes_sent: u64,
    pub send_calls: u64,
    /// Messages with more than one packet (UDP_SEGMENT).
    pub joined_sent: u64,
    pub packets_received: u64,
    pub bytes_received: u64,
    pub receive_calls: u64,
    /// Received messages with more than one packet (UDP_GRO).
    pub joined_received: u64,
    pub ce_received: u64,
    /// Packets larger than the interface's MTU. They were not sent.
    pub too_large: u64,
    /// Packets that the kernel refused for another reason, such as a missing route. They were not sent.
    pub refused: u64,
}

/// How a call of `UdpSocket::send` ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    /// The queue is empty.
    All,
    /// The socket's buffer is full: wait until the socket is writable.
    Full,
}

/// A UDP socket that does not block.
pub struct UdpSocket {
    fd: OwnedFd,
    local: SocketAddr,
    segment: bool,
    txtime: bool,
    fragments: bool,
    buffers: Vec<u8>,
    /// What the socket has done.
    pub counters: Counters,
    /// The last refusal of a packet and its destination, for messages to people. A packet that is sent there later
    /// removes it.
    pub last_refusal: Option<(SocketAddr, io::Error)>,
}

impl UdpSocket {
    /// Open a socket at `address`; port 0 lets the kernel choose a port.
    pub fn bind(address: SocketAddr, offloads: Offloads) -> io::Result<UdpSocket> {
        let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket takes no pointer; the descriptor is new, so nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(checked(libc::socket(family, kind, 0))?) };
        let raw = fd.as_raw_fd();
        let is_any = libc::c_int::from(address.ip().is_unspecified());
        if address.is_ipv4() {
            set(raw, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
            set(raw, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
            set(raw, libc::IPPROTO_IP, libc::IP_PKTINFO, is_any)?;
        } else {
            set(raw, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
            set(raw, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
            set(raw, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
            set(raw, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, is_any)?;
        }
        for (forced, limited) in
            [(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF), (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)]
        {
            set(raw, libc::SOL_SOCKET, forced, BUFFER_BYTES)
                .or_else(|_| set(raw, libc::SOL_SOCKET, limited, BUFFER_BYTES))?;
        }
        if offloads.gro {
            // Without UDP_GRO the kernel gives each packet alone.
            let _ = set(raw, SOL_UDP, UDP_GRO, 1);
        }
        let segment = offloads.segment && set(raw, SOL_UDP, UDP_SEGMENT, 0).is_ok();
        let (name, length) = to_raw(&address);
        // SAFETY: the name lives during the call, and the length is that of its family.
        checked(unsafe { libc::bind(raw, (&name as *const libc::sockaddr_storage).cast(), length) })?;
        Ok(UdpSocket {
            local: local_address(raw)?,
            fd,
            segment,
            txtime: false,
            fragments: false,
            buffers: vec![0; RECEIVE_BYTES * MESSAGES_MAX],
            counters: Counters::default(),
            last_refusal: None,
        })
    }

    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Whether packets are sent with UDP_SEGMENT.
    pub fn sends_segments(&self) -> bool {
        self.segment
    }

    /// Let the qdisc fq send each packet at its own time (SO_TXTIME with CLOCK_MONOTONIC).
    ///
    /// Only for sockets whose interface has fq: other qdiscs ignore the time.
    pub fn use_txtime(&mut self) -> io::Result<()> {
        let option = TxTime { clock: libc::CLOCK_MONOTONIC, flags: 0 };
        set_value(self.fd(), libc::SOL_SOCKET, SO_TXTIME, &option)?;
        self.txtime = true;
        Ok(())
    }

    /// Whether the kernel sends packets at their times.
    pub fn uses_txtime(&self) -> bool {
        self.txtime
    }

    /// Let routers divide packets that exceed a link's MTU, and this host do it in IPv6 (RFC 8200, section 4.5).
    pub fn allow_fragments(&mut self) -> io::Result<()> {
        if self.local.is_ipv4() {
            set(self.fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT)?;
        } else {
            set(self.fd(), libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT)?;
            set(self.fd(), libc::IPPROTO_IPV6, IPV6_MTU, IPV6_MTU_MIN)?;
            // The kernel does not divide joined packets twice.
            self.segment = false;
        }
        self.fragments = true;
        Ok(())
    }

    /// Whether packets may be fragmented.
    pub fn allows_fragments(&self) -> bool {
        self.fragments
    }

    /// Send the packets at the front of the queue, and remove what was sent or refused.
    pub fn send(&mut self, queue: &mut VecDeque<Transmit>) -> Sent {
        let mut joins = self.segment;
        while !queue.is_empty() {
            let groups = group(queue, if joins { SEGMENTS_MAX } else { 1 }, self.txtime);
            match self.send_groups(queue, &groups) {
                Ok(sent) => {
                    for group in &groups[..sent] {
                        self.count_sent(queue, *group);
                    }
                    joins = self.segment;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Sent::Full,
                    Some(libc::EINTR) => {}
                    // The interface cannot compute checksums (EIO), or a packet exceeds the MTU: EINVAL, in newer
                    // kernels EMSGSIZE ("udp: gso: do not drop small packets when PMTU reduces"). Alone, a packet
                    // can be fragmented if that is allowed, and a smaller one may fit.
                    Some(code @ (libc::EIO | libc::EINVAL | libc::EMSGSIZE)) if groups[0] > 1 => {
                        joins = false;
                        self.segment &= code != libc::EIO;
                    }
                    code => self.refuse(queue, groups[0], code == Some(libc::EMSGSIZE), error),
                },
            }
        }
        Sent::All
    }

    fn count_sent(&mut self, queue: &mut VecDeque<Transmit>, packets: usize) {
        self.last_refusal = self.last_refusal.take().filter(|(to, _)| *to != queue[0].to);
        let bytes: usize = queue.drain(..packets).map(|packet| packet.contents.len()).sum();
        self.counters.packets_sent += packets as u64;
        self.counters.bytes_sent += bytes as u64;
        self.counters.joined_sent += u64::from(packets > 1);
    }

    fn refuse(&mut self, queue: &mut VecDeque<Transmit>, packets: usize, large: bool, why: io::Error) {
        let to = queue[0].to;
        queue.drain(..packets);
        if large {
            self.counters.too_large += packets as u64;
        } else {
            self.counters.refused += packets as u64;
            self.last_refusal = Some((to, why));
        }
    }

    /// One sendmmsg. Returns how many of the groups the kernel took: at least one.
    fn send_groups(&mut self, queue: &VecDeque<Transmit>, groups: &[usize]) -> io::Result<usize> {
        let count: usize = groups.iter().sum();
        let mut parts: Vec<libc::iovec> = queue
            .iter()
            .take(count)
            .map(|packet| libc::iovec {
                iov_base: packet.contents.as_ptr() as *mut libc::c_void,
                iov_len: packet.contents.len(),
            })
            .collect();
        let mut names = Vec::with_capacity(groups.len());
        let mut controls = vec![[0u64; CONTROL_WORDS]; groups.len()];
        let mut messages: Vec<libc::mmsghdr> = Vec::with_capacity(groups.len());
        let mut first = 0;
        for (index, packets) in groups.iter().enumerate() {
            let head = &queue[first];
            names.push(to_raw(&head.to));
            let (name, name_bytes) = &mut names[index];
            // SAFETY: all zeroes is a valid mmsghdr. `names` has its final capacity, so the name stays in place.
            let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
            let header = &mut message.msg_hdr;
            header.msg_name = (name as *mut libc::sockaddr_storage).cast();
            header.msg_namelen = *name_bytes;
            header.msg_iov = &mut parts[first];
            header.msg_iovlen = *packets as _;
            header.msg_control = controls[index].as_mut_ptr().cast();
            header.msg_controllen = mem::size_of::<[u64; CONTROL_WORDS]>() as _;
            let mut control = ControlWriter::new(header);
            if head.to.is_ipv4() {
                control.put(libc::IPPROTO_IP, libc::IP_TOS, libc::c_int::from(head.ecn.bits()));
            } else {
                control.put(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::c_int::from(head.ecn.bits()));
            }
            if let Some(source) = &head.from {
                control.put_source(source);
            }
            if *packets > 1 {
                control.put(SOL_UDP, UDP_SEGMENT, head.contents.len() as u16);
            }
            if self.txtime {
                control.put(libc::SOL_SOCKET, SCM_TXTIME, head.not_before_us * 1_000);
            }
            let length = control.length;
            message.msg_hdr.msg_controllen = length as _;
            messages.push(message);
            first += packets;
        }
        self.counters.send_calls += 1;
        // SAFETY: the messages point into vectors that live until after the call.
        let sent =
            unsafe { libc::sendmmsg(self.fd(), messages.as_mut_ptr(), messages.len() as libc::c_uint, 0) };
        checked(sent).map(|sent| sent as usize)
    }

    /// Receive once, up to 32 messages. `take` gets each packet with its way and ECN codepoint.
    ///
    /// Returns whether more may be waiting.
    pub fn receive(&mut self, mut take: impl FnMut(Route, Ecn, &[u8])) -> io::Result<bool> {
        let size = self.buffers.len() / MESSAGES_MAX;
        // SAFETY: all zeroes is a valid value of these C structures.
        let mut names: [libc::sockaddr_storage; MESSAGES_MAX] = unsafe { mem::zeroed() };
        let mut messages: [libc::mmsghdr; MESSAGES_MAX] = unsafe { mem::zeroed() };
        let mut controls = [[0u64; CONTROL_WORDS]; MESSAGES_MAX];
        let mut parts: Vec<libc::iovec> = self
            .buffers
            .chunks_exact_mut(size)
            .map(|chunk| libc::iovec { iov_base: chunk.as_mut_ptr().cast(), iov_len: size })
            .collect();
        for (index, message) in messages.iter_mut().enumerate() {
            let header = &mut message.msg_hdr;
            header.msg_name = (&mut names[index] as *mut libc::sockaddr_storage).cast();
            header.msg_namelen = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &mut parts[index];
            header.msg_iovlen = 1;
            header.msg_control = controls[index].as_mut_ptr().cast();
            header.msg_controllen = mem::size_of::<[u64; CONTROL_WORDS]>() as _;
        }
        self.counters.receive_calls += 1;
        // SAFETY: the messages point into arrays that live until after the loop below.
        let received = unsafe {
            libc::recvmmsg(
                self.fd(),
                messages.as_mut_ptr(),
                MESSAGES_MAX as libc::c_uint,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let count = match checked(received) {
            Ok(count) => count as usize,
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(false),
                // An ICMP error for an earlier packet: the protocol finds losses itself.
                Some(libc::EINTR | libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH) => {
                    return Ok(true)
                }
                _ => return Err(error),
            },
        };
        for (index, message) in messages[..count].iter().enumerate() {
            let peer = match from_raw(&names[index]) {
                Some(peer) if message.msg_hdr.msg_flags & libc::MSG_TRUNC == 0 => peer,
                _ => continue,
            };
            let Control { ecn, segment_bytes, local } = read_control(&message.msg_hdr, self.local.port());
            let route = Route { peer, local };
            let bytes = &self.buffers[index * size..index * size + message.msg_len as usize];
            let packets = bytes.chunks(segment_bytes.unwrap_or(bytes.len()).max(1));
            self.counters.joined_received += u64::from(packets.len() > 1);
            self.counters.packets_received += packets.len() as u64;
            self.counters.bytes_received += bytes.len() as u64;
            if ecn == Ecn::Ce {
                self.counters.ce_received += packets.len() as u64;
            }
            packets.for_each(|packet| take(route, ecn, packet));
        }
        Ok(count == MESSAGES_MAX)
    }
}

/// How many packets from the queue's front each message carries.
///
/// The packets of a message have one way, one ECN codepoint and one size; the last may be smaller.
fn group(queue: &VecDeque<Transmit>, segments_max: usize, timed: bool) -> Vec<usize> {
    let mut groups = Vec::with_capacity(MESSAGES_MAX);
    let mut first = 0;
    while first < queue.len() && groups.len() < MESSAGES_MAX {
        let head = &queue[first];
        let size = head.contents.len();
        let mut packets = 1;
        let mut bytes = size;
        while packets < segments_max && first + packets < queue.len() {
            let next = &queue[first + packets];
            let length = next.contents.len();
            let same_way = (next.to, next.from) == (head.to, head.from);
            let same = same_way && next.ecn == head.ecn && length <= size && length > 0;
            let same_time = !timed || next.not_before_us == head.not_before_us;
            if !same || !same_time || bytes + length > MESSAGE_BYTES_MAX {
                break;
            }
            packets += 1;
            bytes += length;
            if length < size {
                break;
            }
        }
        groups.push(packets);
        first += packets;
    }
    groups
}

/// Writes control messages into the buffer of a header.
struct ControlWriter {
    next: *mut libc::cmsghdr,
    header: *const libc::msghdr,
    /// The bytes that were written, with padding.
    length: usize,
}

impl ControlWriter {
    fn new(header: &libc::msghdr) -> ControlWriter {
        // SAFETY: the header's control buffer is valid, zeroed and aligned for a cmsghdr.
        let next = unsafe { libc::CMSG_FIRSTHDR(header) };
        ControlWriter { next, header, length: 0 }
    }

    fn put<T: Copy>(&mut self, level: libc::c_int, kind: libc::c_int, value: T) {
        let bytes = mem::size_of::<T>() as libc::c_uint;
        // SAFETY: four small messages fit into the buffer, which outlives this writer.
        unsafe {
            assert!(!self.next.is_null(), "the control buffer holds every message of a packet");
            (*self.next).cmsg_level = level;
            (*self.next).cmsg_type = kind;
            (*self.next).cmsg_len = libc::CMSG_LEN(bytes) as _;
            ptr::write_unaligned(libc::CMSG_DATA(self.next).cast::<T>(), value);
            self.length += libc::CMSG_SPACE(bytes) as usize;
            self.next = libc::CMSG_NXTHDR(self.header, self.next);
        }
    }

    /// The source address (ip(7), RFC 3542 section 6.2). Only a link-local address names its interface.
    fn put_source(&mut self, source: &SocketAddr) {
        match source {
            SocketAddr::V4(v4) => {
                let address = libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) };
                let any = libc::in_addr { s_addr: libc::INADDR_ANY };
                let source = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: address, ipi_addr: any };
                self.put(libc::IPPROTO_IP, libc::IP_PKTINFO, source);
            }
            SocketAddr::V6(v6) => {
                let address = libc::in6_addr { s6_addr: v6.ip().octets() };
                let source = libc::in6_pktinfo { ipi6_addr: address, ipi6_ifindex: v6.scope_id() };
                self.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, source);
            }
        }
    }
}

/// What the kernel states about a received message.
struct Control {
    ecn: Ecn,
    /// The size of the packets that the kernel joined.
    segment_bytes: Option<usize>,
    /// Where the peer sent it, on a socket that is bound to all addresses.
    local: Option<SocketAddr>,
}

fn read_control(header: &libc::msghdr, port: u16) -> Control {
    let mut control = Control { ecn: Ecn::NotEct, segment_bytes: None, local: None };
    // SAFETY: the kernel has written the control messages, and the header describes them.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: `next` is a control message within the buffer. The kernel sends IP_TOS as one byte, IPV6_TCLASS
        // and UDP_GRO as an int, and the others as their structures.
        unsafe {
            let data = libc::CMSG_DATA(next);
            match ((*next).cmsg_level, (*next).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_TOS) => control.ecn = Ecn::from_bits(ptr::read(data)),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    control.ecn = Ecn::from_bits(ptr::read_unaligned(data.cast::<libc::c_int>()) as u8);
                }
                (SOL_UDP, UDP_GRO) => {
                    control.segment_bytes = Some(ptr::read_unaligned(data.cast::<libc::c_int>()) as usize);
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    control.local = Some(local_v4(&ptr::read_unaligned(data.cast()), port));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    control.local = local_v6(&ptr::read_unaligned(data.cast()), port);
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(header, next);
        }
    }
    control
}

/// This host's address for a packet: of a broadcast, the interface's.
fn local_v4(source: &libc::in_pktinfo, port: u16) -> SocketAddr {
    let ip = Ipv4Addr::from(source.ipi_spec_dst.s_addr.to_ne_bytes());
    SocketAddr::V4(SocketAddrV4::new(ip, port))
}

/// None for a multicast address, which is no source.
fn local_v6(source: &libc::in6_pktinfo, port: u16) -> Option<SocketAddr> {
    let ip = Ipv6Addr::from(source.ipi6_addr.s6_addr);
    let is_link_local = ip.segments()[0] & 0xffc0 == 0xfe80;
    let scope = if is_link_local { source.ipi6_ifindex } else { 0 };
    (!ip.is_multicast()).then(|| SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope)))
}

fn set(fd: RawFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    set_value(fd, level, option, &value)
}

fn set_value<T>(fd: RawFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let bytes = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and the length are those of one value.
    checked(unsafe { libc::setsockopt(fd, level, option, (value as *const T).cast(), bytes) }).map(|_| ())
}

fn local_address(fd: RawFd) -> io::Result<SocketAddr> {
    // SAFETY: all zeroes is a valid sockaddr_storage, and the kernel writes at most its length.
    let name = unsafe {
        let mut name: libc::sockaddr_storage = mem::zeroed();
        let mut length = mem::size_of_val(&name) as libc::socklen_t;
        checked(libc::getsockname(fd, (&mut name as *mut libc::sockaddr_storage).cast(), &mut length))?;
        name
    };
    from_raw(&name).ok_or_else(|| io::Error::new(io::ErrorKind::Other, "the socket has no IP address"))
}

fn to_raw(address: &SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all zeroes is a valid sockaddr_storage, which has the size and alignment of each address family.
    unsafe {
        let mut storage: libc::sockaddr_storage = mem::zeroed();
        let length = match address {
            SocketAddr::V4(v4) => {
                let name = &mut *(&mut storage as *mut libc::sockaddr_storage).cast::<libc::sockaddr_in>();
                name.sin_family = libc::AF_INET as libc::sa_family_t;
                name.sin_port = v4.port().to_be();
                name.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                mem::size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let name = &mut *(&mut storage as *mut libc::sockaddr_storage).cast::<libc::sockaddr_in6>();
                name.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                name.sin6_port = v6.port().to_be();
                name.sin6_addr.s6_addr = v6.ip().octets();
                name.sin6_scope_id = v6.scope_id();
                mem::size_of::<libc::sockaddr_in6>()
            }
        };
        (storage, length as libc::socklen_t)
    }
}

fn from_raw(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let pointer = storage as *const libc::sockaddr_storage;
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family states the type.
            let name = unsafe { &*pointer.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(name.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: the family states the type.
            let name = unsafe { &*pointer.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, name.sin6_scope_id)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "127.0.0.1:0";
    const V6: &str = "[::1]:0";
    const NONE: Offloads = Offloads { segment: false, gro: false };

    fn packet(to: SocketAddr, ecn: Ecn, contents: &[u8]) -> Transmit {
        Transmit { to, from: None, ecn, contents: contents.to_vec(), not_before_us: 0 }
    }

    fn exchange(
        address: &str,
        offloads: Offloads,
        packets: &[(Ecn, Vec<u8>)],
    ) -> Vec<(SocketAddr, Ecn, Vec<u8>)> {
        let mut sender = UdpSocket::bind(address.parse().unwrap(), offloads).unwrap();
        let mut receiver = UdpSocket::bind(address.parse().unwrap(), offloads).unwrap();
        let mut queue: VecDeque<Transmit> =
            packets.iter().map(|(ecn, bytes)| packet(receiver.local(), *ecn, bytes)).collect();
        assert_eq!(sender.send(&mut queue), Sent::All);
        let mut got = Vec::new();
        while got.len() < packets.len() {
            receiver.receive(|route, ecn, bytes| got.push((route.peer, ecn, bytes.to_vec()))).unwrap();
        }
        assert!(got.iter().all(|(from, ..)| *from == sender.local()));
        assert_eq!(sender.counters.packets_sent, packets.len() as u64);
        assert_eq!(receiver.counters.packets_received, packets.len() as u64);
        got
    }

    #[test]
    fn every_codepoint_arrives_with_its_packet() {
        let all = [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce];
        let packets: Vec<_> = all.iter().map(|ecn| (*ecn, vec![1, 2, 3])).collect();
        for address in [V4, V6] {
            for offloads in [NONE, Offloads::default()] {
                let got: Vec<Ecn> =
                    exchange(address, offloads, &packets).into_iter().map(|(_, ecn, _)| ecn).collect();
                assert_eq!(got, all, "{address} {offloads:?}");
            }
        }
    }

    #[test]
    fn joined_packets_arrive_as_they_were_sent() {
        let mut packets: Vec<_> = (0..100u8).map(|n| (Ecn::Ect0, vec![n; 1_000])).collect();
        packets.push((Ecn::Ect0, vec![200; 10]));
        for address in [V4, V6] {
            let got = exchange(address, Offloads::default(), &packets);
            let contents: Vec<_> = got.into_iter().map(|(_, ecn, bytes)| (ecn, bytes)).collect();
            assert_eq!(contents, packets);
        }
    }

    #[test]
    fn packets_with_a_time_arrive_from_an_interface_that_ignores_it() {
        let mut sender = UdpSocket::bind(V4.parse().unwrap(), Offloads::default()).unwrap();
        let mut receiver = UdpSocket::bind(V4.parse().unwrap(), Offloads::default()).unwrap();
        sender.use_txtime().unwrap();
        let mut queue: VecDeque<Transmit> = (0..3u8)
            .map(|n| Transmit {
                to: receiver.local(),
                from: None,
                ecn: Ecn::Ect0,
                contents: vec![n; 100],
                not_before_us: crate::sys::now_us() + u64::from(n) * 1_000,
            })
            .collect();
        assert_eq!(sender.send(&mut queue), Sent::All);
        let mut got = Vec::new();
        while got.len() < 3 {
            receiver.receive(|_, ecn, bytes| got.push((ecn, bytes[0]))).unwrap();
        }
        assert_eq!(got, [(Ecn::Ect0, 0), (Ecn::Ect0, 1), (Ecn::Ect0, 2)]);
        assert_eq!(sender.counters.joined_sent, 0);
    }

    /// One route: what `socket` gets with the packets that wait.
    fn received(socket: &mut UdpSocket) -> Route {
        let mut got = Vec::new();
        while got.is_empty() {
            socket.receive(|route, _, _| got.push(route)).unwrap();
        }
        got[0]
    }

    #[test]
    fn a_socket_at_all_addresses_answers_from_the_one_that_was_asked() {
        for (any, client, asked) in [
            ("0.0.0.0:0", "127.0.0.1:0", "127.0.0.2"),
            ("0.0.0.0:0", "127.0.0.2:0", "127.0.0.3"),
            ("[::]:0", V6, "::1"),
        ] {
            for offloads in [NONE, Offloads::default()] {
                let mut server = UdpSocket::bind(any.parse().unwrap(), offloads).unwrap();
                let mut client = UdpSocket::bind(client.parse().unwrap(), offloads).unwrap();
                let asked = SocketAddr::new(asked.parse().unwrap(), server.local().port());
                let question: VecDeque<Transmit> = [packet(asked, Ecn::NotEct, b"?")].into();
                assert_eq!(client.send(&mut question.clone()), Sent::All);
                let route = received(&mut server);
                assert_eq!(route, Route { peer: client.local(), local: Some(asked) });
                let mut answer: VecDeque<Transmit> = (0..3u8)
                    .map(|n| Transmit { from: route.local, ..packet(route.peer, Ecn::Ect0, &[n; 100]) })
                    .collect();
                assert_eq!(server.send(&mut answer), Sent::All);
                assert_eq!(received(&mut client), Route { peer: asked, local: None }, "{any} {offloads:?}");
            }
        }
    }

    #[test]
    fn a_group_has_one_way_codepoint_and_size() {
        let (one, other): (SocketAddr, SocketAddr) =
            ("1.2.3.4:5".parse().unwrap(), "1.2.3.4:6".parse().unwrap());
        let queue: VecDeque<Transmit> = [
            packet(one, Ecn::Ect0, &[0; 9]),
            packet(one, Ecn::Ect0, &[0; 9]),
            packet(one, Ecn::Ect0, &[0; 4]),
            packet(one, Ecn::Ect0, &[0; 9]),
            packet(one, Ecn::NotEct, &[0; 9]),
            packet(other, Ecn::NotEct, &[0; 9]),
            packet(other, Ecn::NotEct, &[0; 10]),
            Transmit { from: Some(one), ..packet(other, Ecn::NotEct, &[0; 10]) },
        ]
        .into_iter()
        .collect();
        assert_eq!(group(&queue, SEGMENTS_MAX, false), [3, 1, 1, 1, 1, 1]);
        assert_eq!(group(&queue, 1, false), [1; 8]);
    }

    #[test]
    fn a_message_is_not_larger_than_a_datagram() {
        let to: SocketAddr = "127.0.0.1:5".parse().unwrap();
        let queue: VecDeque<Transmit> = (0..50).map(|_| packet(to, Ecn::Ect0, &[0; 9_000])).collect();
        assert_eq!(group(&queue, SEGMENTS_MAX, false)[0], 7);
    }

    #[test]
    fn joined_packets_that_exceed_the_mtu_are_sent_alone_and_fragmented() {
        let mut sender = UdpSocket::bind(V6.parse().unwrap(), NONE).unwrap();
        let mut receiver = UdpSocket::bind(V6.parse().unwrap(), NONE).unwrap();
        let segments = UdpSocket::bind(V6.parse().unwrap(), Offloads::default()).unwrap().segment;
        sender.allow_fragments().unwrap();
        // As in IPv4, whose sockets still join packets then.
        sender.segment = segments;
        let packets: Vec<Vec<u8>> = (1..=3).map(|n| vec![n; 1_400]).collect();
        let mut queue: VecDeque<Transmit> =
            packets.iter().map(|bytes| packet(receiver.local(), Ecn::Ect0, bytes)).collect();
        assert_eq!(sender.send(&mut queue), Sent::All);
        assert_eq!((sender.counters.too_large, sender.counters.packets_sent), (0, 3));
        assert_eq!(sender.segment, segments);
        let mut got = Vec::new();
        while got.len() < packets.len() {
            receiver.receive(|_, _, bytes| got.push(bytes.to_vec())).unwrap();
        }
        assert_eq!(got, packets);
    }

    #[test]
    fn a_refusal_is_known_until_a_packet_is_sent_to_the_same_destination() {
        let mut socket = UdpSocket::bind("0.0.0.0:0".parse().unwrap(), NONE).unwrap();
        let (to, other): (SocketAddr, SocketAddr) =
            ("127.0.0.1:9".parse().unwrap(), "127.0.0.2:9".parse().unwrap());
        // No host has this address (RFC 5737).
        let foreign = Some("192.0.2.1:9".parse().unwrap());
        let refused = Transmit { from: foreign, ..packet(to, Ecn::NotEct, &[7]) };
        for (sent, known) in [
            (refused, true),
            (packet(other, Ecn::NotEct, &[7]), true),
            (packet(to, Ecn::NotEct, &[7]), false),
        ] {
            socket.send(&mut [sent].into());
            assert_eq!(socket.last_refusal.as_ref().map(|(to, _)| *to), known.then_some(to));
        }
        assert_eq!((socket.counters.refused, socket.counters.packets_sent), (1, 2));
    }

    #[test]
    fn a_packet_that_the_kernel_refuses_is_counted_and_the_rest_is_sent() {
        let mut socket = UdpSocket::bind(V4.parse().unwrap(), Offloads::default()).unwrap();
        let local = socket.local();
        let mut queue: VecDeque<Transmit> =
            [packet(local, Ecn::Ect0, &[0; 65_508]), packet(local, Ecn::Ect0, &[7])].into_iter().collect();
        assert_eq!(socket.send(&mut queue), Sent::All);
        assert_eq!((socket.counters.too_large, socket.counters.packets_sent), (1, 1));
    }
}
