//! A session that a client has opened to this endpoint.
//!
//! | file | content |
//! |---|---|
//! | `receive` | requests, cancels and confirmations in; credit returns out |
//! | `respond` | responses and statuses out |
//! | `control` | the session opens, stays alive, ends |
//! | `plain` | the common case: a request of one packet, a response of one packet |

mod control;
mod plain;
mod receive;
mod respond;

use super::agreement::Agreement;
use super::grants::SAMPLE;
use super::liveness::Liveness;
use super::memory::SessionMemory;
use super::reply::ReplyHead;
use super::slot::ServerSlot;
use crate::mutants::mutant;
use crate::protocol::endpoint::EndpointState;
use crate::protocol::index::{SessionIndex, SlotIndex, Slots, SocketIndex};
use crate::protocol::stats::DropReason;
use crate::protocol::turn::Turn;
use crate::protocol::{ClientId, ClientStats, Notice};
use crate::time::Instant;
use crate::transport::Route;
use crate::wire::{ConnectionId, Flags, Header, Kind, ReplyInfo, RequestNumber};

pub(super) use self::control::ControlEffect;

/// A session as its server sees it.
///
/// Aligned to cache lines, so that its speed does not depend on its address.
#[repr(align(64))]
pub(super) struct ServerSession<R> {
    id: ClientId,
    /// The client's id for the session.
    remote: ConnectionId,
    route: R,
    agreed: Agreement,
    /// Of every packet: whether there is a trailer.
    flags: Flags,
    /// The number of the size that large packets have now.
    epoch: u32,
    /// When the client was last told that its packets come from another address.
    told_moved: Instant,
    /// A packet has come with a congestion mark since the last reply.
    marked: bool,
    /// Packets until the next sample of its socket's use.
    until_sample: u8,
    /// What it is sent from.
    socket: SocketIndex,
    liveness: Liveness,
    memory: SessionMemory,
    /// Requests that were handed out.
    requests: u64,
    slots: Slots<ServerSlot>,
}

/// A slot with the parts of its session that it works with.
struct Step<'s, R> {
    slot: &'s mut ServerSlot,
    memory: &'s mut SessionMemory,
    head: ReplyHead<'s, R>,
}

impl<R: Route> ServerSession<R> {
    /// A session that opens now. `remote` is the client's id for it.
    pub(super) fn new<X>(
        turn: &Turn<'_, X>,
        id: ClientId,
        remote: ConnectionId,
        (route, socket): (R, SocketIndex),
        agreed: Agreement,
    ) -> Self {
        Self {
            id,
            remote,
            route,
            agreed,
            flags: Flags::new(agreed.trailer, false),
            epoch: 0,
            told_moved: Instant::ZERO,
            marked: false,
            // Not the same for all: the samples of sockets with many sessions are spread over time.
            until_sample: 1 + id.index.get() as u8 % SAMPLE,
            socket,
            liveness: Liveness::new(turn.now, &turn.endpoint.config),
            memory: SessionMemory::default(),
            requests: 0,
            slots: Slots::from_fn(|slot| ServerSlot::new(slot.number_before_first())),
        }
    }

    /// The client's address and id.
    pub(super) fn client(&self) -> (R, ConnectionId) {
        (self.route, self.remote)
    }

    /// Its place in the table of sockets.
    #[inline(always)]
    pub(super) fn socket(&self) -> SocketIndex {
        self.socket
    }

    /// The client has sent a packet. Returns whether that is the one in [`SAMPLE`] that counts for its socket's use.
    #[inline(always)]
    pub(super) fn is_sample(&mut self) -> bool {
        self.until_sample -= 1;
        if self.until_sample > 0 {
            return false;
        }
        self.until_sample = SAMPLE;
        true
    }

    /// Whether the plain request that has just come is the one in [`SAMPLE`] that counts. Sessions that send in step do not
    /// count in step.
    #[inline(always)]
    pub(super) fn is_plain_sample(&self) -> bool {
        (self.requests as u32).wrapping_add(self.id.index.get()).is_multiple_of(SAMPLE.into())
    }

    /// Whether the packet begins a message of so many packets that the client wants a large window.
    pub(super) fn begins_burst(&self, header: &Header) -> bool {
        let is_first = header.kind == Kind::Request && header.packet.get() == 0;
        let payload = self.agreed.payload(header.flags.large());
        is_first && header.size / payload >= u32::from(2 * SAMPLE)
    }

    #[inline(always)]
    pub(super) fn is(&self, id: ClientId) -> bool {
        self.id == id
    }

    /// Whether a packet to the session `connection` that came over `route` is from its client.
    #[inline]
    pub(super) fn check_sender(
        &self,
        connection: ConnectionId,
        route: &R,
    ) -> Result<(), DropReason> {
        if self.id.generation != connection.generation() && !mutant!(StaleGenerationAtServer) {
            return Err(DropReason::UnknownConnection);
        }
        if self.route != *route && !mutant!(WrongRouteAtServer) {
            return Err(DropReason::WrongRoute);
        }
        Ok(())
    }

    pub(super) fn stats(&self) -> ClientStats {
        ClientStats {
            credits: self.agreed.credits,
            payload: self.agreed.payload(true),
            max_response: self.agreed.max_response,
            integrity: self.flags.trailer(),
            held: self.memory.total(),
            requests: self.requests,
        }
    }

    /// See [`Core::may_keep`](crate::protocol::Core::may_keep).
    pub(super) fn may_keep(&self, endpoint: &EndpointState, bytes: usize) -> bool {
        self.memory.slots() + bytes <= endpoint.config.session_budget()
    }

    /// See [`Core::keep`](crate::protocol::Core::keep).
    pub(super) fn keep(&mut self, bytes: usize) {
        self.memory.set_kept_by_owner(bytes);
    }

    /// Gives the session's memory back, and tells the owner of it and of its requests that still execute. Their responses
    /// will find no session.
    pub(super) fn end(mut self, endpoint: &mut EndpointState) {
        for slot in self.slots.into_values() {
            if slot.needs_cancel() && !mutant!(GoneUntold) {
                let handle = self.id.request(slot.number());
                endpoint.notices.push_back(Notice::Cancelled(handle));
            }
            slot.discard(&mut self.memory, &mut endpoint.pool);
        }
        debug_assert!(
            self.memory.slots() == 0 || mutant!(HeldNotCounted),
            "all memory is given back"
        );
        endpoint.notices.push_back(Notice::ClientGone(self.id));
    }

    /// # Panics
    /// If something does not add up.
    pub(super) fn check_invariants(&self, index: SessionIndex) {
        assert_eq!(self.id.index, index, "a session knows its place");
        self.liveness.check_invariants();
        let held: usize = self.slots.iter().map(|(_, slot)| slot.footprint()).sum();
        assert_eq!(held, self.memory.slots(), "held memory is counted");
        for (index, slot) in self.slots.iter() {
            assert_eq!(SlotIndex::of(slot.number()), index);
            slot.check_invariants();
        }
    }

    /// The slot of a request. Replies tell the `window`.
    #[inline(always)]
    fn step(&mut self, number: RequestNumber, window: ReplyInfo) -> Step<'_, R> {
        let slot = &mut self.slots[SlotIndex::of(number)];
        Step {
            memory: &mut self.memory,
            head: ReplyHead {
                route: &self.route,
                connection: self.remote,
                flags: self.flags.with_large(slot.is_large()),
                request: number,
                window,
                marked: &mut self.marked,
            },
            slot,
        }
    }
}
