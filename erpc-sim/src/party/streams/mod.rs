//! The streams of a party: both ends of `erpc_core::stream`, bound to calls as `client/stream` and `serving/stream.rs` bind them.
//!
//! ```text
//!   Streams        those of one endpoint, and what they use     mod.rs
//!   ClientStream   one that it has begun                        client.rs
//!   Served         those of a session that it has accepted      server.rs
//!   Writer, Reader what the users of either do                  users.rs
//!   lanes          sessions that carry one at a time            lanes.rs
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

/// Set in the method of a stream's calls; the rest is the stream's number at the oracle.
const STREAM: u32 = 1 << 31;

/// The number of the stream that a call's method names, if it names one.
pub(crate) fn stream_of(method: u32) -> Option<u32> {
    (method & STREAM != 0).then_some(method & !STREAM)
}

/// The number of the stream that a call's token names, if it names one.
pub(super) fn stream_of_token(token: u64) -> Option<u32> {
    stream_of((token >> 32) as u32)
}

/// Somebody who has paused goes on, or it is time for something.
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
    /// The client's clock may say that it is too late.
    ClientIsLate,
    HandlerWriter,
    HandlerReader,
    HandlerIsLate,
}

/// What the streams of a party use.
struct Means {
    /// Where their messages come from: memory of its own, as in an endpoint.
    pool: Pool,
    /// All of it that there was.
    hoard: Vec<MsgBuf>,
    /// Who is to be woken, in how many nanoseconds.
    wakes: Vec<(u64, Wake)>,
    /// Calls made so far.
    calls: u64,
    /// Calls made and answers given in this turn.
    handed_over: u32,
    /// Calls that have ended early, and were certainly sent; and those that perhaps were.
    ended_early: (u64, u64),
}

/// What an end of a stream acts through.
struct StreamContext<'a, 'c> {
    cx: &'a mut Cx<'c>,
    means: &'a mut Means,
    oracle: &'a mut Oracle,
}

impl StreamContext<'_, '_> {
    fn wake_in(&mut self, nanos: u64, stream: u32, who: Who) {
        self.means.wakes.push((nanos, Wake { stream, who }));
    }

    /// Wakes somebody when this endpoint's clock shows `deadline`, or a little later if it stands still.
    fn wake_at(&mut self, deadline: Instant, stream: u32, who: Who) {
        if deadline != Instant::NEVER {
            self.wake_in(deadline.nanos_since(self.cx.now()), stream, who);
        }
    }

    /// The same once more, because the clock did not show it.
    fn wake_again(&mut self, deadline: Instant, stream: u32, who: Who) {
        /// How long a clock may stand still unnoticed, in nanoseconds.
        const LOOKS_AGAIN: u64 = 1_000_000;
        let left = deadline.nanos_since(self.cx.now());
        self.wake_in(left.max(LOOKS_AGAIN), stream, who);
    }
}

/// The streams of a party.
pub(super) struct Streams {
    begun: Vec<ClientStream>,
    served: Vec<Served>,
    /// Streams to be begun.
    owed: u32,
    means: Means,
}

impl Streams {
    /// None yet; what they send takes up to `memory` bytes.
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

    /// Those of the next life.
    pub(super) fn reborn(&self, memory: usize) -> Self {
        Self { owed: self.owed, ..Self::new(memory) }
    }

    /// No new streams.
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

    /// The endpoint dies.
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
    /// Who is to be woken, in how many nanoseconds.
    pub(crate) fn wakes(&mut self) -> &mut Vec<(u64, Wake)> {
        &mut self.streams.means.wakes
    }

    /// Somebody goes on.
    pub(crate) fn wake(&mut self, cx: &mut Cx<'_>, wake: Wake, oracle: &mut Oracle, plan: &Plan) {
        match wake.who {
            Who::HandlerReader | Who::HandlerWriter | Who::HandlerIsLate => {
                self.wake_handler(cx, wake, oracle);
            }
            _ => self.wake_client(cx, wake, oracle),
        }
        self.use_lanes(cx, oracle, plan);
    }

    /// What its streams' memory is at.
    pub(crate) fn stream_memory(&mut self) -> PoolStats {
        self.streams.means.pool.stats()
    }

    /// Calls of streams that have ended early: those that were certainly on their way, and those that perhaps
    /// were.
    pub(crate) fn streams_ended_early(&self) -> (u64, u64) {
        self.streams.means.ended_early
    }

    /// What is there of streams although none is under way.
    pub(crate) fn stream_rest(&self) -> Option<String> {
        let Streams { begun, served, .. } = &self.streams;
        let served = served.iter().find_map(Served::rest);
        begun.first().map(|stream| format!("{stream:?}")).or(served)
    }

    /// Whether there is nothing of streams.
    pub(crate) fn has_no_streams(&self) -> bool {
        self.streams.begun.is_empty() && self.streams.served.is_empty()
    }
}

/// The bytes of a message, in memory that lasts.
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
