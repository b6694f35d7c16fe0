//! What limits the packets in flight: a session's credits, the server's window, and this endpoint's
//! room for replies. `pace` limits how fast they are sent.
//!
//! The thesis counts credits per session and sizes receive queues for all of them (section
//! 6.3.3.1). A kernel socket buffer cannot be made that large, and its limit counts bytes instead
//! of packets. So a packet needs three things: a credit of its session; room in the *window* that
//! its server's endpoint grants to this endpoint, shared by all sessions between the two; and room
//! in this endpoint's own receive queue for the largest reply that it may cause.

use super::credits::Credits;
use crate::mutants::mutant;
use crate::transport::ChargeModel;
use crate::wire::PacketLayout;

/// What a packet lacks before it can be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Blocked {
    /// The session's next departure: the pacer's rate allows no packet now.
    Pace,
    /// A credit of its session.
    Credits,
    /// Room in the server's window.
    Window,
    /// Room for its reply in this endpoint's receive queue.
    Room,
}

/// A queue's capacity and how much of it is reserved, in charge units.
///
/// An empty queue always admits one packet, even if the capacity is too small for it. Otherwise
/// nothing would ever be sent.
#[derive(Debug)]
pub(super) struct Capacity {
    limit: u32,
    taken: u32,
}

impl Capacity {
    pub(super) fn new(limit: u32) -> Self {
        Self { limit, taken: 0 }
    }

    #[inline]
    pub(super) fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Whether more than half of the capacity is reserved.
    #[inline(always)]
    pub(super) fn is_scarce(&self) -> bool {
        self.taken > self.limit / 2
    }

    pub(super) fn taken(&self) -> u32 {
        self.taken
    }

    /// What is reserved once `units` more are; `None` if the queue does not admit them.
    #[inline(always)]
    fn with(&self, units: u32) -> Option<u32> {
        let taken = u64::from(self.taken) + u64::from(units);
        // If nothing is reserved, the sum fits 32 bits.
        (taken <= u64::from(self.limit) || self.taken == 0).then_some(taken as u32)
    }

    /// Whether a quarter of the capacity is left once `units` more are reserved.
    fn affords_guess(&self, units: u32) -> bool {
        u64::from(self.taken) + u64::from(units) <= u64::from(self.limit / 4 * 3)
    }

    #[inline]
    fn release(&mut self, units: u32) {
        debug_assert!(self.taken >= units, "{units} units released, {} taken", self.taken);
        self.taken = self.taken.saturating_sub(units);
    }
}

/// What a packet reserves besides a credit, in charge units.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Cost {
    /// Units of the server's window.
    pub(super) window: u32,
    /// Units of this endpoint's room for replies.
    pub(super) room: u32,
}

/// The reservation of a call's packets. Its owner is the call, or the quarantine that replaces it:
/// see [`Credits`].
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Reserved {
    credits: u32,
    cost: Cost,
}

impl Reserved {
    /// One more packet of this cost.
    pub(super) fn add(&mut self, cost: Cost) {
        self.credits += 1;
        self.cost.window += cost.window;
        self.cost.room += cost.room;
    }

    pub(super) fn credits(&self) -> u32 {
        self.credits
    }

    pub(super) fn cost(&self) -> Cost {
        self.cost
    }
}

/// What one session's packets cost, computed when the session opens and when its packet size
/// changes. Units as in [`Cost`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Charges {
    /// Charge models of the server and of this endpoint.
    model: ChargeModel,
    local: ChargeModel,
    /// Bytes of a packet besides its payload.
    overhead: usize,
    /// Room for a reply without payload.
    bare_reply: u32,
    /// Upper limit of the room for the first packet of a response.
    eager_reply: u32,
    /// Cost of a later packet of a response: window for the request for response, room for the
    /// packet.
    pull: Cost,
}

impl Charges {
    pub(super) fn new(
        server: ChargeModel,
        local: ChargeModel,
        overhead: usize,
        eager: u32,
        max_datagram: u32,
    ) -> Self {
        let room = local.charge(max_datagram as usize);
        Self {
            model: server,
            local,
            overhead,
            bare_reply: local.charge(overhead),
            eager_reply: local.charge(overhead + eager as usize),
            pull: Cost { window: server.charge(overhead), room },
        }
    }

    /// The same charges for datagrams of another size.
    pub(super) fn for_datagram(&self, datagram: u32, eager: u32) -> Self {
        Self::new(self.model, self.local, self.overhead, eager, datagram)
    }

    #[inline]
    pub(super) fn overhead(&self) -> usize {
        self.overhead
    }

    /// Upper limit of the room for the first packet of a response.
    #[inline]
    pub(super) fn eager_reply(&self) -> u32 {
        self.eager_reply
    }

    /// Cost of a request's last packet, with a payload of `payload` bytes.
    #[inline]
    pub(super) fn last_packet(&self, payload: usize) -> Cost {
        Cost { window: self.model.charge(self.overhead + payload), room: self.eager_reply }
    }

    /// Cost of a request packet that is not the last one.
    #[inline]
    pub(super) fn packet(&self, layout: &PacketLayout, packet: u32) -> Cost {
        let window = self.model.charge(self.overhead + layout.len(packet));
        Cost { window, room: self.bare_reply }
    }

    /// Cost of a later packet of a response.
    #[inline]
    pub(super) fn pull(&self) -> Cost {
        self.pull
    }
}

/// The three capacities that limit a session, borrowed together.
pub(super) struct Flow<'a> {
    credits: &'a mut Credits,
    window: &'a mut Capacity,
    room: &'a mut Capacity,
}

impl<'a> Flow<'a> {
    #[inline(always)]
    pub(super) fn new(
        credits: &'a mut Credits,
        window: &'a mut Capacity,
        room: &'a mut Capacity,
    ) -> Self {
        Self { credits, window, room }
    }

    /// Takes a credit and the cost. On failure, takes nothing and returns what is missing.
    #[inline(always)]
    pub(super) fn take(&mut self, cost: Cost) -> Result<(), Blocked> {
        if self.credits.available() == 0 && !mutant!(CreditsIgnored) {
            self.credits.run_out();
            return Err(Blocked::Credits);
        }
        let window = self.window.with(cost.window).ok_or(Blocked::Window)?;
        let room = self.room.with(cost.room).ok_or(Blocked::Room)?;
        self.credits.take();
        self.window.taken = window;
        self.room.taken = room;
        Ok(())
    }

    /// Whether a quarter of the credits, the window and the room is left once a packet of this cost
    /// is asked for.
    pub(super) fn affords_guess(&self, cost: Cost) -> bool {
        self.credits.affords_guess()
            && self.window.affords_guess(cost.window)
            && self.room.affords_guess(cost.room)
    }

    /// Releases what [`Flow::take`] took.
    #[inline]
    pub(super) fn release(&mut self, cost: Cost) {
        self.credits.release(1);
        self.window.release(cost.window);
        self.room.release(cost.room);
    }

    /// Releases what several packets took.
    pub(super) fn release_all(&mut self, reserved: Reserved) {
        self.credits.release(reserved.credits as u16);
        self.window.release(reserved.cost.window);
        self.room.release(reserved.cost.room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_queue_admits_one_packet_of_any_size_and_a_full_queue_none() {
        let mut capacity = Capacity::new(100);
        assert_eq!(capacity.with(1_000), Some(1_000));
        capacity.taken = 60;
        assert_eq!((capacity.with(40), capacity.with(41)), (Some(100), None));
        assert_eq!(capacity.with(u32::MAX), None);
        assert!(capacity.affords_guess(15) && !capacity.affords_guess(16));
        assert!(!capacity.affords_guess(u32::MAX));
        capacity.release(60);
        assert_eq!(capacity.with(1_000), Some(1_000));
    }

    #[test]
    fn a_refused_packet_reserves_nothing() {
        let (mut window, mut room) = (Capacity::new(10), Capacity::new(10));
        let mut credits = Credits::new(2);
        let cost = |window, room| Cost { window, room };
        let mut flow = Flow::new(&mut credits, &mut window, &mut room);
        assert_eq!(flow.take(cost(6, 6)), Ok(()));
        assert_eq!(flow.take(cost(6, 1)), Err(Blocked::Window));
        assert_eq!(flow.take(cost(1, 6)), Err(Blocked::Room));
        assert_eq!(flow.take(cost(1, 1)), Ok(()));
        assert_eq!(flow.take(cost(1, 1)), Err(Blocked::Credits));
        flow.release(cost(6, 6));
        flow.release(cost(1, 1));
        assert_eq!((credits.available(), window.taken(), room.taken()), (2, 0, 0));
    }
}
