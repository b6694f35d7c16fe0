//! How fast a session sends: what its controller learns, and who waits until it is time.
//!
//! Requests leave at the controller's rate, and so do requests for response, each charged for the packets that it
//! brings: the server answers as fast as it is asked, so both directions obey the client
//! (thesis section 6.4.2).

use super::*;
use crate::mutants::mutant;
use crate::protocol::MAX_EXPIRED;
use crate::protocol::measurement::Bypasses;
use crate::transport::TxQueue;

impl<R> ClientSession<R> {
    /// A packet and its answer took so long, the handler's part taken out, of which they may have `waited` for
    /// one loop or the other. Timeouts have to be longer than that; the network is not to blame for it.
    #[inline(always)]
    pub(super) fn measured(&mut self, now: Instant, nanos: u64, waited: u64, bypasses: Bypasses) {
        self.rtt.sample(nanos);
        let nanos = nanos.saturating_sub(waited);
        if !(bypasses.update && self.congestion.is_calm(nanos)) {
            self.heed_rtt(now, nanos, bypasses);
        }
    }

    #[inline(never)]
    fn heed_rtt(&mut self, now: Instant, nanos: u64, bypasses: Bypasses) {
        self.congestion.on_rtt(now, nanos);
        self.set_pace(bypasses);
    }

    /// A packet came that was marked on its way, or the server says so of one of ours.
    #[cold]
    pub(super) fn heed_mark(&mut self, now: Instant, bypasses: Bypasses) {
        self.congestion.on_mark(now);
        self.set_pace(bypasses);
    }

    /// A packet was lost.
    #[cold]
    pub(super) fn heed_loss(&mut self, now: Instant, bypasses: Bypasses) {
        self.congestion.on_loss(now);
        self.set_pace(bypasses);
    }

    /// Takes over the controller's rate.
    pub(super) fn set_pace(&mut self, bypasses: Bypasses) {
        let free = bypasses.wheel && self.congestion.is_at_line();
        self.pace.set_rate(if free { 0 } else { self.congestion.rate() });
    }

    /// A packet of `bytes` leaves, or is asked for.
    #[inline]
    pub(super) fn spend(&mut self, now: Instant, bytes: usize, bypasses: Bypasses) {
        if self.pace.is_limited() {
            self.pace.spend(now, bytes);
            self.congestion.on_sent(now, bytes as u32);
            self.set_pace(bypasses);
        }
    }
}

impl<R: Route> ClientSide<R> {
    /// A session has calls that may go on at its next departure.
    pub(super) fn wait_for_departure(&mut self, now: Instant, index: SessionIndex) {
        let session = &mut self.sessions[index];
        if session.paced.is_empty()
            || self.pacing.is_armed(TimerId(index.get()))
            || mutant!(DepartureForgotten)
        {
            return;
        }
        self.pacing.begin(now);
        self.pacing.arm(TimerId(index.get()), session.pace.await_next());
    }

    /// Lets sessions go on whose time has come: 32 of them, and the others the next time.
    #[inline]
    pub(in crate::protocol) fn depart<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        for _ in 0..MAX_EXPIRED {
            let Some(TimerId(index)) = self.pacing.expire(turn.now) else { return };
            turn.endpoint.stats.departures += 1;
            self.feed_paced(turn, SessionIndex::new(index));
        }
    }

    /// When the next session may send, [`Instant::NEVER`] if none waits.
    pub(in crate::protocol) fn next_departure(&self) -> Instant {
        self.pacing.next()
    }

    /// Lets the calls of a session go on that wait for its time, slot by slot in turn, one packet each.
    fn feed_paced<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>, index: SessionIndex) {
        while let Some(session) = self.sessions.get_mut(index) {
            if session.paced.is_empty() || session.pace.holds(turn.now) {
                break;
            }
            let at = session.paced.first_from(session.paced_turn);
            session.paced.remove(at);
            session.paced_turn = at.next();
            self.resume(turn, index, at, Blocked::Pace);
        }
        let Some(session) = self.sessions.get_mut(index) else { return };
        if session.paced.is_empty() {
            session.pace.forget_wait();
        }
        self.wait_for_departure(turn.now, index);
    }
}
