//! Requests that wait until all packets of their burst have been handled.
//!
//! The packets of a burst are lent to the protocol and its owner until the next burst. An owner
//! that stores a request until the end of the burst cannot store the borrow of its packet as well,
//! because the owner lives longer than the burst. So it stores where the bytes lie, and
//! [`BurstEnd`] finds them again in the packets of the same burst.

use std::fmt;

use super::rpc::Context;
use super::turn::Turns;
use crate::buf::MsgBuf;
use crate::protocol::{Body, Core, QueueWait, Request, RequestHandle, ResponseBuffer};
use crate::time::Instant;
use crate::transport::{RxQueue, Transport};

/// A request that waits for the end of its burst, as [`App::on_burst_end`] explains.
///
/// It borrows nothing, so an [`App`] can store it. It is valid only until the end of its burst: then
/// pass it to [`BurstEnd::release`], or before that to [`HeldRequest::discard`].
///
/// [`App`]: super::App
/// [`App::on_burst_end`]: super::App::on_burst_end
pub struct HeldRequest<R> {
    handle: RequestHandle,
    method: u32,
    body: HeldBody,
    peer: R,
    extended: bool,
    deadline: Instant,
    buffer: Option<ResponseBuffer>,
}

/// The body of a held request.
enum HeldBody {
    /// In a packet of the burst: the address of its first byte, and its length.
    Packet { address: usize, len: usize },
    /// Assembled from several packets.
    Message(MsgBuf),
}

impl<R> HeldRequest<R> {
    /// Holds a request, without a copy of its message.
    #[must_use]
    #[inline]
    pub fn new(request: Request<'_, R>) -> Self {
        let Request { handle, method, body, peer, extended, deadline, buffer } = request;
        let body = match body {
            Body::Packet(bytes) => {
                HeldBody::Packet { address: bytes.as_ptr().addr(), len: bytes.len() }
            }
            Body::Message(message) => HeldBody::Message(message),
        };
        Self { handle, method, body, peer, extended, deadline, buffer }
    }

    /// Identifies the request in the answer.
    #[must_use]
    #[inline]
    pub fn handle(&self) -> RequestHandle {
        self.handle
    }

    /// Whether the message begins with an [extension](crate::wire::extension).
    #[must_use]
    #[inline]
    pub fn is_extended(&self) -> bool {
        self.extended
    }

    /// Gives the buffers of the request back to the endpoint. The request must still be answered.
    pub fn discard<T: Transport>(self, cx: &mut Context<'_, T>) {
        cx.recycle_response_buffer(self.buffer);
        if let HeldBody::Message(message) = self.body {
            cx.recycle(message);
        }
    }
}

impl<R> fmt::Debug for HeldRequest<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldRequest")
            .field("handle", &self.handle)
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

/// The end of a burst, while its packets are still lent.
pub struct BurstEnd<'b, 'p, T: Transport> {
    pub(super) core: &'b mut Core<T::Route>,
    pub(super) tx: &'b mut T::Tx,
    pub(super) turns: &'b mut Turns,
    pub(super) queue_wait: QueueWait,
    pub(super) now: Instant,
    pub(super) packets: Packets<'p, T::Rx>,
}

impl<'p, T: Transport> BurstEnd<'_, 'p, T> {
    /// Access to the endpoint.
    #[inline]
    pub fn context(&mut self) -> Context<'_, T> {
        Context { core: self.core, tx: self.tx, turns: self.turns, now: self.now }
    }

    /// The bytes of a held request's message, with the extension if there is one. Takes constant
    /// time if the requests are asked for in the order of their arrival.
    ///
    /// # Panics
    /// If the request was held in an earlier burst.
    #[must_use]
    #[inline]
    pub fn message<'h>(&mut self, held: &'h HeldRequest<T::Route>) -> &'h [u8]
    where
        'p: 'h,
    {
        match &held.body {
            HeldBody::Packet { address, len } => self.packets.bytes(*address, *len),
            HeldBody::Message(message) => message.as_slice(),
        }
    }

    /// Turns a held request into a request again, and passes it to `handle`, which treats it as
    /// [`App::on_request`](super::App::on_request) would.
    ///
    /// # Panics
    /// If the request was held in an earlier burst.
    #[inline]
    pub fn release(
        &mut self,
        held: HeldRequest<T::Route>,
        handle: impl FnOnce(&mut Context<'_, T>, Request<'p, T::Route>),
    ) {
        let HeldRequest { handle: call, method, body, peer, extended, deadline, buffer } = held;
        let body = match body {
            HeldBody::Packet { address, len } => Body::Packet(self.packets.bytes(address, len)),
            HeldBody::Message(message) => Body::Message(message),
        };
        let request = Request { handle: call, method, body, peer, extended, deadline, buffer };
        self.turns.dispatches(method);
        if self.turns.are_watched() {
            self.turns.send_before_handler(self.core, self.now, self.queue_wait, self.tx);
        }
        handle(&mut self.context(), request);
        if self.turns.are_watched() {
            self.queue_wait.delay = self.turns.resume(self.now);
        }
    }
}

impl<T: Transport> fmt::Debug for BurstEnd<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BurstEnd").field("packets", &self.packets.count).finish_non_exhaustive()
    }
}

/// The packets of a burst.
pub(super) struct Packets<'p, Rx> {
    rx: &'p Rx,
    count: usize,
    /// The packet in which bytes were last found.
    at: usize,
}

impl<'p, Rx: RxQueue> Packets<'p, Rx> {
    pub(super) fn new(rx: &'p Rx, count: usize) -> Self {
        Self { rx, count, at: 0 }
    }

    /// The `len` bytes at `address`. Begins to search in the packet in which bytes were last found,
    /// because requests are released in the order of their packets.
    #[inline]
    fn bytes(&mut self, address: usize, len: usize) -> &'p [u8] {
        for _ in 0..self.count {
            let packet = self.rx.packet(self.at).bytes;
            let start = address.wrapping_sub(packet.as_ptr().addr());
            if start <= packet.len() && len <= packet.len() - start {
                return &packet[start..start + len];
            }
            self.at = if self.at + 1 == self.count { 0 } else { self.at + 1 };
        }
        panic!("the request was held in an earlier burst, whose packets are gone")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::RxPacket;
    use crate::transport::mem::MemRoute;

    /// A receive queue whose last burst had these packets.
    struct Received(Vec<Vec<u8>>);

    impl RxQueue for Received {
        type Route = MemRoute;

        fn burst(&mut self) -> usize {
            unreachable!("the burst is already there")
        }

        fn is_drained(&self) -> bool {
            true
        }

        fn packet(&self, index: usize) -> RxPacket<'_, MemRoute> {
            let route = MemRoute::new(7);
            RxPacket { route, bytes: &self.0[index], marked: false }
        }
    }

    #[test]
    fn bytes_are_found_in_the_packets_of_their_burst_in_any_order() {
        let rx = Received((1..=5).map(|number| vec![number; 10 * usize::from(number)]).collect());
        let mut packets = Packets::new(&rx, 5);
        for at in [0, 1, 4, 4, 2, 0, 3] {
            let packet = &rx.0[at];
            for part in [&packet[..], &packet[3..7], &packet[9..]] {
                assert_eq!(packets.bytes(part.as_ptr().addr(), part.len()), part);
            }
            let end = &packet[packet.len()..];
            assert!(packets.bytes(end.as_ptr().addr(), 0).is_empty());
        }
    }

    #[test]
    #[should_panic(expected = "the request was held in an earlier burst")]
    fn bytes_of_another_burst_are_not_found() {
        let rx = Received(vec![vec![1; 10]; 3]);
        let older = [1; 10];
        Packets::new(&rx, 3).bytes(older.as_ptr().addr(), older.len());
    }
}
