//! Large messages, one at a time: the throughput of the sockets when only a window protects the
//! receiver from overflow.
//!
//! Over UDP a message is cut into parts, each with a header. The server acknowledges every few
//! parts, the client keeps a window of parts in flight. There are no retransmissions: on loopback
//! parts are lost only if the receive buffer overflows. The window fits the buffer that this
//! program requests, but not the buffer that an untuned kernel grants.

use std::io;
use std::io::Read;
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::link::write_all;
use super::sys::{self, Datagram, NOBODY};
use super::watch::{Alive, Progress};
use super::{Mode, is_nothing_there};
use crate::failure::Failure;
use crate::payload::{self, SINK_ANSWER, SinkAnswers};
use crate::report::Latencies;

/// Bytes of a part's header: the index of the part, u64.
const HEADER: usize = 8;
/// Bytes of a part, header included: the largest datagram, rounded down to KiB.
const PART: usize = 63 << 10;
/// Bytes of a segment that fits an Ethernet frame. The kernel cuts and joins segments.
const SEGMENT: usize = 1_472;
/// Bytes of a part of several segments, header included.
const JOINED_PART: usize = SEGMENT * 44;
/// Parts in flight. The kernel charges about 2.5 MB of the receive buffer for 32 parts.
const WINDOW: u32 = 32;
/// Parts per acknowledgement, and with `--mmsg` the most parts per system call.
const ACK_EVERY: u32 = 8;

/// Bytes of a part without its header.
fn part_data(mode: Mode) -> usize {
    (if mode == Mode::Gso { JOINED_PART } else { PART }) - HEADER
}

/// Configures the socket to send and receive parts.
pub(super) fn prepare(socket: &UdpSocket, mode: Mode) -> io::Result<()> {
    if mode == Mode::Gso {
        sys::set_segment_size(socket, SEGMENT)?;
        sys::set_receive_offload(socket)?;
    }
    Ok(())
}

/// Parts per system call.
fn burst(mode: Mode) -> usize {
    if mode == Mode::Mmsg { ACK_EVERY as usize } else { 1 }
}

fn lost() -> io::Error {
    io::Error::other("a part was lost or came out of order")
}

/// Receives messages over UDP and answers them, until the client has ended.
pub(super) struct UdpSink<'s> {
    socket: &'s UdpSocket,
    mode: Mode,
    message: Vec<u8>,
    /// Index of the next expected part.
    next: usize,
}

impl<'s> UdpSink<'s> {
    pub(super) fn new(socket: &'s UdpSocket, mode: Mode, request: usize) -> Self {
        Self { socket, mode, message: vec![0; request], next: 0 }
    }

    pub(super) fn serve(&mut self, alive: &mut Alive) -> io::Result<()> {
        while alive.check() {
            self.receive()?;
        }
        Ok(())
    }

    /// Receives the next parts directly into the message. Sends the answer after the last part, and
    /// an acknowledgement after every [`ACK_EVERY`] parts.
    fn receive(&mut self) -> io::Result<()> {
        let data = part_data(self.mode);
        let places = self.message.chunks_mut(data).skip(self.next).take(burst(self.mode));
        let mut heads = [[0; HEADER]; ACK_EVERY as usize];
        let mut batch: Vec<_> = heads
            .iter_mut()
            .zip(places)
            .map(|(head, body)| Datagram { head, body, len: 0, peer: NOBODY })
            .collect();
        let count = match sys::receive_many(self.socket, &mut batch) {
            Err(error) if is_nothing_there(&error) => return Ok(()),
            result => result?,
        };
        for part in &batch[..count] {
            if part.len != HEADER + part.body.len()
                || usize::from_le_bytes(*part.head.first_chunk().ok_or_else(lost)?) != self.next
            {
                return Err(lost());
            }
            self.next += 1;
        }
        let peer = batch[0].peer;
        if self.next * data >= self.message.len() {
            self.next = 0;
            self.socket.send_to(&payload::answer_sink(&self.message), peer)?;
        } else if self.next / ACK_EVERY as usize != (self.next - count) / ACK_EVERY as usize {
            self.socket.send_to(&(self.next as u32).to_le_bytes(), peer)?;
        }
        Ok(())
    }
}

/// Receives messages over a stream and answers them, until the client has ended.
pub(super) fn serve_stream(mut stream: &TcpStream, alive: &mut Alive) -> io::Result<()> {
    let mut message = Vec::new();
    loop {
        let mut len = [0; 4];
        if !read_exact(&mut stream, &mut len, alive)? {
            return Ok(());
        }
        message.resize(u32::from_le_bytes(len) as usize, 0);
        if !read_exact(&mut stream, &mut message, alive)? {
            return Ok(());
        }
        write_all(stream, &payload::answer_sink(&message))?;
    }
}

/// Like `Read::read_exact`, on a stream that may be non-blocking. `false` if the client has ended.
fn read_exact(stream: &mut impl Read, mut out: &mut [u8], alive: &mut Alive) -> io::Result<bool> {
    while !out.is_empty() {
        match stream.read(out) {
            Ok(0) => return Ok(false),
            Ok(read) => out = &mut out[read..],
            Err(error) if is_nothing_there(&error) => {
                if !alive.check() {
                    return Ok(false);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// The socket over which the client sends a message and receives the answer.
pub(super) enum Carrier<'s> {
    Udp(&'s UdpSocket, Mode),
    Tcp(&'s TcpStream),
}

impl Carrier<'_> {
    fn exchange(
        &self,
        message: &mut [u8],
        answer: &mut [u8; SINK_ANSWER],
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let io = Failure::of::<io::Error>("the raw client's socket failed");
        match self {
            Self::Tcp(stream) => {
                let len = message.len() as u32;
                write_all(stream, &len.to_le_bytes()).map_err(&io)?;
                write_all(stream, message).map_err(&io)?;
                let mut filled = 0;
                while filled < answer.len() {
                    let mut stream = *stream;
                    match stream.read(&mut answer[filled..]) {
                        Ok(0) => return Err(Failure::new("the raw server closed the connection")),
                        Ok(read) => filled += read,
                        Err(error) if is_nothing_there(&error) => progress.check()?,
                        Err(error) => return Err(io(error)),
                    }
                }
                Ok(())
            }
            Self::Udp(socket, mode) => {
                UdpSource { socket, mode: *mode, message }.exchange(answer, progress)
            }
        }
    }
}

/// A message that the client sends over UDP.
struct UdpSource<'a> {
    socket: &'a UdpSocket,
    mode: Mode,
    message: &'a mut [u8],
}

impl UdpSource<'_> {
    fn exchange(
        &mut self,
        answer: &mut [u8; SINK_ANSWER],
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let io = Failure::of::<io::Error>("the raw client's socket failed");
        let parts = self.message.len().div_ceil(part_data(self.mode)) as u32;
        let (mut sent, mut acknowledged) = (0, 0);
        loop {
            let room = (acknowledged + WINDOW).min(parts) - sent;
            if room > 0 {
                sent += self.send(sent, room).map_err(&io)?;
                // The client reads an acknowledgement when the window is full, when all parts are
                // sent, and after every `ACK_EVERY` parts. Otherwise it sends more parts.
                if sent < acknowledged + WINDOW && sent < parts && !sent.is_multiple_of(ACK_EVERY) {
                    continue;
                }
            }
            match self.socket.recv(answer) {
                Ok(SINK_ANSWER) => return Ok(()),
                Ok(_) => {
                    acknowledged = answer.first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
                }
                Err(error) if is_nothing_there(&error) => progress.check()?,
                Err(error) => return Err(io(error)),
            }
        }
    }

    /// Sends at most `room` parts, starting with part `first`, in one system call. Returns the
    /// number of parts sent.
    fn send(&mut self, first: u32, room: u32) -> io::Result<u32> {
        let parts = self.message.chunks_mut(part_data(self.mode)).enumerate().skip(first as usize);
        let mut heads = [[0; HEADER]; ACK_EVERY as usize];
        let mut batch = Vec::with_capacity(heads.len());
        for (head, (index, body)) in
            heads.iter_mut().zip(parts).take(burst(self.mode).min(room as usize))
        {
            *head = index.to_le_bytes();
            let len = HEADER + body.len();
            batch.push(Datagram { head, body, len, peer: NOBODY });
        }
        match sys::send_many(self.socket, &mut batch, true) {
            Err(error) if is_nothing_there(&error) => Ok(0),
            result => result.map(|sent| sent as u32),
        }
    }
}

/// A closed loop of one large request at a time.
pub(super) struct BulkClient<'s> {
    carrier: Carrier<'s>,
    message: Vec<u8>,
    answers: SinkAnswers,
    next: u64,
}

impl<'s> BulkClient<'s> {
    pub(super) fn new(carrier: Carrier<'s>, request: usize) -> Self {
        let mut message = vec![0; request];
        payload::fill(&mut message);
        let answers = SinkAnswers::to(&message);
        Self { carrier, message, answers, next: 0 }
    }

    /// Makes calls for `duration`. Returns the number of answered calls.
    pub(super) fn run(
        &mut self,
        duration: Duration,
        latencies: &mut Latencies,
    ) -> Result<u64, Failure> {
        let start = Instant::now();
        let mut done = 0;
        while start.elapsed() < duration {
            self.next += 1;
            payload::number_request(&mut self.message, self.next);
            let sent = Instant::now();
            let mut answer = [0; SINK_ANSWER];
            self.carrier.exchange(&mut self.message, &mut answer, &mut Progress::new(sent))?;
            latencies.record(sent.elapsed().as_nanos() as u64);
            if !self.answers.is_answer(&answer, self.next) {
                return Err(Failure::new(format!("the answer to call {} is wrong", self.next)));
            }
            done += 1;
        }
        Ok(done)
    }
}
