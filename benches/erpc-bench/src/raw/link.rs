//! Messages over bare sockets, with the different system calls for sending and receiving.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::ops::Range;

use super::sys::{self, Datagram, MAX_MANY, NOBODY};

/// Largest UDP payload over IPv4.
const MAX_UDP: usize = 65_507;
/// Most segments per send in every Linux with UDP_SEGMENT (`UDP_MAX_SEGMENTS`).
pub(super) const COMMON_SEGMENTS: u32 = 64;
/// Most segments per send since Linux 6.9.
pub(super) const MAX_SEGMENTS: u32 = 128;
/// Bytes that a stream reads, or collects for one write.
const STREAM_BUFFER: usize = 256 << 10;

/// The sender of a received message, or the receiver of a message to send. `None` for streams and
/// connected sockets, which have a single peer.
pub(super) type Peer = Option<SocketAddrV4>;

/// The receiving half of a link.
pub(super) trait Receive {
    /// Receives messages and returns their number. A blocking link waits at most 100 ms for the
    /// first bytes. Returns 0 if no message is complete.
    fn receive(&mut self) -> io::Result<usize>;

    /// Message `index` of the last [`Receive::receive`].
    fn message(&self, index: usize) -> (&[u8], Peer);
}

/// The sending half of a link.
pub(super) trait Send {
    /// Sends a message, or keeps it until [`Send::flush`].
    fn send(&mut self, to: Peer, message: &[u8]) -> io::Result<()>;

    /// Sends the messages that [`Send::send`] kept.
    fn flush(&mut self) -> io::Result<()>;
}

/// Maps the errors of an empty or full socket, and of an interrupted system call, to `None`.
fn unless_empty<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Repeats an attempt until the socket has room.
fn insist<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        if let Some(value) = unless_empty(attempt())? {
            return Ok(value);
        }
    }
}

fn v4(address: SocketAddr) -> Peer {
    match address {
        SocketAddr::V4(address) => Some(address),
        SocketAddr::V6(_) => None,
    }
}

fn send_to(socket: &UdpSocket, to: Peer, message: &[u8]) -> io::Result<()> {
    insist(|| match to {
        Some(peer) => socket.send_to(message, peer),
        None => socket.send(message),
    })
    .map(|_| ())
}

/// Receives one datagram per system call.
pub(super) struct Single<'s> {
    socket: &'s UdpSocket,
    memory: Vec<u8>,
    len: usize,
    peer: Peer,
}

impl<'s> Single<'s> {
    pub(super) fn new(socket: &'s UdpSocket) -> Self {
        Self { socket, memory: vec![0; MAX_UDP], len: 0, peer: None }
    }
}

impl Receive for Single<'_> {
    fn receive(&mut self) -> io::Result<usize> {
        let Some((len, peer)) = unless_empty(self.socket.recv_from(&mut self.memory))? else {
            return Ok(0);
        };
        (self.len, self.peer) = (len, v4(peer));
        Ok(1)
    }

    fn message(&self, _index: usize) -> (&[u8], Peer) {
        (&self.memory[..self.len], self.peer)
    }
}

/// The receiver of the client. The client's socket is connected, so the receiver does not read the
/// sender's address.
pub(super) struct SingleConnected<'s>(pub(super) Single<'s>);

impl Receive for SingleConnected<'_> {
    fn receive(&mut self) -> io::Result<usize> {
        let received = unless_empty(self.0.socket.recv(&mut self.0.memory))?;
        self.0.len = received.unwrap_or_default();
        Ok(received.is_some().into())
    }

    fn message(&self, index: usize) -> (&[u8], Peer) {
        (self.0.message(index).0, None)
    }
}

/// Sends one datagram per system call.
pub(super) struct SingleSender<'s>(pub(super) &'s UdpSocket);

impl Send for SingleSender<'_> {
    fn send(&mut self, to: Peer, message: &[u8]) -> io::Result<()> {
        send_to(self.0, to, message)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Receives and sends bursts with `recvmmsg` and `sendmmsg`.
pub(super) struct Many<'s> {
    socket: &'s UdpSocket,
    batch: Vec<Datagram<'static>>,
    count: usize,
    is_connected: bool,
}

impl<'s> Many<'s> {
    pub(super) fn new(socket: &'s UdpSocket, max_message: usize, is_connected: bool) -> Self {
        // The buffers are leaked: they are few, and used until the process ends.
        let slot =
            || Datagram { head: &mut [], body: vec![0; max_message].leak(), len: 0, peer: NOBODY };
        Self { socket, batch: (0..MAX_MANY).map(|_| slot()).collect(), count: 0, is_connected }
    }
}

impl Receive for Many<'_> {
    fn receive(&mut self) -> io::Result<usize> {
        self.count = unless_empty(sys::receive_many(self.socket, &mut self.batch))?.unwrap_or(0);
        Ok(self.count)
    }

    fn message(&self, index: usize) -> (&[u8], Peer) {
        let datagram = &self.batch[..self.count][index];
        (&datagram.body[..datagram.len], (!self.is_connected).then_some(datagram.peer))
    }
}

impl Send for Many<'_> {
    fn send(&mut self, to: Peer, message: &[u8]) -> io::Result<()> {
        if self.count == self.batch.len() {
            self.flush()?;
        }
        let datagram = &mut self.batch[self.count];
        datagram.body[..message.len()].copy_from_slice(message);
        datagram.len = message.len();
        if let Some(peer) = to {
            datagram.peer = peer;
        }
        self.count += 1;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.count {
            let rest = &mut self.batch[sent..self.count];
            sent +=
                unless_empty(sys::send_many(self.socket, rest, self.is_connected))?.unwrap_or(0);
        }
        self.count = 0;
        Ok(())
    }
}

/// Receives and sends messages of one length, which the kernel joins and cuts (`UDP_GRO`,
/// `UDP_SEGMENT`).
pub(super) struct Joined<'s> {
    socket: &'s UdpSocket,
    memory: Vec<u8>,
    len: usize,
    message_len: usize,
    peer: Peer,
    is_connected: bool,
}

impl<'s> Joined<'s> {
    /// A receiver of messages of `message_len` bytes.
    pub(super) fn receiver(
        socket: &'s UdpSocket,
        message_len: usize,
        is_connected: bool,
    ) -> io::Result<Self> {
        sys::set_receive_offload(socket)?;
        Ok(Self { socket, memory: vec![0; MAX_UDP], len: 0, message_len, peer: None, is_connected })
    }

    /// A sender of messages of `message_len` bytes, at most `segments` per system call.
    pub(super) fn sender(
        socket: &'s UdpSocket,
        message_len: usize,
        segments: u32,
        is_connected: bool,
    ) -> io::Result<Self> {
        sys::set_segment_size(socket, message_len)?;
        let run = (MAX_UDP / message_len).min(segments as usize) * message_len;
        Ok(Self { socket, memory: vec![0; run], len: 0, message_len, peer: None, is_connected })
    }
}

impl Receive for Joined<'_> {
    fn receive(&mut self) -> io::Result<usize> {
        self.len = 0;
        if self.is_connected {
            self.len = unless_empty(self.socket.recv(&mut self.memory))?.unwrap_or(0);
        } else if let Some((len, peer)) = unless_empty(self.socket.recv_from(&mut self.memory))? {
            (self.len, self.peer) = (len, v4(peer));
        }
        Ok(self.len.div_ceil(self.message_len))
    }

    fn message(&self, index: usize) -> (&[u8], Peer) {
        let start = index * self.message_len;
        (&self.memory[start..self.len.min(start + self.message_len)], self.peer)
    }
}

impl Send for Joined<'_> {
    fn send(&mut self, to: Peer, message: &[u8]) -> io::Result<()> {
        if self.len == self.memory.len() || to != self.peer {
            self.flush()?;
        }
        self.peer = to;
        self.memory[self.len..self.len + message.len()].copy_from_slice(message);
        self.len += message.len();
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.len > 0 {
            send_to(self.socket, self.peer, &self.memory[..self.len])?;
        }
        self.len = 0;
        Ok(())
    }
}

/// Receives messages from a stream. Each has a prefix of 4 bytes with its length.
pub(super) struct StreamReceiver<'s> {
    stream: &'s TcpStream,
    memory: Vec<u8>,
    /// Bytes of `memory` that were read.
    filled: usize,
    /// Bytes of `memory`, from its start, that belong to complete messages.
    taken: usize,
    messages: Vec<Range<usize>>,
}

impl<'s> StreamReceiver<'s> {
    pub(super) fn new(stream: &'s TcpStream, max_message: usize) -> Self {
        Self {
            stream,
            memory: vec![0; STREAM_BUFFER + max_message],
            filled: 0,
            taken: 0,
            messages: Vec::new(),
        }
    }
}

impl Receive for StreamReceiver<'_> {
    fn receive(&mut self) -> io::Result<usize> {
        self.messages.clear();
        self.memory.copy_within(self.taken..self.filled, 0);
        self.filled -= self.taken;
        self.taken = 0;
        let Some(read) = unless_empty(self.stream.read(&mut self.memory[self.filled..]))? else {
            return Ok(0);
        };
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.filled += read;
        while let Some((head, rest)) = self.memory[self.taken..self.filled].split_first_chunk::<4>()
        {
            let len = u32::from_le_bytes(*head) as usize;
            if rest.len() < len {
                break;
            }
            let start = self.taken + head.len();
            self.messages.push(start..start + len);
            self.taken = start + len;
        }
        Ok(self.messages.len())
    }

    fn message(&self, index: usize) -> (&[u8], Peer) {
        (&self.memory[self.messages[index].clone()], None)
    }
}

/// Collects messages and writes them together.
pub(super) struct StreamSender<'s> {
    stream: &'s TcpStream,
    gathered: Vec<u8>,
}

impl<'s> StreamSender<'s> {
    pub(super) fn new(stream: &'s TcpStream) -> Self {
        Self { stream, gathered: Vec::with_capacity(STREAM_BUFFER) }
    }
}

impl Send for StreamSender<'_> {
    fn send(&mut self, _to: Peer, message: &[u8]) -> io::Result<()> {
        self.gathered.extend_from_slice(&(message.len() as u32).to_le_bytes());
        self.gathered.extend_from_slice(message);
        if self.gathered.len() >= STREAM_BUFFER {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        write_all(self.stream, &self.gathered)?;
        self.gathered.clear();
        Ok(())
    }
}

/// Like `Write::write_all`, on a stream that may be non-blocking.
pub(super) fn write_all(mut stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = insist(|| stream.write(bytes))?;
        bytes = &bytes[written..];
    }
    Ok(())
}
