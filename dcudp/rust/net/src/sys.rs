//! The system calls of this crate: each `unsafe` call of libc has a safe function here.
//!
//! Only `socket.rs` (message headers), `files/folder.rs` (files below a folder), `qdisc.rs` (netlink) and `ffi.rs`
//! (the C interface) have further `unsafe` code.

use std::io;
use std::mem;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use dcudp_proto::Micros;

/// The result of a system call that returns -1 on failure.
pub fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Take ownership of a descriptor that a system call has just returned.
fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    let fd = checked(fd)?;
    // SAFETY: the descriptor is open and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    // SAFETY: a timespec may be all zeroes, and the call only writes to it.
    let time = unsafe {
        let mut time: libc::timespec = mem::zeroed();
        libc::clock_gettime(clock, &mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CLOCK_MONOTONIC in microseconds. Setting the host's clock does not change it.
pub fn now_us() -> Micros {
    clock_ns(libc::CLOCK_MONOTONIC) / 1_000
}

/// The CPU time of the calling thread, in microseconds.
pub fn thread_cpu_us() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) / 1_000
}

/// Let the calling thread's waits end on time. By default the kernel may add 50 us (timer slack).
pub fn request_exact_waits() {
    // SAFETY: PR_SET_TIMERSLACK takes a number and changes the calling thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
}

/// Fill `bytes` from the kernel's random number generator.
pub fn random(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: the pointer and the length are those of one slice.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        if got > 0 {
            filled += got as usize;
        } else if got < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// An eventfd: a counter that a poll reports as readable while it is not 0.
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    pub fn new() -> io::Result<Wake> {
        // SAFETY: eventfd takes no pointer.
        owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }).map(Wake)
    }

    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Make the descriptor readable.
    pub fn set(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the pointer and the length are those of one array. A full counter is readable as well.
        unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Make the descriptor unreadable.
    pub fn clear(&self) {
        let mut count = [0u8; 8];
        // SAFETY: the pointer and the length are those of one array.
        unsafe { libc::read(self.fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

/// What a poll waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ready {
    pub readable: bool,
    pub writable: bool,
}

/// An epoll instance. Descriptors are level-triggered and named by a number.
#[derive(Debug)]
pub struct Poll(OwnedFd);

impl Poll {
    pub fn new() -> io::Result<Poll> {
        // SAFETY: epoll_create1 takes no pointer.
        owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(Poll)
    }

    pub fn add(&self, fd: RawFd, name: u64, interest: Ready) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, name, interest)
    }

    pub fn change(&self, fd: RawFd, name: u64, interest: Ready) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, name, interest)
    }

    fn control(&self, action: libc::c_int, fd: RawFd, name: u64, interest: Ready) -> io::Result<()> {
        let mut events = 0;
        if interest.readable {
            events |= libc::EPOLLIN as u32;
        }
        if interest.writable {
            events |= libc::EPOLLOUT as u32;
        }
        let mut event = libc::epoll_event { events, u64: name };
        // SAFETY: the event lives during the call.
        checked(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), action, fd, &mut event) }).map(|_| ())
    }

    /// Wait until a descriptor is ready or `timeout_us` have passed (None: no limit).
    ///
    /// Returns the ready descriptors by name. epoll_pwait2 (Linux 5.11) has a timeout in nanoseconds, while
    /// that of epoll_wait in milliseconds is too coarse for pacing.
    pub fn wait(&self, timeout_us: Option<u64>) -> io::Result<Vec<(u64, Ready)>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 8];
        let time = timeout_us.map(|us| libc::timespec {
            tv_sec: (us / 1_000_000) as libc::time_t,
            tv_nsec: (us % 1_000_000) as libc::c_long * 1_000,
        });
        let pointer = time.as_ref().map_or(std::ptr::null(), |time| time as *const libc::timespec);
        // SAFETY: the arrays and the timespec live during the call; a null signal mask changes nothing.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                events.len() as libc::c_int,
                pointer,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        match checked(count as libc::c_int) {
            Ok(count) => Ok(events[..count as usize]
                .iter()
                .map(|event| {
                    let bits = event.events;
                    let broken = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
                    let ready = Ready {
                        readable: bits & (libc::EPOLLIN as u32 | broken) != 0,
                        writable: bits & libc::EPOLLOUT as u32 != 0,
                    };
                    (event.u64, ready)
                })
                .collect()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_is_readable_until_it_is_cleared() {
        let (poll, wake) = (Poll::new().unwrap(), Wake::new().unwrap());
        poll.add(wake.fd(), 7, Ready { readable: true, writable: false }).unwrap();
        assert!(poll.wait(Some(0)).unwrap().is_empty());
        wake.set();
        assert_eq!(poll.wait(Some(0)).unwrap(), [(7, Ready { readable: true, writable: false })]);
        wake.clear();
        assert!(poll.wait(Some(0)).unwrap().is_empty());
    }

    #[test]
    fn a_wait_lasts_at_least_its_timeout() {
        let before = now_us();
        Poll::new().unwrap().wait(Some(2_000)).unwrap();
        assert!(now_us() - before >= 2_000);
    }

    #[test]
    fn random_bytes_differ() {
        let (mut one, mut other) = ([0; 32], [0; 32]);
        random(&mut one).unwrap();
        random(&mut other).unwrap();
        assert_ne!(one, other);
    }
}
