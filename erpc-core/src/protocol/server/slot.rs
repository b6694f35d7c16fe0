//! A session as its server sees it.

use super::grants::NONE;
use crate::buf::{MsgBuf, Pool};
use crate::protocol::assembly::Assembly;
use crate::protocol::config::EndpointConfig;
use crate::protocol::index::{SessionIndex, Slots};
use crate::time::Instant;
use crate::wire::{ConnectionId, Flags, PacketLayout, RequestNumber, Stamp};

/// Where the request in a slot is.
///
/// ```text
/// Idle -> [Receiving ->] Executing [-> Accepted] -> Responding -> Idle, on the client's word
///   ^           |                                     ^ | the slot's next request
///   |           +-------------- Cancel ---------------+ |
///   +---------------------------------------------------+
/// ```
pub(super) enum SlotState {
    /// No request yet, or the client has its response and said so.
    Idle,
    /// Request packets are coming in.
    Receiving(Box<Receiving>),
    /// The handler has it.
    Executing {
        /// When the last request packet came in, at the earliest.
        since: Instant,
    },
    /// The same, and the client was told and has given back the room for the response: it is to be
    /// announced.
    Accepted {
        since: Instant,
        /// The owner was told that the client has cancelled it.
        cancelled: bool,
    },
    /// The response is kept, to be sent again or on.
    Responding {
        layout: PacketLayout,
        /// It is a status.
        failure: bool,
        /// It begins with an extension.
        extended: bool,
        /// Its first packet has gone out without its body, which is pulled like any other.
        announced: bool,
        /// The server's time as it was when the response was first sent, in nanoseconds.
        processing: u64,
        /// Response packets that were sent at least once, with their bodies.
        sent: u32,
        repeated: Repeated,
        /// When a repeated request last brought the first one again.
        again: Instant,
    },
}

impl SlotState {
    /// Since when the handler has it.
    pub(super) const fn executing_since(&self) -> Option<Instant> {
        match self {
            Self::Executing { since } | Self::Accepted { since, .. } => Some(*since),
            Self::Idle | Self::Receiving(_) | Self::Responding { .. } => None,
        }
    }

    /// The client is told that the handler has it.
    pub(super) fn accept(&mut self) {
        if let Self::Executing { since } = *self {
            *self = Self::Accepted { since, cancelled: false };
        }
    }

    /// The client is told, too, and has cancelled it; returns whether the owner was told of that before.
    pub(super) fn cancel(&mut self) -> bool {
        self.accept();
        match self {
            Self::Accepted { cancelled, .. } => std::mem::replace(cancelled, true),
            _ => false,
        }
    }

    /// Whether the handler has it.
    #[inline]
    pub(super) const fn is_executing(&self) -> bool {
        matches!(self, Self::Executing { .. } | Self::Accepted { .. })
    }

    /// Whether a request in it has not been answered.
    pub(super) const fn is_busy(&self) -> bool {
        self.is_executing() || matches!(self, Self::Receiving(_))
    }
}

/// How many response packets the client has had sent again.
///
/// It goes back once per position, seldom a few times, and perhaps in pieces if its credits are contended; after a timeout
/// it asks for one packet, which costs nothing here. Without a limit, 24 bytes would bring a session's
/// credits of full packets over and over.
#[derive(Clone, Copy, Default)]
pub(super) struct Repeated(u32);

impl Repeated {
    /// Whether `count` packets may be sent again, of a response of so many `packets`, in a session with
    /// so many `credits`. A roll-back repeats half the credits on average; the limit has one for every
    /// second packet, and two whole ones.
    pub(super) fn admits(&mut self, count: u32, packets: u32, credits: u16) -> bool {
        let sum = self.0.saturating_add(count);
        let credits = u32::from(credits);
        let limit = packets.saturating_mul(1 + credits / 4).saturating_add(2 * credits);
        let admitted = sum <= limit;
        if admitted {
            self.0 = sum;
        }
        admitted
    }
}

/// The sessions of one client endpoint, in a list: those before and after this one.
#[derive(Clone, Copy)]
pub(super) struct Siblings {
    pub(super) before: SessionIndex,
    pub(super) after: SessionIndex,
}

impl Siblings {
    pub(super) const NONE: Self = Self { before: NONE, after: NONE };
}

/// A request under way.
pub(super) struct Receiving {
    pub(super) assembly: Assembly,
    pub(super) method: u32,
    pub(super) extended: bool,
    /// By the time that the first packet told.
    pub(super) deadline: Instant,
    /// A credit return is owed at the end of the burst.
    pub(super) owed: bool,
    /// A packet came that was later than the next one.
    pub(super) gap: bool,
    /// The stamp of the last packet that came.
    pub(super) echo: Stamp,
    /// Which packet the last credit return named.
    pub(super) told: u32,
}

/// A request slot (`SSlot` in the original).
pub(super) struct ServerSlot {
    /// The current request's number, or the last one's.
    pub(super) number: RequestNumber,
    pub(super) state: SlotState,
    /// The response while responding; else, memory kept for the next one (thesis section 6.3.3,
    /// preallocated responses).
    pub(super) buffer: Option<MsgBuf>,
}

impl ServerSlot {
    /// Bytes of memory held.
    pub(super) fn footprint(&self) -> usize {
        let receiving = match &self.state {
            SlotState::Receiving(receiving) => receiving.assembly.footprint(),
            _ => 0,
        };
        receiving + self.buffer.as_ref().map_or(0, MsgBuf::footprint)
    }

    /// Gives all memory back.
    pub(super) fn discard(self, pool: &mut Pool) {
        if let SlotState::Receiving(receiving) = self.state {
            receiving.assembly.discard(pool);
        }
        if let Some(buffer) = self.buffer {
            pool.recycle(buffer);
        }
    }
}

/// A session this endpoint accepted.
///
/// Aligned to cache lines, so that its speed does not depend on where it happens to lie.
#[repr(align(64))]
pub(super) struct ServerSession<R> {
    pub(super) generation: u32,
    pub(super) credits: u16,
    /// Pings without an answer.
    pub(super) unanswered: u8,
    /// A packet has come with a congestion mark since the last reply.
    pub(super) marked: bool,
    /// Of every packet: whether there is a trailer.
    pub(super) flags: Flags,
    pub(super) route: R,
    /// The client's id for the session.
    pub(super) remote: ConnectionId,
    pub(super) payload: u32,
    pub(super) eager: u32,
    /// Largest response that the client takes.
    pub(super) max_response: u32,
    pub(super) last_heard: Instant,
    pub(super) last_ping: Instant,
    pub(super) timer_at: Instant,
    pub(super) siblings: Siblings,
    /// Bytes held by the slots.
    pub(super) held: usize,
    /// Bytes of requests that were handed out and that the endpoint's owner keeps, as it has said last.
    pub(super) kept: usize,
    /// Requests taken in.
    pub(super) requests: u64,
    pub(super) slots: Slots<ServerSlot>,
}

impl<R> ServerSession<R> {
    /// When the client is to be asked next whether it is there.
    pub(super) fn ping_at(&self, config: &EndpointConfig) -> Instant {
        if self.last_ping > self.last_heard {
            self.last_ping + config.ping_again()
        } else {
            self.last_heard + config.server_ping_interval()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_packets_are_repeated_as_half_the_credits_for_every_second_packet_and_two_whole_ones()
    {
        // 10 packets, 8 credits: 10 * (1 + 8 / 4) + 2 * 8.
        let mut repeated = Repeated::default();
        assert!(repeated.admits(40, 10, 8));
        assert!(!repeated.admits(7, 10, 8), "one too many is not counted");
        assert!(repeated.admits(6, 10, 8));
        assert!(!repeated.admits(1, 10, 8));
        assert!(Repeated(u32::MAX).admits(1, u32::MAX, 1_024), "no overflow");
    }
}
