//! The streams of a party: both ends of `erpc_core::stream`. The ends are bound to calls as in
//! `client/stream` and `serving/stream.rs` of `erpc-core`.
//!
//! ```text
//!   Streams         the streams of one endpoint, and their resources          mod.rs
//!   ClientStream    a stream that the endpoint has begun                     client.rs
//!   Served          the streams of a session that the endpoint has accepted  server.rs
//!   Writer, Reader  the users of either end                                  users.rs
//!   lanes           sessions that carry one stream at a time                 lanes.rs
//! ```

mod client;
mod lanes;
mod server;
mod users;

use erpc_core::buf::{MsgBuf, NoMemory, Pool, PoolStats};
use erpc_core::protocol::Body;
use erpc_core::time::Instant;

use self::client::ClientStream;
pub(super) use self::lanes::Lane;
use self::server::Served;
use super::{Cx, Party};
use crate::oracle::Oracle;
use crate::plan::Plan;

/// Set in the method of a stream's calls. The rest of the method is the stream's number at the
/// oracle.
const STREAM: u32 = 1 << 31;

/// The number of the stream that a call's method names, if any.
pub(crate) fn stream_of(method: u32) -> Option<u32> {
    (method & STREAM != 0).then_some(method & !STREAM)
}

/// The number of the stream that a call's token names, if any.
pub(super) fn stream_of_token(token: u64) -> Option<u32> {
    stream_of((token >> 32) as u32)
}

/// An event at one end of a stream: a pause ends, or a deadline may have passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wake {
    stream: u32,
    who: Who,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    ClientWriter,
    ClientReader,
    /// The client's user closes the stream.
    ClientLeaves,
    /// The client's deadline may have passed.
    ClientIsLate,
    HandlerWriter,
    HandlerReader,
    HandlerIsLate,
}

/// The resources that the streams of a party share.
struct Means {
    /// The memory of messages. As in a real endpoint, streams have a pool of their own.
    pool: Pool,
    /// Buffers that hold all free memory of the pool.
    hoard: Vec<MsgBuf>,
    /// Events to schedule, with the delay in ns.
    wakes: Vec<(u64, Wake)>,
    /// Calls made so far.
    calls: u64,
    /// Calls made and answers given in this turn.
    handed_over: u32,
    /// See [`Party::streams_ended_early`].
    ended_early: (u64, u64),
}

/// The access of a stream's end to the endpoint, the resources and the oracle.
struct StreamContext<'a, 'c> {
    cx: &'a mut Cx<'c>,
    means: &'a mut Means,
    oracle: &'a mut Oracle,
}

impl StreamContext<'_, '_> {
    fn wake_in(&mut self, nanos: u64, stream: u32, who: Who) {
        self.means.wakes.push((nanos, Wake { stream, who }));
    }

    /// Schedules `who` for when this endpoint's clock shows `deadline`. The event comes early if
    /// the clock stops before then.
    fn wake_at(&mut self, deadline: Instant, stream: u32, who: Who) {
        if deadline != Instant::NEVER {
            self.wake_in(deadline.nanos_since(self.cx.now()), stream, who);
        }
    }

    /// Schedules `who` again because the clock did not show `deadline` yet.
    fn wake_again(&mut self, deadline: Instant, stream: u32, who: Who) {
        /// Delay before the clock is checked again if it does not advance, in ns.
        const LOOKS_AGAIN: u64 = 1_000_000;
        let left = deadline.nanos_since(self.cx.now());
        self.wake_in(left.max(LOOKS_AGAIN), stream, who);
    }
}

/// The streams of a party.
pub(super) struct Streams {
    begun: Vec<ClientStream>,
    served: Vec<Served>,
    /// Streams still to be begun.
    owed: u32,
    means: Means,
}

impl Streams {
    /// No streams yet. Their messages use at most `memory` bytes.
    pub(super) fn new(memory: usize) -> Self {
        let means = Means {
            pool: Pool::new(memory),
            hoard: Vec::new(),
            wakes: Vec::new(),
            calls: 0,
            handed_over: 0,
            ended_early: (0, 0),
        };
        Self { begun: Vec::new(), served: Vec::new(), owed: 0, means }
    }

    /// The streams of the endpoint after it restarts.
    pub(super) fn reborn(&self, memory: usize) -> Self {
        Self { owed: self.owed, ..Self::new(memory) }
    }

    /// Stops the endpoint from beginning further streams.
    pub(super) fn retire(&mut self) {
        self.owed = 0;
    }

    pub(super) fn begin_turn(&mut self) {
        self.means.handed_over = 0;
    }

    /// Calls made and answers given in this turn.
    pub(super) fn handed_over(&self) -> u32 {
        self.means.handed_over
    }

    pub(super) fn take_hoard(&mut self) {
        let mut size = 1 << 20;
        while size >= 64 {
            match self.means.pool.alloc(size) {
                Ok(msgbuf) => self.means.hoard.push(msgbuf),
                Err(_) => size /= 2,
            }
        }
    }

    pub(super) fn drop_hoard(&mut self) {
        self.means.hoard.clear();
    }

    /// Abandons all streams, because the endpoint dies.
    pub(super) fn abandon(&mut self, oracle: &mut Oracle) {
        for stream in self.begun.drain(..) {
            oracle.stream_is_abandoned(stream.id());
        }
        for served in self.served.drain(..) {
            served.lose(oracle);
        }
    }
}

impl Party {
    /// Events to schedule, with the delay in ns.
    pub(crate) fn wakes(&mut self) -> &mut Vec<(u64, Wake)> {
        &mut self.streams.means.wakes
    }

    /// Handles a scheduled event.
    pub(crate) fn wake(&mut self, cx: &mut Cx<'_>, wake: Wake, oracle: &mut Oracle, plan: &Plan) {
        match wake.who {
            Who::HandlerReader | Who::HandlerWriter | Who::HandlerIsLate => {
                self.wake_handler(cx, wake, oracle);
            }
            _ => self.wake_client(cx, wake, oracle),
        }
        self.use_lanes(cx, oracle, plan);
    }

    /// Statistics of the memory of streams.
    pub(crate) fn stream_memory(&mut self) -> PoolStats {
        self.streams.means.pool.stats()
    }

    /// How many calls of streams ended before their answers arrived, because of a deadline or lack
    /// of memory: the calls that were certainly sent, and the calls that were perhaps sent.
    pub(crate) fn streams_ended_early(&self) -> (u64, u64) {
        self.streams.means.ended_early
    }

    /// Describes a stream that this party has begun and that still exists, or else the state that
    /// remains of a stream that it serves. `None` if there is neither.
    pub(crate) fn stream_rest(&self) -> Option<String> {
        let Streams { begun, served, .. } = &self.streams;
        let served = served.iter().find_map(Served::rest);
        begun.first().map(|stream| format!("{stream:?}")).or(served)
    }

    /// Whether there are no streams.
    pub(crate) fn has_no_streams(&self) -> bool {
        self.streams.begun.is_empty() && self.streams.served.is_empty()
    }
}

/// The message as a msgbuf. The bytes of a packet are copied, because the receive buffer holds them
/// only until the next burst.
fn owned(body: Body<'_>, pool: &mut Pool) -> Result<MsgBuf, NoMemory> {
    match body {
        Body::Message(message) => Ok(message),
        Body::Packet(bytes) => {
            let mut message = pool.alloc(bytes.len())?;
            message.resize(bytes.len());
            message.as_mut_slice().copy_from_slice(bytes);
            Ok(message)
        }
    }
}
