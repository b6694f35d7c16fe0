//! The streams of an accepted session, and their handlers.

use erpc_core::protocol::{ClientId, Request as Call, RequestHandle};
use erpc_core::status::Status;
use erpc_core::stream::{
    Batch, Effect, ServerNext, StreamAnswer, StreamOp, StreamRequest, StreamResult, StreamServer,
};
use erpc_core::time::Instant;
use erpc_core::wire::extension::Extension;

use super::users::{Reader, Writer};
use super::{StreamContext, Streams, Wake, Who, owned, stream_of};
use crate::SimRoute;
use crate::oracle::Oracle;
use crate::party::{Cx, Party};
use crate::pattern;
use crate::stream_script::{Direction, Order, StreamScript};

/// The streams of one session. At most one stream is alive at a time.
#[derive(Debug)]
pub(super) struct Served {
    client: ClientId,
    machine: StreamServer<RequestHandle>,
    /// Calls that have not been answered.
    waiting: Vec<RequestHandle>,
    handler: Option<Handler>,
}

/// The handler of the current stream.
#[derive(Debug)]
struct Handler {
    id: u32,
    /// The stream's number on its session.
    number: u32,
    script: StreamScript,
    deadline: Instant,
    writer: Writer,
    reader: Reader,
}

impl Handler {
    /// The number of items that the handler sends, unless it is stopped.
    fn most(&self) -> u32 {
        self.script.fails_after.unwrap_or(self.script.down.items)
    }

    /// The number of items that the handler may have sent by now.
    fn may_send(&self) -> u32 {
        match self.script.order {
            Order::Apart => self.most(),
            Order::ReadFirst if self.reader.is_done => self.most(),
            Order::ReadFirst => 0,
            Order::Echo => self.reader.read.min(self.most()),
        }
    }

    /// Whether the handler can end: it has sent all items that it will send, and it has read all
    /// items or need not read them all.
    fn is_done(&self) -> bool {
        let StreamScript { fails_after, careless, .. } = self.script;
        let all_sent = self.writer.sent == self.most();
        match self.reader.is_done {
            true => self.writer.sent == self.may_send(),
            false => all_sent && (fails_after.is_some() || careless),
        }
    }

    fn write(
        &mut self,
        machine: &mut StreamServer<RequestHandle>,
        context: &mut StreamContext<'_, '_>,
    ) -> Result<(), StreamResult> {
        while self.writer.sent < self.may_send() {
            let Self { id, writer, script, number, .. } = self;
            if !machine.is_sending(*number) {
                context.oracle.blame_stream(*id, "is over, and its handler runs");
                return Ok(());
            }
            let key = context.oracle.item_key(*id, Direction::Down, writer.sent);
            let len = script.down.len(key);
            if let Some(most) = machine.too_large(len) {
                context.oracle.blame_stream(*id, format!("cannot send {len} bytes, only {most}"));
            }
            if writer.waits(|nanos| context.wake_in(nanos, *id, Who::HandlerWriter))
                || !machine.has_room(len)
            {
                return Ok(());
            }
            let encode = &mut |out: &mut &mut [u8]| pattern::fill(out, key, len);
            if machine.put(len, encode, &mut context.means.pool).is_err() {
                context.oracle.no_memory();
                return Err(Err(Status::resource_exhausted("the handler has no memory")));
            }
            writer.sent += 1;
            context.oracle.item_sent(*id, Direction::Down, len);
        }
        Ok(())
    }

    fn read(
        &mut self,
        machine: &mut StreamServer<RequestHandle>,
        context: &mut StreamContext<'_, '_>,
    ) {
        let Self { id, reader, number, .. } = self;
        while !reader.is_done {
            if reader.leaves() {
                context.oracle.reader_leaves(*id, Direction::Up);
                (reader.is_done, reader.batch) = (true, None);
                return machine.drop_reader(*number);
            }
            if reader.batch.is_some() {
                if reader.waits(|nanos| context.wake_in(nanos, *id, Who::HandlerReader)) {
                    return;
                }
                reader.read(*id, Direction::Up, context.oracle);
                if let Some(batch) = reader.take_read() {
                    context.means.pool.recycle(batch.into_message());
                }
                continue;
            }
            match machine.next_batch(*number) {
                ServerNext::Batch(batch) => reader.batch = Some(batch),
                ServerNext::Wait => return,
                ServerNext::End => {
                    reader.is_done = true;
                    context.oracle.items_are_over(*id);
                }
            }
        }
    }
}

impl Served {
    fn new(client: ClientId, limit: usize) -> Self {
        Self { client, machine: StreamServer::new(limit), waiting: Vec::new(), handler: None }
    }

    /// The endpoint has died, or the session is gone.
    pub(super) fn lose(self, oracle: &mut Oracle) {
        if let Some(handler) = self.handler {
            oracle.handler_is_lost(handler.id);
        }
    }

    /// Describes the state of the session's streams. `None` if no state remains.
    pub(super) fn rest(&self) -> Option<String> {
        let is_idle = self.machine.is_idle() && self.waiting.is_empty() && self.handler.is_none();
        (!is_idle).then(|| format!("{self:?}"))
    }

    /// Applies the effect of a call on the handlers.
    fn affect(&mut self, effect: Effect, oracle: &mut Oracle) {
        match (effect.stop, self.handler.take()) {
            (true, Some(handler)) => oracle.handler_stops(handler.id),
            (true, None) => oracle.blame("a handler is stopped, but there is none"),
            (false, handler) => self.handler = handler,
        }
    }

    fn start(
        &mut self,
        id: u32,
        number: u32,
        deadline: Instant,
        context: &mut StreamContext<'_, '_>,
    ) {
        let Some(script) = context.oracle.script(id) else { return };
        if let Some(handler) = &self.handler {
            let before = handler.id;
            context.oracle.blame_stream(id, format!("begins, and the handler of {before} runs"));
        }
        context.wake_at(deadline, id, Who::HandlerIsLate);
        let (writer, reader) = (Writer::new(&script.down), Reader::new(&script.up));
        self.handler = Some(Handler { id, number, script, deadline, writer, reader });
    }

    /// Continues as far as possible.
    fn go_on(&mut self, context: &mut StreamContext<'_, '_>) {
        loop {
            self.run(context);
            if !self.flush(context) {
                return;
            }
        }
    }

    /// Lets the handler continue.
    fn run(&mut self, context: &mut StreamContext<'_, '_>) {
        let Some(handler) = &mut self.handler else { return };
        handler.read(&mut self.machine, context);
        let end = match handler.write(&mut self.machine, context) {
            Err(end) => end,
            Ok(()) if handler.is_done() => context.oracle.verdict(handler.id),
            Ok(()) => return,
        };
        self.finish(end, context);
    }

    fn finish(&mut self, end: StreamResult, context: &mut StreamContext<'_, '_>) {
        let Some(handler) = self.handler.take() else { return };
        context.oracle.handler_ends(handler.id, &end);
        self.machine.finish(handler.number, end);
    }

    /// Gives the answers that are due. Returns whether there were any.
    fn flush(&mut self, context: &mut StreamContext<'_, '_>) -> bool {
        let mut any = false;
        while let Some((call, answer)) = self.machine.poll_answer(&mut context.means.pool) {
            any = true;
            context.means.handed_over += 1;
            match self.waiting.iter().position(|waiting| *waiting == call) {
                Some(at) => drop(self.waiting.swap_remove(at)),
                None => {
                    context.oracle.blame("a call of a stream is answered twice, or never arrived")
                }
            }
            match answer {
                StreamAnswer::Reply(message) => context.cx.respond(call, message, true),
                StreamAnswer::Failed(status) => context.cx.respond_status(call, &status),
            }
        }
        any
    }

    /// A scheduled event of the handler is due.
    fn wake(&mut self, who: Who, context: &mut StreamContext<'_, '_>) {
        let Some(handler) = &mut self.handler else { return };
        match who {
            Who::HandlerWriter => handler.writer.go_on(),
            Who::HandlerReader => handler.reader.go_on(),
            _ if context.cx.now() < handler.deadline => {
                context.wake_again(handler.deadline, handler.id, Who::HandlerIsLate);
            }
            _ => self.finish(Err(Status::deadline_exceeded("the handler is too late")), context),
        }
        self.go_on(context);
    }
}

impl Party {
    /// A call of a stream arrives.
    pub(in crate::party) fn stream_request(
        &mut self,
        cx: &mut Cx<'_>,
        call: Call<'_, SimRoute>,
        oracle: &mut Oracle,
    ) {
        let (me, handle) = (self.me, call.handle);
        let client = handle.client();
        let Streams { served, means, .. } = &mut self.streams;
        let mut context = StreamContext { cx, means, oracle };
        let (id, deadline, request, batch) = match read_call(call, &mut context) {
            Ok(read) => read,
            Err(status) => return context.cx.respond_status(handle, &status),
        };
        let at = served.iter().position(|served| served.client == client).unwrap_or_else(|| {
            let limit = context.cx.client_stats(client).map_or(0, |stats| stats.max_response);
            served.push(Served::new(client, limit as usize));
            served.len() - 1
        });
        let served = &mut served[at];
        served.waiting.push(handle);
        let effect = served.machine.request(handle, request, batch);
        served.affect(effect, context.oracle);
        if effect.start {
            context.oracle.handler_starts(id, me);
            served.start(id, request.stream, deadline, &mut context);
        }
        served.go_on(&mut context);
    }

    /// The client no longer waits for a call. Returns whether the call belongs to a stream.
    pub(in crate::party) fn stream_cancelled(
        &mut self,
        cx: &mut Cx<'_>,
        call: RequestHandle,
        oracle: &mut Oracle,
    ) -> bool {
        let Streams { served, means, .. } = &mut self.streams;
        let Some(served) = served.iter_mut().find(|served| served.waiting.contains(&call)) else {
            return false;
        };
        // If the session is gone, `stream_client_gone` ends all its streams soon.
        if cx.client_stats(call.client()).is_some() {
            let effect = served.machine.cancelled(call);
            served.affect(effect, oracle);
            served.go_on(&mut StreamContext { cx, means, oracle });
        }
        true
    }

    /// A client's session is gone, and its streams with it.
    pub(in crate::party) fn stream_client_gone(&mut self, client: ClientId, oracle: &mut Oracle) {
        let served = &mut self.streams.served;
        if let Some(at) = served.iter().position(|served| served.client == client) {
            served.swap_remove(at).lose(oracle);
        }
    }

    /// A scheduled event of a handler is due.
    pub(super) fn wake_handler(&mut self, cx: &mut Cx<'_>, wake: Wake, oracle: &mut Oracle) {
        let Streams { served, means, .. } = &mut self.streams;
        let runs = |served: &&mut Served| {
            served.handler.as_ref().is_some_and(|handler| handler.id == wake.stream)
        };
        if let Some(served) = served.iter_mut().find(runs) {
            served.wake(wake.who, &mut StreamContext { cx, means, oracle });
        }
    }
}

/// Reads a call: the stream's number at the oracle, its deadline, the request and its items. `Err`
/// is the status of a refused call.
fn read_call(
    call: Call<'_, SimRoute>,
    context: &mut StreamContext<'_, '_>,
) -> Result<(u32, Instant, StreamRequest, Option<Batch>), Status> {
    let Call { method, body, extended, deadline, .. } = call;
    let nonsense = |oracle: &mut Oracle, what: &str| {
        oracle.blame(format!("method {method:x} {what}"));
        Status::invalid_argument("no call of a stream")
    };
    let known = stream_of(method).filter(|&id| context.oracle.script(id).is_some());
    let Some(id) = known.filter(|_| extended) else {
        return Err(nonsense(context.oracle, "is of no stream, or not extended"));
    };
    let bytes = body.as_slice();
    let parsed = Extension::split(bytes).ok().and_then(|(extension, frame)| {
        let request = StreamRequest::parse(extension.op(), frame).ok()?;
        Some((request, extension.as_bytes().to_vec(), bytes.len() - frame.len()))
    });
    let Some((request, entries, offset)) = parsed else {
        return Err(nonsense(context.oracle, "has a malformed call"));
    };
    if request.ask == StreamOp::Open {
        if entries != pattern::entries(context.oracle.item_key(id, Direction::Up, u32::MAX)) {
            return Err(nonsense(context.oracle, "begins with the entries of another stream"));
        }
        if deadline <= context.cx.now() {
            return Err(Status::deadline_exceeded("it is too late to begin"));
        }
    }
    let batch = match request.items.count {
        0 => None,
        _ => {
            let message = owned(body, &mut context.means.pool).map_err(|_| {
                Status::resource_exhausted("the server has no memory for the stream's messages")
            })?;
            Some(Batch::new(message, offset, request.items))
        }
    };
    Ok((id, deadline, request, batch))
}
