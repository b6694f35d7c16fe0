//! After a long silence, a session asks the server whether it still knows the session, before it
//! sends further calls.
//!
//! A client whose loop does not run answers no pings, so its servers declare it dead after their
//! liveness timeout. A server that has done so drops the packets of the client's next call. This
//! call would end as [`MaybeExecuted`](crate::protocol::CallError::MaybeExecuted), because the
//! client cannot know that the packets were dropped. So the session sends a ping first, and calls
//! wait in its queue:
//!
//! ```text
//!            silence, or an absence of the loop
//!   sends  ------------------------------------->  holds
//!     ^                                              |  Reset, or no Pong until the peer is dead:
//!     |          Pong to a ping of this check        |  the session ends, held calls as
//!     +----------------------------------------------+  `NotExecuted`
//! ```
//!
//! A packet that was received before the loop was away proves nothing, although the loop reads it
//! afterwards. So only the answer to a ping of this check ends the check. If the loop is away again
//! during the check, for the liveness timeout, the check begins anew: the server may have answered
//! the earlier pings and then dropped the session.

use super::OpenSession;
use crate::protocol::client::lines::Lines;
use crate::protocol::turn::Turn;
use crate::transport::{Route, TxQueue};

impl<R: Route> OpenSession<R> {
    /// Called before a plain call is sent, if the session's timer fires too late for the call's
    /// timeout or is overdue. If the timer fires too late, arms it for the timeout. Returns false
    /// if the timer is so much overdue that calls must wait until the server has answered a ping.
    #[cold]
    pub(super) fn mind_timer<X>(&mut self, turn: &mut Turn<'_, X>) -> bool {
        if self.common.timer.at() < turn.now {
            return !self.was_absent(turn);
        }
        let deadline = turn.now.plus_nanos(self.rtt.rto(0));
        self.common.timer.arm_for_call(&mut turn.endpoint.timers, deadline);
        true
    }

    /// Begins a check if this endpoint's loop was away for so long that the server may have dropped
    /// the session. An overdue timer shows this: an open session always has an armed timer.
    #[inline]
    pub(in crate::protocol::client) fn check_after_absence<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
    ) {
        if self.common.timer.at() < turn.now && self.was_absent(turn) {
            self.begin_check(turn);
        }
    }

    /// Whether the loop was away, given that the timer is overdue.
    #[cold]
    fn was_absent<X>(&self, turn: &Turn<'_, X>) -> bool {
        let config = &turn.endpoint.config;
        config.back_since(turn.now, self.common.timer.at()).is_some()
            || self.liveness.is_silent(turn.now, config)
    }

    /// Holds further calls, and sends a ping, unless the session does so already.
    #[cold]
    pub(super) fn begin_check<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        if !self.common.intake.holds() {
            self.common.intake.hold();
            self.ask(turn);
        }
    }

    /// The loop was away: begins a check, or begins the current one anew.
    #[cold]
    pub(super) fn check_anew<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        self.common.intake.hold();
        if !self.liveness.is_checking() || self.was_away_since_ping(turn) {
            self.ask(turn);
        }
    }

    /// Whether the loop was away since the last ping of the current check for so long that the
    /// server may have answered this ping and then dropped the session. While the loop runs, a
    /// check sends pings much more often.
    ///
    /// A server with the same settings drops the session at the earliest a liveness timeout after
    /// it has received the ping. A shorter limit would be wrong: if each turn of the loop took
    /// longer than the limit, for example because of slow handlers, every answer would come too
    /// late. The check would never end, although the server hears the client in each turn and keeps
    /// the session.
    #[cold]
    pub(super) fn was_away_since_ping<X>(&self, turn: &Turn<'_, X>) -> bool {
        self.liveness.last_ping() + turn.endpoint.config.liveness_timeout <= turn.now
    }

    /// Sends the first ping of a check.
    fn ask<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        self.liveness.begin_check(self.rtt.rto(0));
        self.send_ping(turn);
        let due = self.liveness.ping_at(&turn.endpoint.config);
        self.arm(turn, due);
    }

    /// The server has answered a ping of the check, so it knows the session: held calls start.
    #[cold]
    pub(super) fn end_check<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
    ) {
        self.liveness.end_check();
        self.common.intake.release();
        self.start_queued(turn, lines);
    }
}
