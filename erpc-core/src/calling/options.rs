//! Options of a call, and its encoded request.

use std::time::Duration;

use super::retry::RetryPolicy;
use crate::buf::{MsgBuf, Pool};
use crate::clock;
use crate::executor::scheduler::Scheduler;
use crate::protocol::RejectReason;
use crate::service::{Codec, Encodes, Metadata, Method, encode_sized};
use crate::time::Instant;
use crate::wire::extension::{EXTENSION_HEAD, put_extension};

/// Settings of calls: deadline, metadata and retries. A setting that is not set takes the channel's
/// default, then the method's.
///
/// ```
/// use std::time::Duration;
/// use erpc_core::calling::CallOptions;
///
/// let options = CallOptions::new().deadline(Duration::from_millis(5));
/// ```
#[derive(Clone, Default, Debug)]
pub struct CallOptions {
    time: TimeLimit,
    metadata: Option<Metadata>,
    retry: Option<RetryPolicy>,
    wait: Option<bool>,
}

/// How long a call may take.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum TimeLimit {
    /// The method's own limit.
    #[default]
    OfMethod,
    None,
    Within(Duration),
}

impl CallOptions {
    /// Options with every setting at its default.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A call ends at the latest when the time `within` has passed since it was made, whatever the
    /// method's own limit is. The request carries the remaining time to the server.
    #[must_use]
    pub const fn deadline(mut self, within: Duration) -> Self {
        self.time = TimeLimit::Within(within);
        self
    }

    /// Sets no time limit, whatever the method's own limit is.
    #[must_use]
    pub const fn no_deadline(mut self) -> Self {
        self.time = TimeLimit::None;
        self
    }

    /// Sends `metadata` with the request. Default: none.
    #[must_use]
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// When and how often failed calls are retried. Default: only calls over a channel that were
    /// certainly not executed; see [`RetryPolicy`]. [`RetryPolicy::never`] switches this off.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// Whether a call waits, until its deadline, for a server that can be reached. Default: no;
    /// then the call fails immediately if the channel has tried all servers and reached none.
    #[must_use]
    pub const fn wait_for_ready(mut self, wait: bool) -> Self {
        self.wait = Some(wait);
        self
    }

    /// These options; settings that are not set are taken from `defaults`.
    #[must_use]
    pub(crate) fn or(self, defaults: &Self) -> Self {
        Self {
            time: if self.time == TimeLimit::OfMethod { defaults.time } else { self.time },
            metadata: self.metadata.or_else(|| defaults.metadata.clone()),
            retry: self.retry.or_else(|| defaults.retry.clone()),
            wait: self.wait.or(defaults.wait),
        }
    }

    /// How long a call of `method` may take; `None` means no limit.
    #[inline]
    pub(crate) fn time_limit<Req, Resp, C, D>(
        options: Option<&Self>,
        method: &Method<Req, Resp, C, D>,
    ) -> Option<Duration> {
        match options.map_or(TimeLimit::OfMethod, |options| options.time) {
            TimeLimit::OfMethod => method.default_deadline(),
            TimeLimit::None => None,
            TimeLimit::Within(duration) => Some(duration),
        }
    }

    /// The metadata in its wire format.
    #[inline]
    pub(crate) fn entries(options: Option<&Self>) -> &[u8] {
        let metadata = options.and_then(|options| options.metadata.as_ref());
        metadata.map_or(&[], |metadata| metadata.as_ref().as_bytes())
    }

    pub(crate) fn waits(&self) -> bool {
        self.wait.unwrap_or(false)
    }

    pub(crate) fn policy(&self) -> Option<&RetryPolicy> {
        self.retry.as_ref()
    }
}

/// The time limit of a call or a stream that an endpoint starts later than it was made, maybe on
/// another thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLeft {
    within: Option<Duration>,
    /// When the call was made, by the system's clock, if that is not now.
    made: Option<Instant>,
}

impl TimeLeft {
    /// The limit of a call that its endpoint makes itself.
    pub(crate) fn here(within: Option<Duration>) -> Self {
        Self { within, made: None }
    }

    /// The limit of a call that is made now for an endpoint on another thread. Reads the clock only
    /// if there is a limit.
    pub(crate) fn from_now(within: Option<Duration>) -> Self {
        Self { within, made: within.map(|_| clock::now()) }
    }

    pub(crate) fn is_limited(self) -> bool {
        self.within.is_some()
    }

    /// The deadline at an endpoint. In virtual time the call is made when the endpoint starts it,
    /// because other threads know no virtual time.
    pub(crate) fn deadline(self, scheduler: &Scheduler) -> Instant {
        let Some(within) = self.within else { return Instant::NEVER };
        let made = self.made.filter(|_| !scheduler.has_virtual_time());
        made.unwrap_or_else(|| scheduler.now()) + within
    }
}

/// An encoded request with its head.
#[derive(Debug)]
pub(crate) struct PreparedCall {
    pub(crate) head: CallHead,
    pub(crate) request: MsgBuf,
}

/// What each attempt of a call needs besides the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallHead {
    pub(crate) method: u32,
    pub(crate) flags: CallFlags,
    pub(crate) deadline: Instant,
}

impl CallHead {
    pub(crate) const NONE: Self = Self { method: 0, flags: CallFlags(0), deadline: Instant::NEVER };
}

/// Properties of a call. 0 is the common case, so that it costs no instruction.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct CallFlags(u8);

impl CallFlags {
    const EXTENDED: u8 = 1;
    const FINAL: u8 = 2;
    const WAITS: u8 = 4;

    #[inline(always)]
    fn new(extended: bool, options: Option<&CallOptions>) -> Self {
        let extended = u8::from(extended) * Self::EXTENDED;
        let Some(options) = options else { return Self(extended) };
        let is_final = u8::from(options.policy().is_some_and(RetryPolicy::is_never)) * Self::FINAL;
        let waits = u8::from(options.waits()) * Self::WAITS;
        Self(extended | is_final | waits)
    }

    /// Whether the request begins with an extension.
    #[inline(always)]
    pub(crate) fn is_extended(self) -> bool {
        self.0 & Self::EXTENDED != 0
    }

    /// Whether the call is never retried, even if it was certainly not executed.
    pub(crate) fn is_final(self) -> bool {
        self.0 & Self::FINAL != 0
    }

    /// Whether the call waits in its channel's queue even while no server can be reached.
    pub(crate) fn waits(self) -> bool {
        self.0 & Self::WAITS != 0
    }
}

/// Smallest capacity of a buffer for a request without extension, in bytes. The buffer later holds
/// the reply until the call's future takes it, so most small replies need no new allocation.
const REPLY_ROOM: usize = 104;

/// Encodes a request of `method` into a buffer of the pool. `now` is called only if the call has a
/// deadline.
#[inline]
pub(crate) fn prepare<Req, Resp, C: Codec<Req>, D>(
    method: &Method<Req, Resp, C, D>,
    message: &impl Encodes<Req>,
    options: Option<&CallOptions>,
    pool: &mut Pool,
    now: impl FnOnce() -> Instant,
) -> Result<PreparedCall, RejectReason> {
    let within = CallOptions::time_limit(options, method);
    let deadline = within.map_or(Instant::NEVER, |within| now() + within);
    let alloc = |len| pool.alloc(len).map_err(RejectReason::NoMemory);
    let (request, flags) = encode(method, message, options, within.is_some(), alloc)?;
    Ok(PreparedCall { head: CallHead { method: method.id(), flags, deadline }, request })
}

/// Encodes a request of `method` into a buffer that `alloc` returns for a number of bytes. The
/// request has room for a time limit if it is `limited`.
#[inline]
pub(crate) fn encode<Req, Resp, C: Codec<Req>, D>(
    method: &Method<Req, Resp, C, D>,
    message: &impl Encodes<Req>,
    options: Option<&CallOptions>,
    limited: bool,
    alloc: impl FnOnce(usize) -> Result<MsgBuf, RejectReason>,
) -> Result<(MsgBuf, CallFlags), RejectReason> {
    let entries = CallOptions::entries(options);
    let extended = limited || !entries.is_empty();
    let len = message.encoded_len::<C>();
    let limit = method.request_limit() as usize;
    if len > limit {
        return Err(RejectReason::TooLarge { size: len, limit });
    }
    let request = if extended {
        let head = EXTENSION_HEAD + entries.len();
        let mut request = alloc(head + len)?;
        encode_sized(&mut request, head + len, |out| {
            put_extension(0, entries, out);
            message.encode::<C>(out);
        });
        request
    } else {
        let mut request = alloc(len.max(REPLY_ROOM))?;
        encode_sized(&mut request, len, |out| message.encode::<C>(out));
        request
    };
    Ok((request, CallFlags::new(extended, options)))
}
