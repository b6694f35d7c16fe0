//! One turn of an endpoint, and the dispatch of events to its parts.

use super::parts::EndpointParts;
use crate::buf::MsgBuf;
use crate::calling::streams::StreamCalls;
use crate::event_loop::bell::Bell;
use crate::event_loop::{App, Context};
use crate::executor::timers::Alarm;
use crate::protocol::{
    Body, CallError, Cause, ClientId, Reply, Request, RequestHandle, SessionEvent, SessionId,
};
use crate::time::Instant;
use crate::transport::Transport;

impl<T: Transport> EndpointParts<T> {
    /// Everything in a turn except the closures of other threads. Returns the amount of work.
    #[inline]
    pub(super) fn turn(&self) -> usize {
        let scheduler = &**self.scheduler();
        let mut now = scheduler.now();
        let mut work = 0;
        let mut rpc = self.rpc.try_borrow_mut().expect(
            "a handler or callback runs its own endpoint's loop; use callbacks or `spawn` there",
        );
        let bell = self.mailbox().bell();
        if bell.is_rung() {
            // A nudge counts as work, so that the loop checks its condition before it sleeps.
            work += usize::from(bell.answer_nudge());
            if bell.answer(Bell::WAKES) != 0 {
                scheduler.executor().take_remote();
            }
            work += self.requests().take_answers(&mut rpc.context_at(now));
        }
        let submitted = self.calls().queued();
        if submitted > 0 {
            work += submitted;
            self.calls().drain(&mut rpc.context_at(now));
        }
        if !self.flushes().is_empty() {
            work += self.flushes().flush(&mut rpc.context_at(now));
        }
        self.requests().begin_burst();
        work += rpc.turn(&mut now, scheduler.has_virtual_time(), &mut Dispatch(self));
        let holds_packets = rpc.holds_packets();
        drop(rpc);
        // The turn has sent what was passed to the protocol before.
        self.take_handed_over();
        work += self.finish_ending();
        self.requests().begin_turn(now);
        work +=
            self.calls().run_failures() + self.run_alarms(now) + scheduler.executor().run_ready();
        // Send what the tasks have made now, so that it does not wait for the next turn. Calls and
        // the answers of responders wait, if the next turn costs no system call and sends them with
        // more packets.
        let is_queued =
            self.calls().queued() > 0 || self.take_handed_over() || bell.is_rung_for(Bell::REPLIES);
        let may_wait = holds_packets || !is_queued;
        if self.requests().take_answered() || !self.flushes().is_empty() || !may_wait {
            self.send_now(now);
        }
        work
    }

    #[inline(never)]
    fn send_now(&self, now: Instant) {
        // The round trip of a call does not include the tasks that ran before it in this turn.
        let has_calls = self.calls().queued() > 0;
        let now = if has_calls { self.scheduler().now() } else { now };
        if let Some(mut rpc) = self.rpc() {
            let mut cx = rpc.context_at(now);
            self.requests().take_answers(&mut cx);
            self.calls().drain(&mut cx);
            self.flushes().flush(&mut cx);
            rpc.ring_doorbell();
        }
    }

    /// Runs the timers that are due; returns their number. The work is bounded by the number of
    /// timers.
    #[inline]
    pub(super) fn run_alarms(&self, now: Instant) -> usize {
        let mut due = 0;
        while self.scheduler().timers().next() <= now {
            let Some(alarm) = self.scheduler().timers().pop(now) else { break };
            due += 1;
            match alarm {
                Alarm::Wake(waiter) => waiter.wake(self.scheduler().executor()),
                Alarm::Call(key) => self.calls().call_is_due(key),
            }
        }
        due
    }
}

/// Passes each event to the responsible part of the endpoint. Exists for one turn.
pub(super) struct Dispatch<'e, T: Transport>(pub(super) &'e EndpointParts<T>);

impl<T: Transport> Dispatch<'_, T> {
    /// Called after a handler or callback: passes its calls and answers to the protocol.
    #[inline]
    fn after_upcall(&self, cx: &mut Context<'_, T>) {
        if self.0.calls().queued() > 0 {
            self.0.calls().drain(cx);
        }
        if self.0.mailbox().bell().is_rung() {
            self.0.requests().take_answers(cx);
        }
    }
}

impl<T: Transport> App<T> for Dispatch<'_, T> {
    #[inline(always)]
    fn on_request(&mut self, cx: &mut Context<'_, T>, request: Request<'_, T::Route>) {
        self.0.requests().request(cx, request);
        self.after_upcall(cx);
    }

    /// The fast path is separate: a reply of one packet without an extension, to a call that
    /// belongs to no stream.
    #[inline(always)]
    fn on_reply(
        &mut self,
        cx: &mut Context<'_, T>,
        token: u64,
        reply: Result<Reply<'_>, CallError>,
        request: MsgBuf,
    ) {
        let calls = self.0.calls();
        match reply {
            Ok(Reply { body: Body::Packet(bytes), extended: false })
                if !StreamCalls::<T>::is_token(token) =>
            {
                calls.plain_reply(token as usize, bytes, request);
            }
            reply if StreamCalls::<T>::is_token(token) => {
                calls.stream_replied(cx, token, reply, request);
            }
            reply => calls.replied(cx, token as usize, reply, request),
        }
        self.after_upcall(cx);
    }

    fn on_session(&mut self, cx: &mut Context<'_, T>, session: SessionId, event: SessionEvent) {
        self.0.calls().session_event(cx, session, event);
    }

    fn on_cancel(&mut self, cx: &mut Context<'_, T>, request: RequestHandle) {
        self.0.requests().cancelled(cx, request);
        self.after_upcall(cx);
    }

    fn on_client(&mut self, cx: &mut Context<'_, T>, client: ClientId) {
        self.0.requests().client_came(cx, client);
    }

    fn on_client_gone(&mut self, cx: &mut Context<'_, T>, client: ClientId, cause: Cause) {
        self.0.requests().client_gone(cx.now(), client, cause);
    }
}
