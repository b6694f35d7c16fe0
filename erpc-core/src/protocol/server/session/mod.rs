//! A session that a client has opened to this endpoint.
//!
//! | file | content |
//! |---|---|
//! | `receive` | receives requests, cancels and confirmations; sends credit returns |
//! | `respond` | sends responses and statuses |
//! | `control` | the session opens, stays alive, ends |
//! | `drain` | the server shuts down: running requests finish, new ones are refused |
//! | `plain` | the common case: a request of one packet, a response of one packet |

mod control;
mod drain;
mod plain;
mod receive;
mod respond;

use super::agreement::Agreement;
use super::farewell::Farewell;
use super::grants::SAMPLE;
use super::liveness::Liveness;
use super::memory::SessionMemory;
use super::reply::ReplyHead;
use super::slot::ServerSlot;
use crate::mutants::mutant;
use crate::protocol::endpoint::EndpointState;
use crate::protocol::index::{SessionIndex, Slots, SocketIndex};
use crate::protocol::stats::DropReason;
use crate::protocol::turn::Turn;
use crate::protocol::{Cause, ClientId, ClientStats, Notice};
use crate::time::Instant;
use crate::transport::Route;
use crate::wire::{ConnectionId, Flags, Head, Header, Kind, ReplyInfo, RequestNumber};

pub(super) use self::control::ControlEffect;

/// A session as its server sees it.
///
/// Aligned to cache lines, so that performance does not depend on its address. The fields are in the
/// order in which they are declared: first those that plain requests use, so that they share few
/// cache lines.
#[repr(C, align(64))]
pub(super) struct ServerSession<R> {
    /// This endpoint's id for the session.
    local: ConnectionId,
    /// The client's id for the session.
    remote: ConnectionId,
    id: ClientId,
    heads: Heads,
    /// Number of requests handed to handlers.
    requests: u64,
    memory: SessionMemory,
    /// The socket that the client sends from.
    socket: SocketIndex,
    /// A packet with a congestion mark has arrived since the last reply.
    marked: bool,
    /// Packets until the next sample of the socket's use.
    until_sample: u8,
    /// Flags of every packet: whether there is a trailer.
    flags: Flags,
    agreed: Agreement,
    liveness: Liveness,
    route: R,
    slots: Slots<ServerSlot>,
    /// Number of the last `Resize` that changed the size of large packets. The client counts them.
    epoch: u32,
    /// When a `Moved` was last sent for the session.
    told_moved: Instant,
    /// Set when this endpoint begins to shut down.
    farewell: Option<Box<Farewell>>,
}

/// The heads of the packets of the common case, which are not cut into large packets.
struct Heads {
    request: Head,
    response: Head,
}

impl Heads {
    fn new(flags: Flags) -> Self {
        Self {
            request: Head::new(Kind::Request, flags),
            response: Head::new(Kind::Response, flags),
        }
    }
}

/// A slot, with the parts of its session that it needs.
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
        let own_slots = turn.endpoint.config.slot_count();
        let slots = if mutant!(ServerKeepsItsSlots) { own_slots } else { agreed.slots };
        Self {
            id,
            remote,
            route,
            agreed,
            flags: Flags::new(agreed.trailer, false),
            local: ConnectionId::new(
                turn.endpoint.local.steer,
                true,
                id.index.get(),
                id.generation,
            ),
            heads: Heads::new(Flags::new(agreed.trailer, false)),
            epoch: 0,
            told_moved: Instant::ZERO,
            marked: false,
            // Sessions start at different counts, so that the samples of a socket with many
            // sessions are spread over time.
            until_sample: 1 + id.index.get() as u8 % SAMPLE,
            socket,
            liveness: Liveness::new(turn.now, &turn.endpoint.config),
            farewell: None,
            memory: SessionMemory::default(),
            requests: 0,
            slots: Slots::new(slots, |at| ServerSlot::new(slots.number_before_first(at))),
        }
    }

    /// The client's address and id.
    pub(super) fn client(&self) -> (R, ConnectionId) {
        (self.route, self.remote)
    }

    /// The socket that the client sends from.
    #[inline(always)]
    pub(super) fn socket(&self) -> SocketIndex {
        self.socket
    }

    /// Counts a packet of the client. True for one packet in [`SAMPLE`], which counts as a sample
    /// of the socket's use.
    #[inline(always)]
    pub(super) fn is_sample(&mut self) -> bool {
        self.until_sample -= 1;
        if self.until_sample > 0 {
            return false;
        }
        self.until_sample = SAMPLE;
        true
    }

    /// Whether the plain request that was just received counts as a sample: one in [`SAMPLE`] does.
    /// The index is added so that sessions that send in lockstep are not sampled at the same time.
    #[inline(always)]
    pub(super) fn is_plain_sample(&self) -> bool {
        (self.requests as u32).wrapping_add(self.id.index.get()).is_multiple_of(SAMPLE.into())
    }

    /// Whether the packet begins a request so long that its socket counts as busy: of twice
    /// [`SAMPLE`] full packets or more.
    pub(super) fn begins_burst(&self, header: &Header) -> bool {
        let is_first = header.kind == Kind::Request && header.packet.get() == 0;
        let payload = self.agreed.payload(header.flags.large());
        is_first && header.size / payload >= u32::from(2 * SAMPLE)
    }

    #[inline(always)]
    pub(super) fn is(&self, id: ClientId) -> bool {
        self.id == id
    }

    /// Checks that a packet to `connection` that came from `route` is from the session's client.
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
            slots: self.slots.count().to_u8(),
            payload: self.agreed.payload(true),
            max_response: self.agreed.max_response,
            integrity: self.flags.trailer(),
            held: self.memory.total(),
            requests: self.requests,
        }
    }

    /// See [`Core::may_keep`](crate::protocol::Core::may_keep).
    pub(super) fn may_keep(&self, endpoint: &EndpointState, bytes: usize) -> bool {
        self.memory.slots() + bytes <= endpoint.config.session_budget(self.slots.count())
    }

    /// See [`Core::keep`](crate::protocol::Core::keep).
    pub(super) fn keep(&mut self, bytes: usize) {
        self.memory.set_kept_by_owner(bytes);
    }

    /// Ends the session: frees its memory, and notifies the owner of the end, its cause, and of each
    /// request that still executes. The responses of those requests will be dropped.
    pub(super) fn end(mut self, endpoint: &mut EndpointState, cause: Cause) {
        for slot in self.slots.into_values() {
            if slot.needs_cancel() && !mutant!(GoneUntold) {
                let handle = self.id.request(slot.number());
                endpoint.notices.push_back(Notice::Cancelled(handle));
            }
            slot.discard(&mut self.memory, &mut endpoint.pool);
        }
        debug_assert!(
            self.memory.slots() == 0 || mutant!(HeldNotCounted),
            "the session's memory is freed"
        );
        endpoint.notices.push_back(Notice::ClientGone(self.id, cause));
    }

    /// # Panics
    /// If an invariant does not hold.
    pub(super) fn check_invariants(&self, index: SessionIndex) {
        assert_eq!(self.id.index, index, "a session has the index of its place in the table");
        self.liveness.check_invariants();
        let held: usize = self.slots.iter().map(|(_, slot)| slot.footprint()).sum();
        assert_eq!(held, self.memory.slots(), "the memory that slots hold is counted");
        for (index, slot) in self.slots.iter() {
            assert_eq!(self.slots.of(slot.number()), index);
            slot.check_invariants();
        }
    }

    /// The slot of a request, with the header fields of its replies, which carry `window`.
    #[inline(always)]
    fn step(&mut self, number: RequestNumber, window: ReplyInfo) -> Step<'_, R> {
        let at = self.slots.of(number);
        let slot = &mut self.slots[at];
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
