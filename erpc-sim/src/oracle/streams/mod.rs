//! Rules for streams.

#[cfg(test)]
mod tests;

use erpc_core::protocol::{CallError, Cause, RejectReason};
use erpc_core::status::{Code, Status};
use erpc_core::stream::{BATCH, MAX_PULLS, MAX_UNREAD, StreamOp, StreamResult};
use erpc_core::time::Instant;

use super::{Incarnation, Oracle};
use crate::counters::counters;
use crate::pattern;
use crate::stream_script::{Direction, Flow, StreamScript};

/// The most batches by which the client can be ahead of the handler that reads them: batches in
/// flight, unread batches, the batch that is being read, and the batch that is being filled.
const MOST_UP: usize = MAX_UNREAD + 1;

/// The most batches by which the handler can be ahead of the client's reader, counted as in
/// `MOST_UP`.
const MOST_DOWN: usize = MAX_PULLS + 1;

/// Bytes in front of each item in a packet.
const ITEM_HEAD: usize = 4;

/// The progress of the items in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    sent: u32,
    read: u32,
    /// Bytes of the items that were sent but not read, with their heads.
    ahead: usize,
    /// The reader has learned that there are no more items.
    is_over: bool,
    /// The reader has stopped reading.
    has_left: bool,
}

/// The state of a stream at its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StreamPhase {
    Running,
    /// The session is free for the next stream.
    Over,
    /// The session is free, and the client's user is done with the stream, too.
    Ended,
    /// The client has died.
    Abandoned,
}

/// The state of the handler.
#[derive(Clone, PartialEq, Debug)]
enum Handler {
    NotStarted,
    Runs,
    Ended(StreamResult),
    /// The handler was told to stop, died with its endpoint, or lost its client.
    Stopped,
}

pub(super) struct Stream {
    script: StreamScript,
    session: u32,
    phase: StreamPhase,
    handler: Handler,
    up: Lane,
    down: Lane,
    deadline: Option<Instant>,
    /// The client wants no more items, or has learned of an error.
    given_up: bool,
    /// The client's reader has learned how the stream ended.
    told: bool,
    /// The handler must not start any more: the server knows that the stream is over, or the client
    /// learned that the stream was not executed.
    must_not_start: bool,
}

counters! {
    /// The outcomes of streams.
    pub struct Streams {
        /// Streams that were begun.
        pub begun: u64,
        /// Items that were read.
        pub items: u64,
        /// Streams that ended successfully.
        pub finished: u64,
        /// Streams that ended with their handler's status.
        pub statuses: u64,
        /// Streams that ended with another error.
        pub failed: u64,
        /// Streams whose client's reader left before it learned of the end.
        pub left: u64,
        /// Streams whose client died first.
        pub abandoned: u64,
        /// Handlers that were told to stop.
        pub stopped: u64,
    }
}

impl Oracle {
    /// A stream begins on a session. Returns its number.
    pub(crate) fn stream_begins(&mut self, session: u32, script: StreamScript) -> u32 {
        let deadline = script.deadline.map(|nanos| self.now.plus_nanos(nanos));
        self.streams.push(Stream {
            script,
            session,
            phase: StreamPhase::Running,
            handler: Handler::NotStarted,
            up: Lane::default(),
            down: Lane::default(),
            deadline,
            given_up: false,
            told: false,
            must_not_start: false,
        });
        self.streams_under_way += 1;
        self.stream_counts.begun += 1;
        let id = self.streams.len() as u32 - 1;
        let ends = self.session_ends(session);
        self.tell_stream(id, || format!("begins on session {ends}: {script:?}"));
        id
    }

    /// Streams that have not ended for their clients.
    #[must_use]
    pub fn streams_under_way(&self) -> u64 {
        self.streams_under_way
    }

    /// The outcomes of streams so far.
    #[must_use]
    pub fn stream_counts(&self) -> Streams {
        self.stream_counts
    }

    /// The most work that remains for the streams under way, as three sums: the bytes, the items
    /// plus four further calls per stream, and the pauses in ns.
    pub(crate) fn stream_backlog(&self) -> (u64, u64, u64) {
        let open = self.streams.iter().filter(|stream| stream.phase != StreamPhase::Abandoned);
        let left = |flow: &Flow, lane: &Lane| {
            let items = u64::from(flow.items - lane.read.min(flow.items));
            (items * (flow.longest() + ITEM_HEAD) as u64, items)
        };
        open.filter(|stream| stream.phase != StreamPhase::Ended).fold((0, 0, 0), |sum, stream| {
            let Stream { script, up, down, .. } = stream;
            let (up, down) = (left(&script.up, up), left(&script.down, down));
            (sum.0 + up.0 + down.0, sum.1 + up.1 + down.1 + 4, sum.2 + script.pauses())
        })
    }

    /// The session of the first stream that has not ended.
    pub(super) fn late_stream_session(&self) -> Option<u32> {
        let is_late =
            |stream: &&Stream| matches!(stream.phase, StreamPhase::Running | StreamPhase::Over);
        self.streams.iter().find(is_late).map(|stream| stream.session)
    }

    /// The script of stream `id`, if that stream exists.
    pub(crate) fn script(&self, id: u32) -> Option<StreamScript> {
        self.streams.get(id as usize).map(|stream| stream.script)
    }

    /// The key from which item `number` of one side is generated.
    pub(crate) fn item_key(&self, id: u32, of: Direction, number: u32) -> u64 {
        pattern::item(self.seed, id, of, number)
    }

    /// The result of a handler that ends by itself.
    pub(crate) fn verdict(&self, id: u32) -> StreamResult {
        let key = self.item_key(id, Direction::Down, u32::MAX);
        self.streams[id as usize].script.verdict(key)
    }

    /// Reports a violation by a stream.
    pub(crate) fn blame_stream(&mut self, id: u32, what: impl AsRef<str>) {
        let session = self.streams[id as usize].session;
        self.blame_session(session, format!("stream {id} {}", what.as_ref()));
    }

    /// Prints an event of a stream, if the plan prints packets.
    fn tell_stream(&self, id: u32, what: impl FnOnce() -> String) {
        self.tell(|| format!("stream {id} {}", what()));
    }

    fn lane(&mut self, id: u32, of: Direction) -> (&mut Lane, Flow) {
        let stream = &mut self.streams[id as usize];
        match of {
            Direction::Up => (&mut stream.up, stream.script.up),
            Direction::Down => (&mut stream.down, stream.script.down),
        }
    }

    /// One side sends an item of `len` bytes. A sender can be ahead of its reader by only a few
    /// batches, however long the reader pauses.
    pub(crate) fn item_sent(&mut self, id: u32, of: Direction, len: usize) {
        let largest_message = self.largest_message;
        let (lane, flow) = self.lane(id, of);
        lane.sent += 1;
        lane.ahead += len + ITEM_HEAD;
        let ahead = lane.ahead;
        let batches = if of == Direction::Up { MOST_UP } else { MOST_DOWN };
        let batch = BATCH.min(largest_message).max(flow.longest() + ITEM_HEAD);
        if ahead > batches * batch {
            self.blame_stream(
                id,
                format!("has {ahead} unread bytes {of:?}, more than {batches} batches of {batch}"),
            );
        }
    }

    /// One side reads an item that the other side sent.
    pub(crate) fn item_read(&mut self, id: u32, of: Direction, bytes: &[u8]) {
        let seed = self.seed;
        self.stream_counts.items += 1;
        let (lane, flow) = self.lane(id, of);
        let (number, sent, is_over) = (lane.read, lane.sent, lane.is_over || lane.has_left);
        lane.read += 1;
        lane.ahead = lane.ahead.saturating_sub(bytes.len() + ITEM_HEAD);
        let key = pattern::item(seed, id, of, number);
        if is_over || number >= sent {
            return self.blame_stream(id, format!("has item {number} {of:?} read, of {sent}, and its reader was told of the end: {is_over}"));
        }
        if bytes.len() != flow.len(key) || !pattern::matches(bytes, key) {
            let (len, due) = (bytes.len(), flow.len(key));
            self.blame_stream(
                id,
                format!("has item {number} {of:?} altered, or another one: {len} of {due} bytes"),
            );
        }
    }

    /// A reader stops reading. If it is the client's reader, the stream ends.
    pub(crate) fn reader_leaves(&mut self, id: u32, of: Direction) {
        self.tell_stream(id, || format!("has its reader {of:?} leave"));
        self.lane(id, of).0.has_left = true;
        self.streams[id as usize].given_up |= of == Direction::Down;
    }

    /// The deadline ends the stream at the client.
    pub(crate) fn stream_is_late(&mut self, id: u32) {
        self.check_late(id, "ends");
        self.streams[id as usize].given_up = true;
    }

    fn check_late(&mut self, id: u32, what: &str) {
        let deadline = self.streams[id as usize].deadline;
        let is_due = deadline.is_some_and(|deadline| deadline <= self.now);
        if deadline.is_none() || !is_due && self.clocks_are_true {
            self.blame_stream(id, format!("{what} as if it were too late: {deadline:?}"));
        }
    }

    /// A handler is started.
    pub(crate) fn handler_starts(&mut self, id: u32, at: Incarnation) {
        let place = self.routes[at.0];
        self.tell_stream(id, || format!("has its handler started by {place}"));
        let Stream { handler, session, must_not_start, .. } = &mut self.streams[id as usize];
        let before = std::mem::replace(handler, Handler::Runs);
        let (session, must_not_start) = (*session, *must_not_start);
        if before != Handler::NotStarted {
            self.blame_stream(id, format!("has its handler started again, {before:?}"));
        }
        if must_not_start {
            self.blame_stream(id, "has its handler started, and is over");
        }
        let home = &mut self.sessions[session as usize].home;
        if *home.get_or_insert(at) != at {
            self.blame_stream(id, format!("has its handler started in another place: {at:?}"));
        }
    }

    /// The handler learns that the client has sent all its items.
    pub(crate) fn items_are_over(&mut self, id: u32) {
        let stream = &mut self.streams[id as usize];
        stream.up.is_over = true;
        let (Lane { sent, read, .. }, items) = (stream.up, stream.script.up.items);
        if read < sent || sent < items {
            self.blame_stream(
                id,
                format!("has no more items for its handler, which has read {read} of {items}"),
            );
        }
    }

    /// The handler ends.
    pub(crate) fn handler_ends(&mut self, id: u32, end: &StreamResult) {
        self.tell_stream(id, || format!("has its handler end: {end:?}"));
        if matches!(end, Err(status) if status.code() == Code::DeadlineExceeded) {
            self.check_late(id, "has its handler end");
        }
        self.streams[id as usize].handler = Handler::Ended(end.clone());
    }

    /// The handler is told to stop.
    pub(crate) fn handler_stops(&mut self, id: u32) {
        self.tell_stream(id, || "has its handler stopped".to_owned());
        self.stream_counts.stopped += 1;
        let Stream { handler, given_up, deadline, .. } = &mut self.streams[id as usize];
        let before = std::mem::replace(handler, Handler::Stopped);
        let is_late = deadline.is_some_and(|deadline| deadline <= self.now);
        let excused = *given_up || is_late || !self.clocks_are_true && deadline.is_some();
        if before != Handler::Runs {
            self.blame_stream(id, format!("has its handler stopped, {before:?}"));
        }
        if !excused && self.keeps_sessions() && !self.memory_is_short {
            self.blame_stream(id, "has its handler stopped for no reason");
        }
    }

    /// The handler dies with its endpoint, or loses its client.
    pub(crate) fn handler_is_lost(&mut self, id: u32) {
        self.streams[id as usize].handler = Handler::Stopped;
    }

    /// The client's writer learns that it must send no more items.
    pub(crate) fn sending_is_refused(&mut self, id: u32, error: &CallError) {
        let Stream { handler, up, given_up, .. } = &self.streams[id as usize];
        let ended = matches!(handler, Handler::Ended(_) | Handler::Stopped);
        if *error == CallError::Rejected(RejectReason::StreamEnded)
            && !(ended || up.has_left || *given_up)
        {
            self.blame_stream(id, "refuses items, but its handler reads them");
        }
    }

    /// The client's reader learns how the stream has ended.
    pub(crate) fn end_is_told(&mut self, id: u32, end: Result<(), &CallError>) {
        self.tell_stream(id, || format!("ends for its client: {end:?}"));
        let stream = &mut self.streams[id as usize];
        stream.down.is_over = true;
        let again = std::mem::replace(&mut stream.told, true);
        let (Lane { sent, read, .. }, handler) = (stream.down, stream.handler.clone());
        stream.given_up |= end.is_err();
        if again {
            self.blame_stream(id, "ends twice for its client");
        }
        let said: StreamResult = match end {
            Ok(()) => Ok(()),
            Err(CallError::Status(status)) => Err(status.clone()),
            Err(error) => {
                self.stream_counts.failed += 1;
                return self.check_stream_error(id, error);
            }
        };
        if handler == Handler::Ended(said.clone()) {
            if read < sent {
                self.blame_stream(id, format!("ends after {read} of {sent} items"));
            }
            match said {
                Ok(()) => self.stream_counts.finished += 1,
                Err(_) => self.stream_counts.statuses += 1,
            }
            return;
        }
        self.stream_counts.failed += 1;
        match said {
            Err(status) if self.is_servers_own(id, &status) => {}
            said => self.blame_stream(id, format!("ends with {said:?}, its handler: {handler:?}")),
        }
    }

    /// Whether the server may give this status itself, without a handler.
    fn is_servers_own(&mut self, id: u32, status: &Status) -> bool {
        match status.code() {
            Code::ResourceExhausted => self.memory_is_short,
            Code::DeadlineExceeded => {
                self.check_late(id, "is turned down");
                true
            }
            _ => false,
        }
    }

    fn check_stream_error(&mut self, id: u32, error: &CallError) {
        let Stream { session, handler, .. } = &mut self.streams[id as usize];
        let (session, ran) = (*session, *handler != Handler::NotStarted);
        let what = format!("stream {id} fails");
        match error {
            CallError::NotExecuted(cause) => {
                self.streams[id as usize].must_not_start = true;
                if ran {
                    self.blame_stream(id, "was executed, and its error says that it was not");
                }
                self.check_stream_cause(id, session, *cause, &what);
            }
            CallError::MaybeExecuted(cause) => self.check_stream_cause(id, session, *cause, &what),
            CallError::ResponseLost(cause) => {
                if !ran {
                    self.blame_stream(id, "has lost a response, and was never executed");
                }
                self.check_stream_cause(id, session, *cause, &what);
            }
            CallError::Rejected(RejectReason::NoMemory(_)) => {
                self.check_cause(session, Cause::NoMemory, &what);
            }
            CallError::Rejected(RejectReason::DeadlineExceeded) => self.check_late(id, "fails"),
            CallError::Rejected(RejectReason::NoSession) if !self.keeps_sessions() => {}
            other => self.blame_stream(id, format!("ends with {other:?}")),
        }
    }

    fn check_stream_cause(&mut self, id: u32, session: u32, cause: Cause, what: &str) {
        match cause {
            Cause::DeadlineExceeded => {
                self.check_late(id, "fails");
                self.handler_events.late += 1;
            }
            // A lack of memory may end a call even if nothing ends sessions early. `check_cause`
            // would report it.
            Cause::NoMemory if self.memory_is_short => {}
            _ => self.check_cause(session, cause, what),
        }
    }

    /// All calls of a stream have ended, and no more follow. Unless the session is `spoilt`, it is
    /// free again, and the server knows that the stream is over.
    pub(crate) fn stream_is_over(&mut self, id: u32, spoilt: bool) {
        self.tell_stream(id, || format!("is over, its session spoilt: {spoilt}"));
        let stream = &mut self.streams[id as usize];
        let before = std::mem::replace(&mut stream.phase, StreamPhase::Over);
        stream.must_not_start |= !spoilt;
        let runs = stream.handler == Handler::Runs;
        let was_open = self.sessions[stream.session as usize].opened_at.is_some();
        if before != StreamPhase::Running {
            self.blame_stream(id, format!("is over, and was {before:?}"));
        }
        if runs && !spoilt {
            self.blame_stream(id, "is over, and its handler runs");
        }
        if spoilt && was_open && self.keeps_sessions() && !self.memory_is_short {
            self.blame_stream(id, "has spoilt its session, to which nothing happened");
        }
    }

    /// The client is done with the stream.
    pub(crate) fn stream_has_ended(&mut self, id: u32) {
        let stream = &mut self.streams[id as usize];
        let before = std::mem::replace(&mut stream.phase, StreamPhase::Ended);
        let (told, left) = (stream.told, stream.down.has_left);
        self.streams_under_way -= 1;
        self.stream_counts.left += u64::from(left && !told);
        if before != StreamPhase::Over || !(told || left) {
            self.blame_stream(id, format!("has ended, and was {before:?}; told: {told}"));
        }
    }

    /// The client has died.
    pub(crate) fn stream_is_abandoned(&mut self, id: u32) {
        self.tell_stream(id, || "loses its client".to_owned());
        let stream = &mut self.streams[id as usize];
        stream.given_up = true;
        stream.phase = StreamPhase::Abandoned;
        self.streams_under_way -= 1;
        self.stream_counts.abandoned += 1;
    }

    /// A call's first packet is sent, and says that `micros` us are left; 0 means no deadline.
    pub(crate) fn stream_sent_deadline(&mut self, id: u32, op: u8, micros: u32) {
        let deadline = self.streams.get(id as usize).and_then(|stream| stream.deadline);
        let deadline = deadline.filter(|_| op != StreamOp::Close.op(false));
        let left =
            deadline.map_or(0, |deadline| deadline.nanos_since(self.now).div_ceil(1_000).max(1));
        if u64::from(micros) != left && self.clocks_are_true {
            self.blame_stream(id, format!("has {left} us left and says {micros}"));
        }
    }

    /// A call of a stream was answered.
    pub(crate) fn stream_is_heard_of(&mut self, id: u32) {
        let session = self.streams[id as usize].session;
        self.sessions[session as usize].heard_at = self.now;
    }
}
