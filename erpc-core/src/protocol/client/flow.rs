//! How much may be on its way: a session's credits, the server's window, this endpoint's own room. How fast
//! it may go there is the matter of `pace`.
//!
//! The thesis counts credits per session and sizes receive queues for all of them (section 6.3.3.1).
//! A kernel socket buffer cannot be sized so, and holds bytes, not packets. So a packet needs three
//! things: a credit of its session; room in the *window* that its server's endpoint grants to this
//! endpoint, shared by all sessions between the two; and room in this endpoint's own receive queue
//! for the largest reply it may bring.

use std::collections::VecDeque;

use crate::mutants::mutant;
use crate::protocol::index::SessionIndex;
use crate::transport::ChargeModel;
use crate::wire::{ReplyInfo, RequestNumber};

/// A call that waits for room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Waiter {
    pub(super) index: SessionIndex,
    pub(super) generation: u32,
    pub(super) number: RequestNumber,
}

/// What a packet lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Blocked {
    /// Time: the session's next departure.
    Pace,
    /// A credit of its session.
    Credits,
    /// Room at the server.
    Window,
    /// Room for its reply.
    Room,
}

/// A queue's capacity and what is spoken for, in charge units.
///
/// One packet is always admitted to an empty queue, however small the capacity is said to be:
/// otherwise nothing would ever move.
#[derive(Debug)]
pub(super) struct Capacity {
    pub(super) limit: u32,
    taken: u32,
}

impl Capacity {
    pub(super) fn new(limit: u32) -> Self {
        Self { limit, taken: 0 }
    }

    #[inline]
    pub(super) fn admits(&self, units: u32) -> bool {
        self.taken == 0 || self.taken.saturating_add(units) <= self.limit
    }

    #[inline]
    pub(super) fn take(&mut self, units: u32) {
        self.taken = self.taken.saturating_add(units);
    }

    #[inline]
    pub(super) fn release(&mut self, units: u32) {
        debug_assert!(self.taken >= units, "{units} units released, {} taken", self.taken);
        self.taken = self.taken.saturating_sub(units);
    }

    pub(super) fn taken(&self) -> u32 {
        self.taken
    }
}

/// What is on its way to one endpoint of a server, by all sessions to it.
pub(super) struct Peer {
    pub(super) sessions: u32,
    pub(super) window: Capacity,
    pub(super) waiting: VecDeque<Waiter>,
    /// In the list of peers whose waiting calls may go on.
    pub(super) ready: bool,
}

impl Peer {
    /// Takes in the window that a reply tells, if it tells one.
    #[inline]
    pub(super) fn heed(&mut self, info: ReplyInfo) {
        if let Some(window) = info.window()
            && !mutant!(WindowIgnored)
        {
            self.window.limit = window;
        }
    }
}

/// What one session's packets cost, worked out when it opens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charges {
    /// How the server counts.
    pub(super) model: ChargeModel,
    /// Bytes of a packet besides its payload.
    pub(super) overhead: usize,
    /// A packet without payload, at the server.
    pub(super) bare: u32,
    /// A packet without payload, here.
    pub(super) bare_reply: u32,
    /// The first packet of a response, at most, here.
    pub(super) eager_reply: u32,
    /// A later packet of a response, here.
    pub(super) full_reply: u32,
}

impl Charges {
    /// A packet with `payload` bytes, at the server.
    #[inline]
    pub(super) fn packet(&self, payload: usize) -> u32 {
        self.model.charge(self.overhead + payload)
    }
}

/// The three together, borrowed for one session.
pub(super) struct Flow<'a> {
    pub(super) credits: &'a mut u16,
    pub(super) window: &'a mut Capacity,
    pub(super) room: &'a mut Capacity,
}

impl Flow<'_> {
    /// Takes a credit, `units` of the window and `reply` of the room, or nothing.
    #[inline(always)]
    pub(super) fn take(&mut self, units: u32, reply: u32) -> Result<(), Blocked> {
        if *self.credits == 0 && !mutant!(CreditsIgnored) {
            return Err(Blocked::Credits);
        }
        if !self.window.admits(units) {
            return Err(Blocked::Window);
        }
        if !self.room.admits(reply) {
            return Err(Blocked::Room);
        }
        *self.credits = self.credits.wrapping_sub(1);
        self.window.take(units);
        self.room.take(reply);
        Ok(())
    }

    /// Gives back what [`Flow::take`] took.
    #[inline]
    pub(super) fn release(&mut self, units: u32, reply: u32) {
        *self.credits = self.credits.wrapping_add(1);
        self.window.release(units);
        self.room.release(reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_queue_takes_one_packet_of_any_size_and_a_full_one_none() {
        let mut capacity = Capacity::new(100);
        assert!(capacity.admits(1_000));
        capacity.take(60);
        assert!(capacity.admits(40) && !capacity.admits(41));
        capacity.release(60);
        assert!(capacity.admits(1_000));
    }

    #[test]
    fn a_refused_packet_takes_nothing() {
        let (mut credits, mut window, mut room) = (2, Capacity::new(10), Capacity::new(10));
        let mut flow = Flow { credits: &mut credits, window: &mut window, room: &mut room };
        assert_eq!(flow.take(6, 6), Ok(()));
        assert_eq!(flow.take(6, 1), Err(Blocked::Window));
        assert_eq!(flow.take(1, 6), Err(Blocked::Room));
        assert_eq!(flow.take(1, 1), Ok(()));
        assert_eq!(flow.take(1, 1), Err(Blocked::Credits));
        flow.release(6, 6);
        flow.release(1, 1);
        assert_eq!((credits, window.taken(), room.taken()), (2, 0, 0));
    }
}
