//! What the kernel knows of the path to a peer: the interface's MTU and qdisc.

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::sys::checked;

/// IP and UDP headers.
const HEADERS_V4_BYTES: usize = 28;
const HEADERS_V6_BYTES: usize = 48;
/// The MTU of Ethernet, if the interface is not known.
const ETHERNET_MTU_BYTES: usize = 1_500;
/// The largest MTU in use. Loopback has 65,536, at which one lost packet costs much.
const JUMBO_MTU_BYTES: usize = 9_000;

/// The UDP payload that fits the MTU towards `to`, or Ethernet's if there is no route.
///
/// The handshake proves that the path carries it, and falls back if not.
pub fn payload_bytes_towards(to: SocketAddr) -> usize {
    payload_bytes(to.ip(), mtu_towards(to).unwrap_or(ETHERNET_MTU_BYTES))
}

/// The UDP payload for a socket that listens at `local`: Ethernet's.
pub fn payload_bytes_at(local: SocketAddr) -> usize {
    let mtu = if local.ip().is_loopback() { JUMBO_MTU_BYTES } else { ETHERNET_MTU_BYTES };
    payload_bytes(local.ip(), mtu)
}

fn payload_bytes(ip: IpAddr, mtu_bytes: usize) -> usize {
    let headers = if ip.is_ipv4() { HEADERS_V4_BYTES } else { HEADERS_V6_BYTES };
    mtu_bytes.min(JUMBO_MTU_BYTES).saturating_sub(headers)
}

fn connected(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = if to.is_ipv4() { [0u8; 4].into() } else { [0u8; 16].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    Ok(socket)
}

fn mtu_towards(to: SocketAddr) -> io::Result<usize> {
    let socket = connected(to)?;
    let (level, option) =
        if to.is_ipv4() { (libc::IPPROTO_IP, libc::IP_MTU) } else { (libc::IPPROTO_IPV6, libc::IPV6_MTU) };
    let mut mtu: libc::c_int = 0;
    let mut length = mem::size_of_val(&mtu) as libc::socklen_t;
    let value = (&mut mtu as *mut libc::c_int).cast();
    // SAFETY: the value and its length live during the call.
    checked(unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, value, &mut length) })?;
    usize::try_from(mtu).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Whether the interface towards `to` has the qdisc fq, which sends each packet at its own time (SO_TXTIME).
///
/// The interface is the one that has the source address which the kernel chooses. Its qdiscs come from
/// RTM_GETQDISC. Below mq, every queue must have fq. Other qdiscs ignore the time. etf drops packets whose time
/// has passed, so this crate does not use it.
pub fn sends_on_time(to: SocketAddr) -> bool {
    let found = connected(to).and_then(|socket| socket.local_addr()).and_then(|local| {
        let index = interface_of(local.ip())?;
        Ok(has_fq(index, &qdiscs()?))
    });
    found.unwrap_or(false)
}

/// A qdisc of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Qdisc {
    interface: u32,
    parent: u32,
    kind: String,
}

const ROOT: u32 = 0xffff_ffff;
const INGRESS: u32 = 0xffff_fff1;

fn has_fq(interface: u32, qdiscs: &[Qdisc]) -> bool {
    let mut own = qdiscs.iter().filter(|qdisc| qdisc.interface == interface && qdisc.parent != INGRESS);
    let below_mq = own.clone().any(|qdisc| qdisc.parent == ROOT && qdisc.kind == "mq");
    if below_mq {
        let mut leaves = own.filter(|qdisc| qdisc.parent != ROOT).peekable();
        leaves.peek().is_some() && leaves.all(|qdisc| qdisc.kind == "fq")
    } else {
        own.any(|qdisc| qdisc.parent == ROOT && qdisc.kind == "fq")
    }
}

fn interface_of(ip: IpAddr) -> io::Result<u32> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: getifaddrs stores a list, which is freed below.
    checked(unsafe { libc::getifaddrs(&mut first) })?;
    let mut found = Err(io::Error::from_raw_os_error(libc::ENODEV));
    let mut next = first;
    while !next.is_null() {
        // SAFETY: the list is valid until freeifaddrs. The family of an address states its type.
        unsafe {
            let entry = &*next;
            if !entry.ifa_addr.is_null() && address(entry.ifa_addr) == Some(ip) {
                found = Ok(libc::if_nametoindex(entry.ifa_name));
                break;
            }
            next = entry.ifa_next;
        }
    }
    // SAFETY: the list came from getifaddrs and is not used any more.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// # Safety
/// `name` points to a valid address of the type that its family states.
unsafe fn address(name: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller vouches for the type.
    unsafe {
        match libc::c_int::from((*name).sa_family) {
            libc::AF_INET => {
                Some(IpAddr::from((*name.cast::<libc::sockaddr_in>()).sin_addr.s_addr.to_ne_bytes()))
            }
            libc::AF_INET6 => Some(IpAddr::from((*name.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr)),
            _ => None,
        }
    }
}

const NETLINK_HEAD_BYTES: usize = 16;
const TC_HEAD_BYTES: usize = 20;
const TCA_KIND: u16 = 1;

/// Every qdisc of this network namespace (RTM_GETQDISC, rtnetlink(7)).
fn qdiscs() -> io::Result<Vec<Qdisc>> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes no pointer, and nothing else owns the new descriptor.
    let socket =
        unsafe { OwnedFd::from_raw_fd(checked(libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE))?) };
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_DUMP;
    let mut request = Vec::with_capacity(NETLINK_HEAD_BYTES + TC_HEAD_BYTES);
    request.extend_from_slice(&((NETLINK_HEAD_BYTES + TC_HEAD_BYTES) as u32).to_ne_bytes());
    request.extend_from_slice(&libc::RTM_GETQDISC.to_ne_bytes());
    request.extend_from_slice(&(flags as u16).to_ne_bytes());
    request.resize(NETLINK_HEAD_BYTES + TC_HEAD_BYTES, 0);
    // SAFETY: the pointer and the length are those of one vector.
    let sent = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    checked(sent as libc::c_int)?;
    let mut found = Vec::new();
    let mut buffer = vec![0u8; 65_536];
    loop {
        let length = receive(socket.as_raw_fd(), &mut buffer)?;
        if length == 0 || !read_messages(&buffer[..length], &mut found) {
            return Ok(found);
        }
    }
}

fn receive(socket: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and the length are those of one slice.
    let length = unsafe { libc::recv(socket, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    checked(length as libc::c_int).map(|length| length as usize)
}

/// Read the messages of one datagram. False: the last one has ended the list.
fn read_messages(mut bytes: &[u8], found: &mut Vec<Qdisc>) -> bool {
    while let Some(head) = bytes.get(..NETLINK_HEAD_BYTES) {
        let length = word(head, 0) as usize;
        let kind = half_word(head, 4);
        let message = match bytes.get(NETLINK_HEAD_BYTES..length) {
            Some(message) if kind == libc::RTM_NEWQDISC => message,
            _ => return false,
        };
        found.extend(read_qdisc(message));
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
    }
    true
}

fn read_qdisc(message: &[u8]) -> Option<Qdisc> {
    let head = message.get(..TC_HEAD_BYTES)?;
    let mut attributes = &message[TC_HEAD_BYTES..];
    while let Some(attribute) = attributes.get(..4) {
        let length = half_word(attribute, 0) as usize;
        let value = attributes.get(4..length)?;
        if half_word(attribute, 2) == TCA_KIND {
            let text = value.split(|byte| *byte == 0).next()?;
            let kind = String::from_utf8_lossy(text).into_owned();
            return Some(Qdisc { interface: word(head, 4), parent: word(head, 12), kind });
        }
        attributes = attributes.get(aligned(length)..)?;
    }
    None
}

fn aligned(length: usize) -> usize {
    (length + 3) & !3
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn half_word(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qdisc(interface: u32, parent: u32, kind: &str) -> Qdisc {
        Qdisc { interface, parent, kind: kind.to_owned() }
    }

    #[test]
    fn only_fq_at_the_root_or_in_every_queue_sends_on_time() {
        let fq = [qdisc(2, ROOT, "fq"), qdisc(2, INGRESS, "clsact"), qdisc(3, ROOT, "noqueue")];
        assert!(has_fq(2, &fq));
        assert!(!has_fq(3, &fq));
        assert!(!has_fq(4, &fq));
        assert!(has_fq(2, &[qdisc(2, ROOT, "mq"), qdisc(2, 0x8001_0001, "fq"), qdisc(2, 0x8001_0002, "fq")]));
        assert!(!has_fq(
            2,
            &[qdisc(2, ROOT, "mq"), qdisc(2, 0x8001_0001, "fq"), qdisc(2, 0x8001_0002, "fq_codel")]
        ));
        assert!(!has_fq(2, &[qdisc(2, ROOT, "mq")]));
        assert!(!has_fq(2, &[qdisc(2, ROOT, "htb"), qdisc(2, 0x0001_0001, "fq")]));
        assert!(!has_fq(2, &[qdisc(2, ROOT, "etf")]));
    }

    #[test]
    fn the_kernel_lists_qdiscs_and_interfaces() {
        assert!(interface_of("127.0.0.1".parse().unwrap()).unwrap() > 0);
        assert!(interface_of("192.0.2.1".parse().unwrap()).is_err());
        assert!(qdiscs().unwrap().iter().all(|qdisc| qdisc.interface > 0 && !qdisc.kind.is_empty()));
        assert!(!sends_on_time("127.0.0.1:9".parse().unwrap()));
    }

    #[test]
    fn malformed_netlink_messages_end_the_list() {
        let mut found = Vec::new();
        assert!(!read_messages(&[0; NETLINK_HEAD_BYTES], &mut found));
        assert!(!read_messages(&[255; 40], &mut found));
        assert!(found.is_empty());
        assert_eq!(read_qdisc(&[0; 40]), None);
    }

    #[test]
    fn the_payload_fits_the_mtu() {
        assert_eq!(payload_bytes_towards("127.0.0.1:9".parse().unwrap()), 8_972);
        assert_eq!(payload_bytes_at("0.0.0.0:9".parse().unwrap()), 1_472);
        assert_eq!(payload_bytes_at("[::]:9".parse().unwrap()), 1_452);
        assert_eq!(payload_bytes_at("[::1]:9".parse().unwrap()), 8_952);
    }
}
