//! The handlers of requests.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use bytes::BufMut;
use erpc_core::buf::MsgBuf;
use erpc_core::protocol::RequestHandle;
use erpc_core::status::{Code, Status};

use super::{Cx, Party};
use crate::oracle::{Asked, Oracle};
use crate::pattern;
use crate::plan::Handlers;

/// The answer to a request, which the handler gives immediately or later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// The call's number at the oracle.
    pub(super) id: u32,
    pub(super) method: u32,
    pub(super) handle: RequestHandle,
    pub(super) asked: Asked,
}

/// A request whose answer was put off.
pub(super) struct PutOff {
    pub(super) id: u32,
    pub(super) handle: RequestHandle,
    /// The handler learned that its caller no longer waits.
    pub(super) told: bool,
    /// The handler's client is gone.
    pub(super) gone: bool,
}

impl Party {
    /// Gives an answer that was put off, unless it is no longer wanted.
    pub(crate) fn answer_late(&mut self, cx: &mut Cx<'_>, answer: Answer, oracle: &mut Oracle) {
        let place = self.put_off.iter().position(|put_off| put_off.handle == answer.handle);
        if let Some(place) = place {
            self.put_off.swap_remove(place);
            self.answer(cx, answer, oracle);
        }
    }

    /// Gives an answer.
    fn answer(&mut self, cx: &mut Cx<'_>, answer: Answer, oracle: &mut Oracle) {
        let Answer { id, handle, asked, .. } = answer;
        oracle.handler_answers(id);
        let extension =
            if asked.extended { pattern::extension(asked.response_key) } else { Vec::new() };
        let len = extension.len() + asked.response_len;
        // One response in twenty is allocated outside of the pool, as by a worker thread.
        if self.chances.memory.percent(5)
            && let Some(mut response) = MsgBuf::detached(len)
        {
            response.put_slice(&extension);
            pattern::fill(&mut response, asked.response_key, asked.response_len);
            return cx.respond(handle, response, asked.extended);
        }
        match cx.response_buffer(None, len) {
            Ok(mut response) => {
                response.put_slice(&extension);
                pattern::fill(&mut response, asked.response_key, asked.response_len);
                cx.respond(handle, response, asked.extended);
            }
            Err(error) => {
                self.responses_refused += 1;
                let status = Status::new(Code::ResourceExhausted, error.to_string());
                cx.respond_status(handle, &status);
            }
        }
    }

    /// Handles a request. Returns the delay in ns if the answer is put off.
    pub(super) fn handle(
        &mut self,
        cx: &mut Cx<'_>,
        answer: Answer,
        handlers: &Handlers,
        oracle: &mut Oracle,
    ) -> Option<u64> {
        let Answer { id, handle, .. } = answer;
        let put_off = PutOff { id, handle, told: false, gone: false };
        let least = handlers.slow_methods.get(answer.method as usize).copied().unwrap_or(0);
        if least == 0 && self.chances.panics.percent(handlers.panic_percent) {
            // `erpc-core` catches panics of typed handlers in the same way. This handler panics by
            // `resume_unwind`, because `panic!` would print a message every time.
            let outcome = catch_unwind(AssertUnwindSafe(|| resume_unwind(Box::new("a handler"))));
            if outcome.is_err() {
                oracle.handler_answers(id);
                oracle.panicked(id);
                cx.respond_status(
                    answer.handle,
                    &Status::new(Code::Internal, "the handler panicked"),
                );
            }
            return None;
        }
        let random = &mut self.chances.delays;
        if least > 0 || random.percent(handlers.slow_percent) {
            self.put_off.push(put_off);
            let is_stuck = random.percent(handlers.stuck_percent);
            return Some(match least {
                _ if is_stuck => random.below(handlers.stuck_nanos + 1),
                0 => random.below(handlers.slowest_nanos + 1),
                _ => random.within(least, 2 * least),
            });
        }
        self.answer(cx, answer, oracle);
        None
    }
}
