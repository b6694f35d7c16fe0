//! Rules for calls with extensions and deadlines, and for calls that end early.

use super::Oracle;
use super::calls::CallPhase;
use crate::pattern;

impl Oracle {
    /// Gives call `id` an extension and, if `deadline` is given, a deadline in that many ns.
    /// Returns the extension.
    pub(crate) fn extend(&mut self, id: u32, deadline: Option<u64>) -> Vec<u8> {
        let extension = pattern::extension(self.request_key(id));
        self.handler_events.extended += 1;
        let call = &mut self.calls[id as usize];
        call.extension_len = Some(extension.len() as u32);
        call.deadline = deadline.map(|nanos| self.now.plus_nanos(nanos));
        extension
    }

    /// The caller cancels a call. `found` is true if the protocol knew the call.
    pub(crate) fn cancelled(&mut self, id: u32, found: bool) {
        let call = &mut self.calls[id as usize];
        let before = std::mem::replace(&mut call.cancelled, true);
        // The call may have passed its deadline. Then the protocol no longer knows the call, but
        // the caller learns of it only in the next turn.
        let is_late = call.deadline.is_some_and(|at| at <= self.now || !self.clocks_are_true);
        if before && found {
            self.blame_call(id, format!("call {id} can be cancelled twice"));
        }
        if !(before || found || is_late) && self.keeps_sessions() {
            self.blame_call(
                id,
                format!("call {id} is under way, but the protocol does not know it"),
            );
        }
    }

    /// The handler of a call learns that its caller no longer waits.
    pub(crate) fn told_of_cancel(&mut self, id: u32) {
        let Some(call) = self.calls.get(id as usize) else { return };
        let waits = call.phase == CallPhase::UnderWay && !call.cancelled;
        if self.is_trusted && self.keeps_sessions() && waits {
            self.blame_call(
                id,
                format!("the handler of call {id} is told to stop, but its caller waits"),
            );
        }
    }

    /// Removes and checks the extension of a message of a call. `key` generates the expected
    /// extension; `None` if the message has none.
    pub(crate) fn without_extension<'m>(
        &mut self,
        id: u32,
        message: &'m [u8],
        key: Option<u64>,
    ) -> &'m [u8] {
        let Some(key) = key else { return message };
        let mut expected = pattern::extension(key);
        let Some((extension, rest)) = message.split_at_checked(expected.len()) else {
            self.blame_call(id, format!("a message of call {id} is shorter than its extension"));
            return message;
        };
        // `sent_deadline` checks the remaining time.
        expected[4..8].copy_from_slice(&extension[4..8]);
        if extension != expected {
            self.blame_call(id, format!("the extension of a message of call {id} has changed"));
        }
        rest
    }

    /// Removes the extension of a request that a handler gets, or that a caller gets back.
    /// `extended` is what the header of the handler's request says, and `None` for a caller.
    pub(crate) fn bare_request<'m>(
        &mut self,
        id: u32,
        message: &'m [u8],
        extended: Option<bool>,
    ) -> &'m [u8] {
        let has_one = self.calls.get(id as usize).is_some_and(|call| call.extension_len.is_some());
        let trusted = self.is_trusted || extended.is_none();
        if extended.is_some_and(|said| said != has_one) && trusted {
            self.blame_call(id, format!(
                "the request of call {id} is extended: {has_one}, but its header says the opposite"
            ));
        }
        let key = self.request_key(id);
        self.without_extension(id, message, (has_one && trusted).then_some(key))
    }

    /// Removes the extension of a response that a caller gets.
    pub(crate) fn bare_response<'m>(
        &mut self,
        id: u32,
        message: &'m [u8],
        extended: bool,
    ) -> &'m [u8] {
        let Some(call) = self.calls.get(id as usize).filter(|_| self.is_trusted) else {
            return message;
        };
        let key = pattern::answer(self.request_key(id), call.request_len as usize);
        let has_one = call.extension_len.is_some() && pattern::answers_extended(key);
        if has_one != extended {
            self.blame_call(id, format!(
                "the response of call {id} is extended: {has_one}, but its header says the opposite"
            ));
        }
        self.without_extension(id, message, has_one.then_some(key))
    }

    /// A handler learns that its caller waits for `left` ns more (negative if the deadline has
    /// passed). `None` if the call has no deadline.
    pub(crate) fn told_deadline(&mut self, id: u32, left: Option<i64>) {
        let Some(call) = self.calls.get(id as usize) else { return };
        if !(self.is_trusted && self.clocks_are_true) {
            return;
        }
        let told = left.map(|left| self.now.as_nanos().saturating_add_signed(left));
        let is_true = match (call.deadline, told) {
            (None, None) => true,
            (Some(deadline), Some(told)) => {
                let travelled = self.now.nanos_since(call.begun_at);
                (0..=travelled + 1_000).contains(&told.wrapping_sub(deadline.as_nanos()))
            }
            _ => false,
        };
        if !is_true {
            self.blame_call(
                id,
                format!(
                    "call {id} has the deadline {:?}, and its handler is told {told:?}",
                    call.deadline
                ),
            );
        }
    }

    /// A request's first packet is sent, and says that `micros` us are left; 0 means no deadline.
    pub(crate) fn sent_deadline(&mut self, id: u32, micros: u32) {
        let Some(call) = self.calls.get(id as usize).filter(|_| self.clocks_are_true) else {
            return;
        };
        let left = call.deadline.map(|deadline| deadline.nanos_since(self.now));
        let expected = left.map_or(0, |left| left.div_ceil(1_000).max(1));
        if u64::from(micros) != expected {
            self.blame_call(id, format!("call {id} has {expected} us left and says {micros}"));
        }
    }

    /// Number of calls of endpoint `of` that were in flight when they were cancelled or passed
    /// their deadline. A call whose response had begun to arrive does not count, unless the
    /// response was a failure.
    pub(crate) fn ended_early(&self, of: usize) -> u64 {
        let calls = self.calls.iter().filter(|call| {
            call.ended_early && call.sent > 0 && self.sessions[call.session as usize].of == of
        });
        calls.count() as u64
    }
}
