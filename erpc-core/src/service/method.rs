//! Methods: what a client calls and a server answers.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::Prost;
use crate::random::mix;

/// The 32-bit id of a method, from its full name `package.Service/Method`.
///
/// Packets carry the id in place of the name. It depends on nothing but the name, so methods may be
/// added, reordered and removed without old clients calling the wrong one. It is FNV-1a with 64 bits,
/// mixed by `SplitMix64`'s finalizer so that every bit depends on every byte, and cut to the upper
/// half. 0 stands for "no method" and is never returned.
///
/// Two names may meet in one id: 1 in 40,000 for a server with 450 methods. `erpc-build` and
/// [`Routes`](super::Routes) refuse such a pair by name.
#[must_use]
pub const fn method_id(full_name: &str) -> u32 {
    let bytes = full_name.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    match (mix(hash) >> 32) as u32 {
        0 => 1,
        id => id,
    }
}

/// A method: its name, its id, the types of its messages and what holds for every call of it.
///
/// Generated code has one constant per method; both sides of a call use it. Requests are encoded by
/// `C`, responses by `D`.
///
/// ```
/// use std::time::Duration;
/// use erpc_core::service::{Method, method_id};
///
/// const GET: Method<u32, String> =
///     Method::new("kv.v1.Kv/Get").idempotent().deadline(Duration::from_millis(5));
/// assert_eq!(GET.id(), method_id("kv.v1.Kv/Get"));
/// ```
pub struct Method<Req, Resp, C = Prost, D = C> {
    full_name: &'static str,
    id: u32,
    max_request: u32,
    max_response: u32,
    /// Nanoseconds, [`NEVER`] for none: callbacks hold methods, and pay for each word.
    deadline: u64,
    server_deadline: u64,
    idempotent: bool,
    types: PhantomData<Types<Req, Resp, C, D>>,
}

/// A method makes messages, it has none: it is `Send` and `Sync` whatever they are.
pub(super) type Types<Req, Resp, C, D> = fn(Req) -> (Resp, C, D);

impl<Req, Resp, C, D> Method<Req, Resp, C, D> {
    /// The method with that full name, `package.Service/Method`. Without a deadline of its own, not
    /// idempotent, and of messages as large as sessions take them.
    #[must_use]
    pub const fn new(full_name: &'static str) -> Self {
        Self {
            full_name,
            id: method_id(full_name),
            max_request: u32::MAX,
            max_response: u32::MAX,
            deadline: NEVER,
            server_deadline: NEVER,
            idempotent: false,
            types: PhantomData,
        }
    }

    /// Says that executing a call twice is no worse than executing it once, so that clients may try
    /// again after failures that leave open whether the handler ran. Default: it is not.
    #[must_use]
    pub const fn idempotent(self) -> Self {
        self.idempotent_if(true)
    }

    pub(super) const fn idempotent_if(mut self, idempotent: bool) -> Self {
        self.idempotent = idempotent;
        self
    }

    /// How long a call may take unless its caller says otherwise. The client's: it travels with each
    /// request. Default: for ever.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = nanos(deadline);
        self
    }

    /// How long the server gives a call that comes without a deadline, from its arrival on. A handler is not
    /// started when that is over; one that runs is told ([`Request::deadline`](super::Request::deadline)),
    /// and if it is asynchronous, is dropped where it waits and the call answered
    /// [`Code::DeadlineExceeded`](crate::status::Code::DeadlineExceeded). Default: for ever.
    ///
    /// Costs a look at the clock per call, and a timer if the handler is asynchronous.
    #[must_use]
    pub const fn served_within(mut self, deadline: Duration) -> Self {
        self.server_deadline = nanos(deadline);
        self
    }

    /// Largest encoded request, in bytes. A larger one is not sent, and if a peer sends it all the
    /// same, is answered [`Code::InvalidArgument`](crate::status::Code::InvalidArgument). Default: whatever the
    /// session takes.
    #[must_use]
    pub const fn max_request(mut self, bytes: u32) -> Self {
        self.max_request = bytes;
        self
    }

    /// Largest encoded response, in bytes. The server answers
    /// [`Code::OutOfRange`](crate::status::Code::OutOfRange) in place of a larger one, and a client refuses a larger
    /// one with [`Cause::ResponseTooLarge`](crate::protocol::Cause::ResponseTooLarge). Default: whatever the session takes.
    #[must_use]
    pub const fn max_response(mut self, bytes: u32) -> Self {
        self.max_response = bytes;
        self
    }

    /// The full name.
    #[must_use]
    pub const fn full_name(&self) -> &'static str {
        self.full_name
    }

    /// The id that packets carry, see [`method_id`].
    #[must_use]
    #[inline]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Whether a call may be executed twice; see [`Method::idempotent`].
    #[must_use]
    #[inline]
    pub const fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    /// How long a call may take, `None` for ever; see [`Method::deadline`].
    #[must_use]
    #[inline]
    pub const fn default_deadline(&self) -> Option<Duration> {
        duration(self.deadline)
    }

    /// How long the server gives a call that comes without a deadline; see [`Method::served_within`].
    #[must_use]
    pub(crate) const fn server_deadline(&self) -> Option<Duration> {
        duration(self.server_deadline)
    }

    /// Largest encoded request, in bytes; `u32::MAX` for whatever the session takes.
    #[must_use]
    #[inline]
    pub const fn request_limit(&self) -> u32 {
        self.max_request
    }

    /// Largest encoded response, in bytes; `u32::MAX` for whatever the session takes.
    #[must_use]
    #[inline]
    pub const fn response_limit(&self) -> u32 {
        self.max_response
    }
}

/// No deadline: in 584 years.
const NEVER: u64 = u64::MAX;

const fn nanos(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos < NEVER as u128 { nanos as u64 } else { NEVER }
}

const fn duration(nanos: u64) -> Option<Duration> {
    if nanos == NEVER { None } else { Some(Duration::from_nanos(nanos)) }
}

// By hand, because derives would ask the same of the messages.
impl<Req, Resp, C, D> Clone for Method<Req, Resp, C, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Req, Resp, C, D> Copy for Method<Req, Resp, C, D> {}

impl<Req, Resp, C, D> fmt::Debug for Method<Req, Resp, C, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Method({}, {:#010x})", self.full_name, self.id)
    }
}

/// Where a method's synchronous handler runs. Asynchronous ones are tasks of the endpoint, see
/// [`Routes::unary_async`](super::Routes::unary_async).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mode {
    /// In the event loop of the endpoint that received the request, on the received bytes themselves.
    ///
    /// The fastest way, for handlers of up to a few microseconds that never block: meanwhile the
    /// endpoint's other calls, on every session, wait.
    #[default]
    Dispatch,
    /// On a worker thread, on a copy of the request. For handlers that compute long or block; costs two
    /// passes between threads.
    Worker,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_part_of_the_protocol() {
        // A change of the hash cuts off every peer that was built before it.
        assert_eq!(method_id("kv.v1.Kv/Get"), 0x82c5_09c9);
        assert_eq!(method_id("kv.v1.Kv/Put"), 0x5a8c_640e);
        assert_eq!(method_id(""), 0xf52a_15e9);
    }

    #[test]
    fn similar_names_have_unlike_ids() {
        let names = (0..2_000).map(|n| format!("p.S/M{n}"));
        let mut low_bits = [0u32; 64];
        for name in names {
            low_bits[(method_id(&name) % 64) as usize] += 1;
        }
        assert!(low_bits.iter().all(|&count| (10..=60).contains(&count)), "{low_bits:?}");
    }

    #[test]
    fn what_holds_for_every_call_is_said_once() {
        const PLAIN: Method<u32, u32> = Method::new("p.S/M");
        const SPECIAL: Method<u32, u32> = Method::new("p.S/M")
            .idempotent()
            .deadline(Duration::from_millis(5))
            .max_request(64)
            .max_response(128);
        assert_eq!((PLAIN.is_idempotent(), PLAIN.default_deadline()), (false, None));
        assert_eq!((PLAIN.request_limit(), PLAIN.response_limit()), (u32::MAX, u32::MAX));
        assert!(SPECIAL.is_idempotent());
        assert_eq!(SPECIAL.default_deadline(), Some(Duration::from_millis(5)));
        assert_eq!((SPECIAL.request_limit(), SPECIAL.response_limit()), (64, 128));
        let served = PLAIN.served_within(Duration::from_nanos(7)).deadline(Duration::MAX);
        assert_eq!(served.server_deadline(), Some(Duration::from_nanos(7)));
        assert_eq!(served.default_deadline(), None, "as good as never");
    }

    #[test]
    fn zero_is_reserved() {
        assert!((0..100_000u32).all(|n| method_id(&n.to_string()) != 0));
    }
}
