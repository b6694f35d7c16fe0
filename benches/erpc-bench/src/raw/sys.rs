//! System calls that the standard library does not wrap. The only `unsafe` of this package.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

use libc::{c_int, c_uint, iovec, mmsghdr, sockaddr_in, socklen_t};

/// Most datagrams per call of [`receive_many`] and [`send_many`].
pub(super) const MAX_MANY: usize = 64;

/// Makes the kernel cut larger buffers into datagrams of `bytes` bytes.
pub(super) fn set_segment_size(socket: &impl AsRawFd, bytes: usize) -> io::Result<()> {
    set_udp_option(socket, libc::UDP_SEGMENT, bytes as c_int)
}

/// Lets the kernel join consecutive datagrams into one received buffer.
pub(super) fn set_receive_offload(socket: &impl AsRawFd) -> io::Result<()> {
    set_udp_option(socket, libc::UDP_GRO, 1)
}

fn set_udp_option(socket: &impl AsRawFd, option: c_int, value: c_int) -> io::Result<()> {
    let len = size_of::<c_int>() as socklen_t;
    // SAFETY: the pointer is to `value`, which is `len` bytes and outlives the call.
    check(unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, option, (&raw const value).cast(), len)
    })
    .map(|_| ())
}

fn check(result: c_int) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// A datagram of a batch: its memory in two pieces, its length, and the peer. Sends on a connected
/// socket ignore the peer.
pub(super) struct Datagram<'a> {
    pub(super) head: &'a mut [u8],
    pub(super) body: &'a mut [u8],
    /// Bytes of the datagram over both pieces. To send, at least the length of `head`.
    pub(super) len: usize,
    pub(super) peer: SocketAddrV4,
}

/// The peer of a datagram to send on a connected socket, and of a datagram that has not yet
/// arrived.
pub(super) const NOBODY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

/// The arrays that describe a batch of messages to the kernel.
struct Headers {
    messages: [mmsghdr; MAX_MANY],
    pieces: [[iovec; 2]; MAX_MANY],
    names: [sockaddr_in; MAX_MANY],
}

impl Headers {
    /// Calls `fill` with zeroed headers.
    fn with<T>(fill: impl FnOnce(&mut Self) -> T) -> T {
        let mut headers = MaybeUninit::<Self>::zeroed();
        // SAFETY: `Self` has only plain C structs. All zeroes (null pointers, zero lengths) is a
        // valid value of each.
        fill(unsafe { headers.assume_init_mut() })
    }

    fn set(&mut self, index: usize, pieces: [&mut [u8]; 2], has_name: bool) {
        self.pieces[index] =
            pieces.map(|piece| iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() });
        let header = &mut self.messages[index].msg_hdr;
        header.msg_iov = self.pieces[index].as_mut_ptr();
        header.msg_iovlen = self.pieces[index].len();
        if has_name {
            header.msg_name = (&raw mut self.names[index]).cast();
            header.msg_namelen = size_of::<sockaddr_in>() as socklen_t;
        }
    }
}

/// Receives up to `batch.len()` datagrams, at most [`MAX_MANY`], into their pieces, and sets their
/// lengths and peers. Waits for the first one if the socket blocks.
pub(super) fn receive_many(socket: &impl AsRawFd, batch: &mut [Datagram<'_>]) -> io::Result<usize> {
    let batch_len = batch.len().min(MAX_MANY);
    Headers::with(|headers| {
        for (index, datagram) in batch[..batch_len].iter_mut().enumerate() {
            headers.set(index, [&mut *datagram.head, &mut *datagram.body], true);
        }
        let (messages, flags) = (headers.messages.as_mut_ptr(), libc::MSG_WAITFORONE);
        // SAFETY: each of the first `batch_len` headers points to memory of the stated lengths,
        // which is mutably borrowed through `batch`, and to a name within `headers`. Both outlive
        // the call.
        let received = check(unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages,
                batch_len as c_uint,
                flags as _,
                null_mut(),
            )
        })?;
        for (index, datagram) in batch[..received].iter_mut().enumerate() {
            datagram.len = headers.messages[index].msg_len as usize;
            let name = &headers.names[index];
            let address = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
            datagram.peer = SocketAddrV4::new(address, u16::from_be(name.sin_port));
        }
        Ok(received)
    })
}

/// Sends up to `batch.len()` datagrams, at most [`MAX_MANY`]: to the socket's peer if it
/// `is_connected`, otherwise to each datagram's own peer. Returns the number of datagrams sent.
pub(super) fn send_many(
    socket: &impl AsRawFd,
    batch: &mut [Datagram<'_>],
    is_connected: bool,
) -> io::Result<usize> {
    let batch_len = batch.len().min(MAX_MANY);
    Headers::with(|headers| {
        for (index, datagram) in batch[..batch_len].iter_mut().enumerate() {
            let body = &mut datagram.body[..datagram.len - datagram.head.len()];
            headers.set(index, [&mut *datagram.head, body], !is_connected);
            let name = &mut headers.names[index];
            name.sin_family = libc::AF_INET as libc::sa_family_t;
            name.sin_port = datagram.peer.port().to_be();
            name.sin_addr.s_addr = u32::from(*datagram.peer.ip()).to_be();
        }
        let messages = headers.messages.as_mut_ptr();
        // SAFETY: each of the first `batch_len` headers points to memory of the stated lengths,
        // which is borrowed through `batch`, and to a name within `headers` or none. All outlive
        // the call.
        check(unsafe { libc::sendmmsg(socket.as_raw_fd(), messages, batch_len as c_uint, 0) })
    })
}
