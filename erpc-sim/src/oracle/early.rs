//! What must be true of calls that carry more than their messages, and of those that end early.

use super::Oracle;
use super::calls::CallPhase;
use crate::pattern;

impl Oracle {
    /// The call that was begun has an extension, and perhaps a deadline in so many nanoseconds. Returns the
    /// extension.
    pub(crate) fn extend(&mut self, id: u32, deadline: Option<u64>) -> Vec<u8> {
        let extension = pattern::extension(self.request_key(id));
        self.handler_events.extended += 1;
        let call = &mut self.calls[id as usize];
        call.extension_len = Some(extension.len() as u32);
        call.deadline = deadline.map(|nanos| self.now.plus_nanos(nanos));
        extension
    }

    /// The caller of a call cancels it; `found` says whether the protocol knew of it.
    pub(crate) fn cancelled(&mut self, id: u32, found: bool) {
        let call = &mut self.calls[id as usize];
        let before = std::mem::replace(&mut call.cancelled, true);
        // It has ended, and the next turn tells.
        let is_late = call.deadline.is_some_and(|at| at <= self.now || !self.clocks_are_true);
        if before && found {
            self.blame(format!("call {id} can be cancelled twice"));
        }
        if !(before || found || is_late) && self.spares_sessions {
            self.blame(format!("call {id} is under way, and nobody knows of it"));
        }
    }

    /// The handler of a call is told that nobody waits for it.
    pub(crate) fn told_of_cancel(&mut self, id: u32) {
        let Some(call) = self.calls.get(id as usize) else { return };
        let waits = call.phase == CallPhase::UnderWay && !call.cancelled;
        if self.is_trusted && self.spares_sessions && waits {
            self.blame(format!("a handler is told that nobody waits for call {id}, and one does"));
        }
    }

    /// Takes the extension off a message of a call, if it has one: the one that belongs to `key`.
    pub(crate) fn without_extension<'m>(
        &mut self,
        id: u32,
        message: &'m [u8],
        key: Option<u64>,
    ) -> &'m [u8] {
        let Some(key) = key else { return message };
        let mut expected = pattern::extension(key);
        let Some((extension, rest)) = message.split_at_checked(expected.len()) else {
            self.blame(format!("a message of call {id} is shorter than its extension"));
            return message;
        };
        // The time that is left is looked at where it is sent.
        expected[4..8].copy_from_slice(&extension[4..8]);
        if extension != expected {
            self.blame(format!("the extension of a message of call {id} has changed"));
        }
        rest
    }

    /// Takes the extension off a request as its handler or its caller gets it.
    pub(crate) fn bare_request<'m>(
        &mut self,
        id: u32,
        message: &'m [u8],
        extended: Option<bool>,
    ) -> &'m [u8] {
        let has_one = self.calls.get(id as usize).is_some_and(|call| call.extension_len.is_some());
        let trusted = self.is_trusted || extended.is_none();
        if extended.is_some_and(|said| said != has_one) && trusted {
            self.blame(format!(
                "the request of call {id} is extended: {has_one}, and it says not so"
            ));
        }
        let key = self.request_key(id);
        self.without_extension(id, message, (has_one && trusted).then_some(key))
    }

    /// Takes the extension off a response as its caller gets it.
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
            self.blame(format!(
                "the response of call {id} is extended: {has_one}, and it says not so"
            ));
        }
        self.without_extension(id, message, has_one.then_some(key))
    }

    /// A handler is told that its caller waits for so many nanoseconds more, or fewer than none; `None` for ever.
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
            self.blame(format!(
                "call {id} has the deadline {:?}, and its handler is told {told:?}",
                call.deadline
            ));
        }
    }

    /// A request's first packet goes out and says that so many microseconds are left, 0 for no deadline.
    pub(crate) fn sent_deadline(&mut self, id: u32, micros: u32) {
        let Some(call) = self.calls.get(id as usize).filter(|_| self.clocks_are_true) else {
            return;
        };
        let left = call.deadline.map(|deadline| deadline.nanos_since(self.now));
        let expected = left.map_or(0, |left| left.div_ceil(1_000).max(1));
        if u64::from(micros) != expected {
            self.blame(format!("call {id} has {expected} us left and says {micros}"));
        }
    }

    /// Calls of an endpoint that were on their way when they were cancelled or too late.
    pub(crate) fn ended_early(&self, of: usize) -> u64 {
        let calls = self.calls.iter().filter(|call| {
            call.ended_early && call.sent > 0 && self.sessions[call.session as usize].of == of
        });
        calls.count() as u64
    }
}
