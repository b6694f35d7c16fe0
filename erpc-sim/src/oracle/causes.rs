//! Checks the causes given for the end of a call or a session.

use erpc_core::protocol::{Cause, ConnectError};

use super::{Oracle, SessionRecord};

impl Oracle {
    /// A session has closed.
    pub(crate) fn session_ended(&mut self, session: u32, cause: Cause) {
        self.tell(|| format!("{} has ended: {cause}", self.session_place(session)));
        if cause != Cause::Disconnected {
            self.check_cause(session, cause, "ends");
        }
        self.end_pings(session);
    }

    pub(super) fn check_call_cause(&mut self, id: u32, cause: Cause) {
        let what = format!("call {id} fails");
        let call = self.calls[id as usize];
        match cause {
            Cause::Cancelled if call.cancelled => return,
            Cause::DeadlineExceeded => {
                let has_passed = call.deadline.is_some_and(|deadline| deadline <= self.now);
                if !has_passed && (call.deadline.is_none() || self.clocks_are_true) {
                    self.blame_call(id, format!("{what}, but its deadline has not passed"));
                }
                self.handler_events.late += 1;
                return;
            }
            _ => {}
        }
        if cause == Cause::Disconnected {
            self.blame_call(
                id,
                format!("{what} because its user ended the session, but the session waits for it"),
            );
        }
        self.check_cause(self.calls[id as usize].session, cause, &what);
    }

    /// Checks that a cause given for the end of a session, or of one of its calls, is possible. The
    /// oracle does not know when a server gave a session up. So it accepts every `PeerReset` in a
    /// run in which servers may die or give sessions up.
    pub(super) fn check_cause(&mut self, session: u32, cause: Cause, what: &str) {
        let is_late = cause == Cause::Connect(ConnectError::Timeout);
        let mut is_cut_off = false;
        if let Cause::Unreachable(error) | Cause::Connect(ConnectError::Unreachable(error)) = cause
        {
            self.check_unreachable(session, error, what);
            is_cut_off = self.has_reached_no_server(session);
        }
        if self.keeps_sessions() && !is_late && !is_cut_off {
            self.blame_session(
                session,
                format!("{what}, and nothing happened to the session: {cause}"),
            );
        }
        let SessionRecord { of, asked_at, opened_at, heard_at, .. } =
            self.sessions[session as usize];
        let (connect, liveness) = self.timeouts[of];
        let was_open = opened_at.is_some();
        // The time since the event that starts the cause's timeout, and that timeout.
        let (lasted, least) = match cause {
            Cause::Connect(_) if was_open => {
                return self.blame_session(
                    session,
                    format!("{what}, because it does not open, and was open: {cause}"),
                );
            }
            Cause::Connect(ConnectError::Timeout) => (self.now.nanos_since(asked_at), connect),
            Cause::PeerDead | Cause::NoProgress if !was_open => {
                return self
                    .blame_session(session, format!("{what}, and has never opened: {cause}"));
            }
            Cause::PeerDead => (self.now.nanos_since(heard_at), liveness),
            // `heard_at` does not show the progress of this call: the session may have heard
            // answers to other calls.
            Cause::NoProgress => (self.now.nanos_since(opened_at.unwrap_or(asked_at)), liveness),
            // These causes are possible only if memory is short, or the tables of sessions are
            // small.
            Cause::NoMemory | Cause::Connect(ConnectError::Full | ConnectError::HostFull) => {
                let is_short = match cause {
                    Cause::NoMemory => self.memory_is_short,
                    _ => self.sessions_are_few,
                };
                if self.is_trusted && !is_short {
                    self.blame_session(
                        session,
                        format!("{what}, and nothing happened to the memory: {cause}"),
                    );
                }
                return;
            }
            Cause::Unreachable(_) if !was_open => {
                return self
                    .blame_session(session, format!("{what}, and has never opened: {cause}"));
            }
            Cause::Unreachable(_)
            | Cause::Connect(ConnectError::Unreachable(_))
            | Cause::PeerReset
            | Cause::Disconnected => return,
            // Other causes are impossible: all endpoints speak one version and keep to the sizes,
            // servers listen, and no endpoint shuts down.
            _ => {
                if self.is_trusted {
                    self.blame_session(
                        session,
                        format!("{what} for a reason that is not in the plan: {cause}"),
                    );
                }
                return;
            }
        };
        if self.clocks_are_true && u128::from(lasted) < least.as_nanos() {
            self.blame_session(
                session,
                format!("{what} after {lasted} ns, before {least:?} have passed: {cause}"),
            );
        }
    }
}
