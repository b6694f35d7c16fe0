//! Random schedules. Calls and replies arrive in any order, and either end may give up at any time.
//! Items still arrive in order, both ends learn of the end once, and every call is answered.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::BufMut;
use proptest::prelude::*;

use crate::buf::{MsgBuf, Pool};
use crate::protocol::{CallError, Cause};
use crate::status::Status;
use crate::stream::{
    BATCH, Batch, ClientNext, Effect, MAX_PULLS, MAX_PUSHES, ServerNext, StreamAnswer,
    StreamClient, StreamOp, StreamRequest, StreamResult, StreamServer,
};
use crate::wire::extension::Extension;

/// Sizes of items in bytes: a 4-byte number and padding.
const SIZES: [usize; 4] = [4, 900, BATCH / 2 + 1, BATCH + 5_000];

/// An event. Numbers select among the available calls, replies and sizes.
#[derive(Clone, Copy, Debug)]
enum Step {
    FlushClient,
    FlushServer,
    Deliver(u8),
    StreamReply(u8),
    ClientSends(u8),
    ClientReads,
    ClientEnds,
    ClientDrops,
    ServerSends(u8),
    ServerReads,
    ServerDrops,
    ServerFinishes(bool),
    /// The client's endpoint gives up a call.
    GivesUp(u8),
    /// The server learns of a call that the client gave up.
    Cancel,
    NextStream,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::FlushClient),
        8 => Just(Step::FlushServer),
        12 => any::<u8>().prop_map(Step::Deliver),
        12 => any::<u8>().prop_map(Step::StreamReply),
        8 => (0..4u8).prop_map(Step::ClientSends),
        8 => Just(Step::ClientReads),
        1 => Just(Step::ClientEnds),
        1 => Just(Step::ClientDrops),
        8 => (0..4u8).prop_map(Step::ServerSends),
        8 => Just(Step::ServerReads),
        1 => Just(Step::ServerDrops),
        2 => any::<bool>().prop_map(Step::ServerFinishes),
        1 => any::<u8>().prop_map(Step::GivesUp),
        2 => Just(Step::Cancel),
        2 => Just(Step::NextStream),
    ]
}

/// State of one direction: items sent, items read, and the batch being read.
#[derive(Default)]
struct Lane {
    sent: u32,
    read: u32,
    batch: Option<Batch>,
    ended: bool,
    dropped: bool,
}

impl Lane {
    /// Reads an item if a batch is available. Returns whether the item was the batch's last.
    fn read(&mut self) -> Option<bool> {
        let batch = self.batch.as_mut()?;
        let item = batch.next_item().expect("a batch for the reader has at least one item");
        assert_eq!(item[..4], self.read.to_le_bytes(), "items come in order");
        self.read += 1;
        let last = batch.left() == 0;
        if last {
            self.batch = None;
        }
        Some(last)
    }
}

struct Stream {
    number: u32,
    up: Lane,
    down: Lane,
    /// The outcome that the client received.
    told: Option<Result<(), CallError>>,
    started: bool,
    stopped: bool,
    finished: Option<StreamResult>,
    /// True if the client has dropped its reader or given up a call. Then not every item needs to
    /// arrive.
    disturbed: bool,
}

impl Stream {
    fn new(number: u32) -> Self {
        Self {
            number,
            up: Lane::default(),
            down: Lane::default(),
            told: None,
            started: false,
            stopped: false,
            finished: None,
            disturbed: false,
        }
    }

    fn handler_runs(&self) -> bool {
        self.started && !self.stopped && self.finished.is_none()
    }
}

struct World {
    pool: Pool,
    client: StreamClient,
    server: StreamServer<u32>,
    stream: Stream,
    next_call: u32,
    /// Calls in flight to the server.
    calls: Vec<(u32, StreamOp, MsgBuf)>,
    /// Calls that the client waits for.
    outstanding: HashMap<u32, StreamOp>,
    /// Calls at the server, unanswered.
    waiting: HashSet<u32>,
    /// Calls that the client has given up without the server's knowledge.
    given_up: VecDeque<u32>,
    /// Replies in flight to the client.
    replies: Vec<(u32, Result<MsgBuf, Status>)>,
}

/// A client that knows the server's message limit.
fn client(number: u32) -> StreamClient {
    let mut client = StreamClient::new(number, Vec::new());
    client.set_limit(1 << 20);
    client
}

impl World {
    fn new() -> Self {
        Self {
            pool: Pool::new(64 << 20),
            client: client(1),
            server: StreamServer::new(1 << 20),
            stream: Stream::new(1),
            next_call: 0,
            calls: Vec::new(),
            outstanding: HashMap::new(),
            waiting: HashSet::new(),
            given_up: VecDeque::new(),
            replies: Vec::new(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::FlushClient => self.flush_client(),
            Step::FlushServer => self.flush_server(),
            Step::Deliver(at) => self.deliver(at),
            Step::StreamReply(at) => self.reply(at),
            Step::ClientSends(size) => self.client_sends(SIZES[size as usize]),
            Step::ClientReads => self.client_reads(),
            Step::ClientEnds => {
                self.client.end_items();
                self.stream.up.ended = true;
            }
            Step::ClientDrops => {
                self.client.drop_reader();
                self.stream.down.dropped = true;
                self.stream.down.batch = None;
                self.stream.disturbed = true;
            }
            Step::ServerSends(size) => self.server_sends(SIZES[size as usize]),
            Step::ServerReads => self.server_reads(),
            Step::ServerDrops if self.stream.handler_runs() => {
                self.server.drop_reader(self.stream.number);
                self.stream.up.dropped = true;
                self.stream.up.batch = None;
            }
            Step::ServerFinishes(well) if self.stream.handler_runs() => {
                let end = if well { Ok(()) } else { Err(Status::aborted("as drawn")) };
                self.server.finish(self.stream.number, end.clone());
                self.stream.finished = Some(end);
                self.stream.up.batch = None;
            }
            Step::GivesUp(at) => self.give_up(at),
            Step::Cancel => self.cancel(),
            Step::NextStream if self.client.is_over() => {
                self.check_end();
                let number = self.stream.number + 1;
                self.stream = Stream::new(number);
                self.client = client(number);
            }
            Step::ServerDrops | Step::ServerFinishes(_) | Step::NextStream => {}
        }
    }

    fn flush_client(&mut self) {
        while let Some((ask, message)) = self.client.poll_call(&mut self.pool).unwrap() {
            self.outstanding.insert(self.next_call, ask);
            self.calls.push((self.next_call, ask, message));
            self.next_call += 1;
        }
        let count =
            |of: &[StreamOp]| self.outstanding.values().filter(|ask| of.contains(ask)).count();
        assert!(
            count(&[StreamOp::Open, StreamOp::Pull]) <= MAX_PULLS
                && count(&[StreamOp::Push]) <= MAX_PUSHES
        );
        assert!(count(&[StreamOp::Close]) <= 1);
    }

    fn flush_server(&mut self) {
        while let Some((call, answer)) = self.server.poll_answer(&mut self.pool) {
            assert!(self.waiting.remove(&call), "call {call} was answered twice or never arrived");
            let reply = match answer {
                StreamAnswer::Reply(message) => Ok(message),
                StreamAnswer::Failed(status) => Err(status),
            };
            self.replies.push((call, reply));
        }
    }

    fn deliver(&mut self, at: u8) {
        if self.calls.is_empty() {
            return;
        }
        let (call, _, message) = self.calls.swap_remove(usize::from(at) % self.calls.len());
        let (extension, frame) = Extension::split(message.as_slice()).unwrap();
        let offset = message.len() - frame.len();
        let request = StreamRequest::parse(extension.op(), frame).unwrap();
        self.waiting.insert(call);
        let batch = Batch::new(message, offset, request.items);
        let batch = (request.items.count > 0).then_some(batch);
        let effect = self.server.request(call, request, batch);
        self.affect(request.stream, effect);
    }

    fn affect(&mut self, stream: u32, effect: Effect) {
        if effect.stop {
            // A call of an earlier stream, or an OPEN, may stop the handler of an earlier stream,
            // which the test no longer tracks.
            assert!(self.stream.number != stream || self.stream.handler_runs() || effect.start);
            if self.stream.handler_runs() {
                self.stream.stopped = true;
                self.stream.up.batch = None;
            }
        }
        if effect.start && stream == self.stream.number {
            assert!(!self.stream.started, "a handler starts once");
            self.stream.started = true;
        }
    }

    fn reply(&mut self, at: u8) {
        if self.replies.is_empty() {
            return;
        }
        let (call, reply) = self.replies.swap_remove(usize::from(at) % self.replies.len());
        if let Some(ask) = self.outstanding.remove(&call) {
            self.client.replied(ask, reply.map(Some).map_err(CallError::Status));
        }
    }

    fn client_sends(&mut self, size: usize) {
        if self.client.sending().is_ok() && self.client.has_room(size) {
            let number = self.stream.up.sent;
            self.client.put(size, &mut |out| write(out, number, size), &mut self.pool).unwrap();
            self.stream.up.sent += 1;
        }
    }

    fn server_sends(&mut self, size: usize) {
        let number = self.stream.down.sent;
        if self.stream.handler_runs() && self.server.has_room(size) {
            assert!(self.server.is_sending(self.stream.number));
            self.server.put(size, &mut |out| write(out, number, size), &mut self.pool).unwrap();
            self.stream.down.sent += 1;
        }
    }

    fn client_reads(&mut self) {
        let stream = &mut self.stream;
        if stream.down.dropped || stream.told.is_some() {
            return;
        }
        match stream.down.read() {
            Some(true) => self.client.batch_read(),
            Some(false) => {}
            None => match self.client.next_batch() {
                ClientNext::Batch(batch) => stream.down.batch = Some(batch),
                ClientNext::Wait => {}
                ClientNext::End(end) => stream.told = Some(end),
            },
        }
    }

    fn server_reads(&mut self) {
        let stream = &mut self.stream;
        if !stream.handler_runs() || stream.up.dropped || stream.up.read().is_some() {
            return;
        }
        match self.server.next_batch(stream.number) {
            ServerNext::Batch(batch) => stream.up.batch = Some(batch),
            ServerNext::Wait => {}
            ServerNext::End => assert!(stream.up.ended && stream.up.read == stream.up.sent),
        }
    }

    /// The client gives up an unanswered call, whose progress it does not know. CLOSE has no
    /// deadline, so the client never gives it up.
    fn give_up(&mut self, at: u8) {
        let calls = self.outstanding.iter().filter(|(_, ask)| **ask != StreamOp::Close);
        let mut calls: Vec<u32> = calls.map(|(call, _)| *call).collect();
        calls.sort_unstable();
        if calls.is_empty() {
            return;
        }
        let call = calls[usize::from(at) % calls.len()];
        let ask = self.outstanding.remove(&call).unwrap();
        self.given_up.push_back(call);
        self.stream.disturbed = true;
        self.client.replied(ask, Err(CallError::MaybeExecuted(Cause::NoProgress)));
    }

    /// The server learns of a call that the client gave up: the call has arrived, or never will.
    fn cancel(&mut self) {
        let Some(call) = self.given_up.pop_front() else { return };
        self.calls.retain(|(there, ..)| *there != call);
        let running = self.stream.handler_runs();
        let effect = self.server.cancelled(call);
        assert!(!effect.start && (!effect.stop || running || self.stream.finished.is_none()));
        if effect.stop && running && !self.server.is_sending(self.stream.number) {
            self.stream.stopped = true;
            self.stream.up.batch = None;
        }
    }

    /// Delivers everything and lets every reader read.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let before = (self.next_call, self.stream.up.read, self.stream.down.read);
            self.flush_client();
            while !self.given_up.is_empty() {
                self.cancel();
            }
            while !self.calls.is_empty() {
                self.deliver(0);
            }
            self.server_reads();
            self.flush_server();
            while !self.replies.is_empty() {
                self.reply(0);
            }
            self.client_reads();
            self.client_reads();
            let after = (self.next_call, self.stream.up.read, self.stream.down.read);
            let reading = self.stream.down.batch.is_some() || self.stream.up.batch.is_some();
            if before == after && !reading {
                return;
            }
        }
        panic!("the schedule does not settle");
    }

    /// Checks the state of a stream whose client no longer needs the session.
    fn check_end(&self) {
        assert!(self.outstanding.is_empty());
        let stream = &self.stream;
        if stream.started && !stream.disturbed {
            assert!(
                stream.finished.is_some(),
                "the stream ended although neither end has ended it"
            );
        }
    }
}

fn write(out: &mut &mut [u8], number: u32, size: usize) {
    out.put_u32_le(number);
    out.put_bytes(0xEE, size - 4);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]
    #[test]
    fn both_ends_agree_on_items_and_end(steps in proptest::collection::vec(step(), 0..400)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
        world.take(Step::ClientEnds);
        world.settle();
        // The handler has read all items; a well-behaved handler then ends the stream.
        world.take(Step::ServerFinishes(true));
        world.settle();
        let stream = &world.stream;
        if !stream.disturbed {
            prop_assert_eq!(stream.down.read, stream.down.sent, "every item arrives");
            let told = stream.finished.clone().unwrap().map_err(CallError::Status);
            prop_assert_eq!(stream.told.as_ref(), Some(&told));
            if !stream.up.dropped && stream.finished == Some(Ok(())) && stream.up.ended {
                prop_assert!(stream.up.read <= stream.up.sent);
            }
        } else if !stream.down.dropped {
            prop_assert!(stream.told.is_some(), "the client learns of the end");
        }
        prop_assert!(world.client.is_over(), "{:?}", world.client);
        prop_assert!(world.waiting.is_empty() && world.server.is_idle(), "{:?}", world.server);
        prop_assert!(!world.stream.handler_runs());
        world.check_end();
        drop((world.client, world.server, world.stream));
        prop_assert_eq!(world.pool.stats().in_use, 0);
    }
}
