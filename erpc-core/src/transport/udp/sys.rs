//! System calls that the dependencies do not offer, or only at extra cost.

use std::mem::{offset_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::route::Name;
use crate::transport::QUOTE_LEN;

/// Converts the result of a system call that returns -1 on error.
#[inline]
fn checked(result: isize) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| last_error())
}

#[cold]
fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Sets an integer option.
pub(super) fn set_option(
    fd: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: i32,
) -> Result<(), Errno> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the pointer and length are those of `value`, which outlives the call.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    checked(result as isize).map(drop)
}

/// Makes `program` select, for each received packet, a socket of `fd`'s `SO_REUSEPORT` group.
pub(super) fn attach_reuseport_program(
    fd: BorrowedFd<'_>,
    program: &[libc::sock_filter],
) -> Result<(), Errno> {
    let program =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    let len = size_of::<libc::sock_fprog>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF);
    // SAFETY: the descriptor points to `program`'s instructions and has their count. The kernel
    // copies them during the call and writes nothing.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const program).cast(), len) };
    checked(result as isize).map(drop)
}

/// Makes `fd` another name of the file `other`. What `fd` named before is closed.
pub(super) fn replace(fd: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: both descriptors are open. `fd` stays open and keeps its owner; the call only changes
    // the file behind it.
    let result = unsafe { libc::dup3(other.as_raw_fd(), fd.as_raw_fd(), libc::O_CLOEXEC) };
    checked(result as isize).map(drop)
}

/// Number of datagrams that the kernel has dropped at the socket, modulo 2^32. `None` if the kernel
/// does not report it.
pub(super) fn dropped(fd: BorrowedFd<'_>) -> Option<u32> {
    const SO_MEMINFO: i32 = 55;
    const SK_MEMINFO_DROPS: usize = 8;
    let mut info = [0_u32; SK_MEMINFO_DROPS + 1];
    let mut len = size_of_val(&info) as libc::socklen_t;
    let (fd, info_ptr) = (fd.as_raw_fd(), info.as_mut_ptr().cast());
    // SAFETY: the kernel writes at most `len` bytes, the size of `info`.
    let result =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, SO_MEMINFO, info_ptr, &raw mut len) };
    (result == 0 && len as usize >= size_of_val(&info)).then_some(info[SK_MEMINFO_DROPS])
}

/// Receives one datagram. Returns its full length, even if `buffer` was too short.
#[inline]
pub(super) fn receive_one(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    name: &mut Name,
) -> Result<usize, Errno> {
    let mut name_len = Name::CAPACITY;
    let (fd, len, flags) = (fd.as_raw_fd(), buffer.len(), libc::MSG_DONTWAIT | libc::MSG_TRUNC);
    let (buffer, name) = (buffer.as_mut_ptr().cast(), name.as_mut_ptr());
    // SAFETY: the kernel writes at most `len` bytes to the buffer and `name_len` bytes to the name,
    // which are their sizes.
    checked(unsafe { libc::recvfrom(fd, buffer, len, flags, name, &raw mut name_len) })
}

/// Sends one datagram.
#[inline]
pub(super) fn send_one(fd: BorrowedFd<'_>, bytes: &[u8], name: &Name) -> Result<usize, Errno> {
    let (fd, len, flags) = (fd.as_raw_fd(), bytes.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    let bytes = bytes.as_ptr().cast();
    // SAFETY: the kernel reads `len` bytes and `name.len()` bytes of the name, and writes nothing.
    checked(unsafe { libc::sendto(fd, bytes, len, flags, name.as_ptr(), name.len()) })
}

/// An entry of a socket's error queue.
#[derive(Clone, Copy)]
pub(super) struct QueuedError {
    /// Where the packet was sent.
    pub(super) name: Name,
    pub(super) errno: i32,
    /// Where the error comes from: one of `SO_EE_ORIGIN_*`.
    pub(super) origin: u8,
    /// Type and code of the ICMP message.
    pub(super) kind: u8,
    pub(super) code: u8,
    bytes: [u8; QUOTE_LEN],
    len: usize,
}

impl QueuedError {
    pub(super) const EMPTY: Self = Self {
        name: Name::EMPTY,
        errno: 0,
        origin: 0,
        kind: 0,
        code: 0,
        bytes: [0; QUOTE_LEN],
        len: 0,
    };

    /// The first bytes of the packet, as many as the ICMP message quotes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Takes the oldest entry of the error queue.
pub(super) fn receive_error(fd: BorrowedFd<'_>) -> Result<QueuedError, Errno> {
    let mut error = QueuedError::EMPTY;
    // Room for the error, and for other ancillary data that is enabled for datagrams.
    let mut controls = [0_u64; 32];
    let mut vector =
        libc::iovec { iov_base: error.bytes.as_mut_ptr().cast(), iov_len: error.bytes.len() };
    // SAFETY: zero is a valid value of every field: integers, and pointers that may be null.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_name = error.name.as_mut_ptr().cast();
    header.msg_namelen = Name::CAPACITY;
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = controls.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&controls) as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: name, vector and controls are valid for writes of the stated lengths, and outlive the
    // call.
    let len = checked(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags) })?;
    error.len = len.min(QUOTE_LEN);
    let written = (header.msg_controllen as usize).min(size_of_val(&controls));
    if let Some(fields) = extended_error(&controls.as_bytes()[..written]) {
        let [a, b, c, d, origin, kind, code, _] = fields;
        error.errno = i32::from_ne_bytes([a, b, c, d]);
        (error.origin, error.kind, error.code) = (origin, kind, code);
    }
    Ok(error)
}

/// The first fields of the `sock_extended_err` among the ancillary messages in `controls`: error
/// number, origin, type and code.
fn extended_error(mut controls: &[u8]) -> Option<[u8; 8]> {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    while let Some(&len) = controls.first_chunk() {
        let len = usize::from_ne_bytes(len);
        let int = |at: usize| {
            controls
                .get(at..)
                .and_then(|rest| rest.first_chunk())
                .map(|int| i32::from_ne_bytes(*int))
        };
        let level = int(offset_of!(libc::cmsghdr, cmsg_level))?;
        let kind = int(offset_of!(libc::cmsghdr, cmsg_type))?;
        let is_error = matches!(
            (level, kind),
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
        );
        if is_error {
            return controls.get(HEADER..)?.first_chunk().copied();
        }
        controls = controls.get(len.max(HEADER).next_multiple_of(size_of::<usize>())..)?;
    }
    None
}

/// One ancillary message with an integer, in the kernel's layout: the fields are where
/// `CMSG_FIRSTHDR` and `CMSG_DATA` point, and the size is that of `CMSG_SPACE`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Control {
    len: usize,
    level: i32,
    kind: i32,
    value: [u8; 4],
    _padding: [u8; size_of::<usize>() - 4],
}

const _: () = assert!(size_of::<Control>() >= size_of::<libc::cmsghdr>() + 4);
const _: () = assert!(size_of::<Control>().is_multiple_of(size_of::<usize>()));

impl Control {
    /// Asks the kernel to split the accompanying datagram into packets of `segment` bytes.
    #[inline]
    pub(super) fn segment(segment: u16) -> Self {
        let [a, b] = segment.to_ne_bytes();
        let len = size_of::<libc::cmsghdr>() + size_of::<u16>();
        Self {
            len,
            level: libc::SOL_UDP,
            kind: libc::UDP_SEGMENT,
            value: [a, b, 0, 0],
            ..Self::default()
        }
    }
}

/// The ancillary messages that may accompany a datagram: the length of the packets that it was
/// coalesced from (`UDP_GRO`), and its traffic class. The kernel writes them in this order.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub(super) struct Controls([Control; 2]);

impl Controls {
    /// Size of `count` messages, in bytes.
    pub(super) const fn bytes(count: usize) -> usize {
        count * size_of::<Control>()
    }

    /// The length of the coalesced packets, `None` if the datagram is a single packet.
    #[inline]
    pub(super) fn coalesced(&self, header: &libc::msghdr) -> Option<usize> {
        const LEN: usize = size_of::<libc::cmsghdr>() + 4;
        let [first, _] = &self.0;
        if !(header.msg_controllen >= LEN as _
            && first.level == libc::SOL_UDP
            && first.kind == libc::UDP_GRO)
        {
            return None;
        }
        usize::try_from(i32::from_ne_bytes(first.value)).ok().filter(|&len| len > 0)
    }

    /// The datagram's traffic class (IPv4's TOS byte), 0 if it is not reported. It applies to every
    /// packet in the datagram: the kernel coalesces only packets of one class.
    #[inline]
    pub(super) fn traffic_class(&self, header: &libc::msghdr) -> u8 {
        let len: usize = header.msg_controllen as _;
        let told = self.0.iter().take(len / size_of::<Control>());
        told.fold(0, |class, control| match (control.level, control.kind) {
            (libc::SOL_IP, libc::IP_TOS) => control.value[0],
            (libc::SOL_IPV6, libc::IPV6_TCLASS) => i32::from_ne_bytes(control.value) as u8,
            _ => class,
        })
    }
}

/// Headers for `recvmmsg` and `sendmmsg`. Their pointers are used only in calls.
pub(super) struct Headers(Box<[libc::mmsghdr]>);

// SAFETY: the pointers inside are dereferenced only in `receive`, `receive_first` and `send`, whose
// callers guarantee that the pointers are valid then, also after a move to another thread.
unsafe impl Send for Headers {}

impl Headers {
    pub(super) fn new(count: usize) -> Self {
        // SAFETY: zero is a valid value of every field: integers, and pointers that may be null.
        let empty: libc::mmsghdr = unsafe { zeroed() };
        Self(vec![empty; count].into_boxed_slice())
    }

    /// Header `index`.
    #[inline]
    pub(super) fn get(&self, index: usize) -> &libc::mmsghdr {
        &self.0[index]
    }

    /// Header `index`, to be filled.
    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> &mut libc::msghdr {
        &mut self.0[index].msg_hdr
    }

    /// Receives at most `count` datagrams into the first `count` headers.
    ///
    /// # Safety
    /// All pointers in those headers must be valid for writes of the stated lengths.
    #[inline]
    pub(super) unsafe fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        count: usize,
    ) -> Result<usize, Errno> {
        let (fd, headers, flags) = (fd.as_raw_fd(), &mut self.0[..count], libc::MSG_DONTWAIT);
        let (pointer, count) = (headers.as_mut_ptr(), headers.len() as u32);
        // SAFETY: `pointer` and `count` describe one slice; the caller guarantees the pointers
        // inside.
        checked(unsafe { libc::recvmmsg(fd, pointer, count, flags as _, null_mut()) } as isize)
    }

    /// Receives one datagram into the first header; returns its length.
    ///
    /// # Safety
    /// As for [`Headers::receive`].
    #[inline]
    pub(super) unsafe fn receive_first(&mut self, fd: BorrowedFd<'_>) -> Result<usize, Errno> {
        let (fd, header) = (fd.as_raw_fd(), &raw mut self.0[0].msg_hdr);
        // SAFETY: the caller guarantees the pointers in the header.
        checked(unsafe { libc::recvmsg(fd, header, libc::MSG_DONTWAIT) })
    }

    /// Sends headers `from..to`. Returns how many the kernel accepted, at least one, or the error
    /// of the first.
    ///
    /// # Safety
    /// All pointers in those headers must be valid for reads of the stated lengths.
    #[inline]
    pub(super) unsafe fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        from: usize,
        to: usize,
    ) -> Result<usize, Errno> {
        let (fd, headers, flags) =
            (fd.as_raw_fd(), &mut self.0[from..to], libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        if let [header] = headers {
            // The cheaper call for one message. SAFETY: the caller guarantees the pointers inside.
            return checked(unsafe { libc::sendmsg(fd, &raw const header.msg_hdr, flags) })
                .map(|_| 1);
        }
        let (pointer, count) = (headers.as_mut_ptr(), headers.len() as u32);
        // SAFETY: `pointer` and `count` describe one slice; the caller guarantees the pointers
        // inside.
        checked(unsafe { libc::sendmmsg(fd, pointer, count, flags as _) } as isize)
    }
}
