//! What may be said of why a call or a session has ended.

use erpc_core::protocol::{Cause, ConnectError};

use super::{Oracle, SessionRecord};

impl Oracle {
    /// A session has closed.
    pub(crate) fn session_ended(&mut self, session: u32, cause: Cause) {
        if cause != Cause::Disconnected {
            self.check_cause(session, cause, &format!("session {session} ends"));
        }
    }

    pub(super) fn check_call_cause(&mut self, id: u32, cause: Cause) {
        let what = format!("call {id} fails");
        let call = self.calls[id as usize];
        match cause {
            Cause::Cancelled if call.cancelled => return,
            Cause::DeadlineExceeded => {
                let has_passed = call.deadline.is_some_and(|deadline| deadline <= self.now);
                if !has_passed && (call.deadline.is_none() || self.clocks_are_true) {
                    self.blame(format!("{what}, and it is not too late"));
                }
                self.handler_events.late += 1;
                return;
            }
            _ => {}
        }
        if cause == Cause::Disconnected {
            self.blame(format!("{what} because its user ended the session: that waits for it"));
        }
        self.check_cause(self.calls[id as usize].session, cause, &what);
    }

    /// What is said of the end of a session, or of a call of it, can be true. Whether its server died, or had
    /// given it up, the oracle does not know.
    pub(super) fn check_cause(&mut self, session: u32, cause: Cause, what: &str) {
        let is_late = cause == Cause::Connect(ConnectError::Timeout);
        if self.spares_sessions && !is_late {
            self.blame(format!("{what}, and nothing happened to its session: {cause}"));
        }
        let SessionRecord { of, asked_at, opened_at, heard_at, .. } =
            self.sessions[session as usize];
        let (connect, liveness) = self.timeouts[of];
        let was_open = opened_at.is_some();
        // How long it has been so, and how long it must be.
        let (lasted, least) = match cause {
            Cause::Connect(_) if was_open => {
                return self
                    .blame(format!("{what}, because it does not open, and was open: {cause}"));
            }
            Cause::Connect(ConnectError::Timeout) => (self.now.nanos_since(asked_at), connect),
            Cause::PeerDead | Cause::NoProgress if !was_open => {
                return self.blame(format!("{what}, and has never opened: {cause}"));
            }
            Cause::PeerDead => (self.now.nanos_since(heard_at), liveness),
            // Other calls may have been answered since.
            Cause::NoProgress => (self.now.nanos_since(opened_at.unwrap_or(asked_at)), liveness),
            // Tables are short where memory is.
            Cause::NoMemory | Cause::Connect(ConnectError::Full | ConnectError::HostFull) => {
                let is_short = match cause {
                    Cause::NoMemory => self.memory_is_short,
                    _ => self.sessions_are_few,
                };
                if self.is_trusted && !is_short {
                    self.blame(format!("{what}, and nothing happened to the memory: {cause}"));
                }
                return;
            }
            Cause::PeerReset | Cause::Disconnected => return,
            // All speak one version and keep to the sizes, servers listen, and nobody shuts down.
            _ => {
                if self.is_trusted {
                    self.blame(format!("{what} for a reason that nobody gave: {cause}"));
                }
                return;
            }
        };
        if self.clocks_are_true && u128::from(lasted) < least.as_nanos() {
            self.blame(format!("{what} after {lasted} ns, {least:?} are allowed: {cause}"));
        }
    }
}
