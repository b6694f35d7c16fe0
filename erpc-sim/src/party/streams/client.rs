//! A stream that a party has begun.

use erpc_core::buf::MsgBuf;
use erpc_core::protocol::{CallError, Cause, NewCall, RejectReason, SessionId};
use erpc_core::stream::{ClientNext, StreamClient, StreamOp};
use erpc_core::time::Instant;

use super::users::{Reader, Writer};
use super::{STREAM, StreamContext, Who};
use crate::pattern;
use crate::stream_script::{Direction, StreamScript};

/// A stream, its user, and the session that it uses alone.
#[derive(Debug)]
pub(super) struct ClientStream {
    id: u32,
    machine: StreamClient,
    /// The session, or the cause of its end.
    session: Result<SessionId, Cause>,
    /// The session has opened, so the stream can learn the server's limit.
    open: bool,
    /// The stream has learned the longest request that the server accepts.
    knows_limit: bool,
    script: StreamScript,
    deadline: Instant,
    writer: Writer,
    reader: Reader,
    /// The stream's calls that have not ended.
    calls: Vec<(u64, StreamOp)>,
    /// The deadline has passed.
    late: bool,
    /// There was no memory to continue.
    failed: bool,
    /// The party knows that the stream is over.
    known_over: bool,
}

impl ClientStream {
    /// Begins stream `id`, which has the number `number` on its session.
    pub(super) fn begin(
        id: u32,
        (session, number, open): (SessionId, u32, bool),
        script: StreamScript,
        context: &mut StreamContext<'_, '_>,
    ) -> Self {
        let now = context.cx.now();
        let deadline = script.deadline.map_or(Instant::NEVER, |nanos| now.plus_nanos(nanos));
        context.wake_at(deadline, id, Who::ClientIsLate);
        if let Some(nanos) = script.closes_in {
            context.wake_in(nanos, id, Who::ClientLeaves);
        }
        let entries = pattern::entries(context.oracle.item_key(id, Direction::Up, u32::MAX));
        Self {
            id,
            machine: StreamClient::new(number, entries),
            session: Ok(session),
            open,
            knows_limit: false,
            script,
            deadline,
            writer: Writer::new(&script.up),
            reader: Reader::new(&script.down),
            calls: Vec::new(),
            late: false,
            failed: false,
            known_over: false,
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn is_spoilt(&self) -> bool {
        self.machine.is_spoilt()
    }

    /// Whether a call of the stream has not ended.
    pub(super) fn is_calling(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Whether the stream is over, so that its session is free. True only once.
    pub(super) fn is_newly_over(&mut self) -> bool {
        self.machine.is_over() && !std::mem::replace(&mut self.known_over, true)
    }

    /// Whether the stream is over and its user has finished reading.
    pub(super) fn has_ended(&self) -> bool {
        self.known_over && self.reader.is_done
    }

    /// A session has opened or is gone. Returns whether it is this stream's session.
    pub(super) fn session_has_changed(&mut self, session: SessionId, gone: Option<Cause>) -> bool {
        let is_its = self.session == Ok(session);
        if is_its {
            self.open = true;
            self.session = gone.map_or(Ok(session), Err);
        }
        is_its
    }

    /// A call has ended. Returns whether it was under way.
    pub(super) fn replied(
        &mut self,
        token: u64,
        result: Result<Option<MsgBuf>, CallError>,
    ) -> bool {
        let at = self.calls.iter().position(|(call, _)| *call == token);
        let Some(at) = at else { return false };
        let (_, ask) = self.calls.swap_remove(at);
        self.machine.replied(ask, result);
        true
    }

    /// A scheduled event is due.
    pub(super) fn wake(&mut self, who: Who, context: &mut StreamContext<'_, '_>) {
        match who {
            Who::ClientWriter => self.writer.go_on(),
            Who::ClientReader => self.reader.go_on(),
            Who::ClientLeaves => self.leave(context),
            Who::ClientIsLate if self.known_over => {}
            Who::ClientIsLate if context.cx.now() < self.deadline => {
                context.wake_again(self.deadline, self.id, Who::ClientIsLate);
            }
            _ => self.late = true,
        }
    }

    /// Continues as far as possible.
    pub(super) fn go_on(&mut self, context: &mut StreamContext<'_, '_>) {
        loop {
            self.learn(context);
            self.end_in_time(context);
            self.write(context);
            self.read(context);
            if !self.flush(context) {
                return;
            }
        }
    }

    /// Learns the server's limit, once the session is open.
    fn learn(&mut self, context: &mut StreamContext<'_, '_>) {
        let stats = self.session.ok().filter(|_| self.open && !self.knows_limit);
        if let Some(stats) = stats.and_then(|id| context.cx.session_stats(id)) {
            self.knows_limit = true;
            self.machine.set_limit(stats.max_request as usize);
        }
    }

    /// Ends the stream after its deadline if no call is in flight. A call in flight ends by its own
    /// deadline, and its error also says whether anything was executed.
    fn end_in_time(&mut self, context: &mut StreamContext<'_, '_>) {
        if self.late && !self.machine.is_calling() {
            self.late = false;
            if !self.reader.is_done {
                context.oracle.stream_is_late(self.id);
            }
            let cause = Cause::DeadlineExceeded;
            self.machine.fail(match self.machine.has_begun() {
                true => CallError::MaybeExecuted(cause),
                false => CallError::NotExecuted(cause),
            });
        }
    }

    /// The reader leaves, which ends the stream.
    fn leave(&mut self, context: &mut StreamContext<'_, '_>) {
        if self.reader.is_done {
            return;
        }
        context.oracle.reader_leaves(self.id, Direction::Down);
        (self.reader.is_done, self.writer.is_done) = (true, true);
        self.reader.batch = None;
        self.machine.drop_reader();
    }

    fn write(&mut self, context: &mut StreamContext<'_, '_>) {
        let Self { id, machine, writer, script, .. } = self;
        while !writer.is_done {
            if let Err(error) = machine.sending() {
                writer.is_done = true;
                return context.oracle.sending_is_refused(*id, &error);
            }
            if writer.sent == script.up.items {
                writer.is_done = true;
                return machine.end_items();
            }
            let key = context.oracle.item_key(*id, Direction::Up, writer.sent);
            let len = script.up.len(key);
            if let Some(most) = machine.too_large(len) {
                return context
                    .oracle
                    .blame_stream(*id, format!("cannot send {len} bytes, only {most}"));
            }
            if writer.waits(|nanos| context.wake_in(nanos, *id, Who::ClientWriter))
                || !machine.has_room(len)
            {
                return;
            }
            let encode = &mut |out: &mut &mut [u8]| pattern::fill(out, key, len);
            if machine.put(len, encode, &mut context.means.pool).is_err() {
                context.oracle.no_memory();
                return self.leave(context);
            }
            writer.sent += 1;
            context.oracle.item_sent(*id, Direction::Up, len);
        }
    }

    fn read(&mut self, context: &mut StreamContext<'_, '_>) {
        while !self.reader.is_done {
            if self.reader.leaves() {
                return self.leave(context);
            }
            let Self { id, reader, machine, .. } = self;
            if reader.batch.is_some() {
                if reader.waits(|nanos| context.wake_in(nanos, *id, Who::ClientReader)) {
                    return;
                }
                reader.read(*id, Direction::Down, context.oracle);
                if let Some(batch) = reader.take_read() {
                    machine.batch_read();
                    context.means.pool.recycle(batch.into_message());
                }
                continue;
            }
            match machine.next_batch() {
                ClientNext::Batch(batch) => reader.batch = Some(batch),
                ClientNext::Wait => return,
                ClientNext::End(end) => {
                    context.oracle.end_is_told(*id, end.as_ref().copied());
                    (reader.is_done, self.writer.is_done) = (true, true);
                    // Releases the resources of the stream.
                    machine.drop_reader();
                }
            }
        }
    }

    /// Makes the calls that are due. Returns whether there were any.
    fn flush(&mut self, context: &mut StreamContext<'_, '_>) -> bool {
        let mut any = false;
        loop {
            match self.machine.poll_call(&mut context.means.pool) {
                Ok(None) => return any,
                Ok(Some((ask, request))) => {
                    any = true;
                    let failed = match self.session {
                        Ok(session) => self.call(context, session, ask, request).err(),
                        Err(cause) => Some(CallError::NotExecuted(cause)),
                    };
                    if let Some(error) = failed {
                        self.machine.replied(ask, Err(error));
                    }
                }
                Err(error) => {
                    context.oracle.no_memory();
                    self.machine.fail(CallError::Rejected(RejectReason::NoMemory(error)));
                    self.give_up(context);
                    // True at the first failure, so that `go_on` runs its loop once more. There
                    // the reader learns that the stream has failed.
                    return !std::mem::replace(&mut self.failed, true);
                }
            }
        }
    }

    fn call(
        &mut self,
        context: &mut StreamContext<'_, '_>,
        session: SessionId,
        ask: StreamOp,
        request: MsgBuf,
    ) -> Result<(), CallError> {
        let method = STREAM | self.id;
        context.means.calls += 1;
        context.means.handed_over += 1;
        let token = u64::from(method) << 32 | context.means.calls & u64::from(u32::MAX);
        let deadline = if ask == StreamOp::Close { Instant::NEVER } else { self.deadline };
        let call = NewCall { method, request, token, extended: true, deadline };
        let made = context.cx.call(session, call);
        made.map(|()| self.calls.push((token, ask))).map_err(|rejected| {
            context.means.pool.recycle(rejected.request);
            CallError::Rejected(rejected.reason)
        })
    }

    /// There is no memory for the call that closes the stream. Cancels the calls in flight instead,
    /// which also tells the server that the stream is over.
    fn give_up(&mut self, context: &mut StreamContext<'_, '_>) {
        let Ok(session) = self.session else { return };
        for &(token, _) in &self.calls {
            context.cx.cancel(session, token, Cause::NoMemory);
        }
    }
}
