//! Methods: names, ids, message types and settings.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::Prost;
use crate::random::mix;

/// The 32-bit id of a method, from its full name `package.Service/Method`.
///
/// Packets carry the id instead of the name. The id depends only on the name, so methods can be
/// added, reordered and removed without old clients calling the wrong method. The id is FNV-1a with
/// 64 bits, mixed by `SplitMix64`'s finalizer so that every bit depends on every byte, and reduced
/// to the upper half. 0 means "no method" and is never returned.
///
/// Two names may have the same id: with probability 1 in 40,000 for a server with 450 methods.
/// `erpc-build` and [`Routes`](super::Routes) refuse such a pair and name both.
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

/// A method: its name, id, message types, and the settings of its calls.
///
/// Generated code has one constant per method, which client and server share. `C` encodes requests,
/// `D` responses.
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
    /// The client's default deadline, in ns; [`NEVER`] means none.
    deadline: u64,
    server_deadline: u64,
    idempotent: bool,
    types: PhantomData<Types<Req, Resp, C, D>>,
}

/// The type parameters of a method, as a function type. A method holds no messages, and with this
/// type it is `Send` and `Sync` for all message types.
pub(super) type Types<Req, Resp, C, D> = fn(Req) -> (Resp, C, D);

impl<Req, Resp, C, D> Method<Req, Resp, C, D> {
    /// The method with full name `package.Service/Method`. It has no deadlines, is not idempotent,
    /// and its messages are limited only by the session.
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

    /// Declares that executing a call twice is harmless. Clients may then retry after failures that
    /// leave open whether the handler ran. Default: not idempotent.
    #[must_use]
    pub const fn idempotent(self) -> Self {
        self.idempotent_if(true)
    }

    pub(super) const fn idempotent_if(mut self, idempotent: bool) -> Self {
        self.idempotent = idempotent;
        self
    }

    /// The client's default time limit for a call, used if the caller sets none. The request
    /// carries it to the server. Default: none.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = nanos(deadline);
        self
    }

    /// The server's time limit for a call that arrives without a deadline, counted from the call's
    /// arrival. A handler does not start after the limit. A running handler can read the limit
    /// ([`Request::deadline`](super::Request::deadline)). An asynchronous handler is dropped at the
    /// limit, and the call is answered
    /// [`Code::DeadlineExceeded`](crate::status::Code::DeadlineExceeded). Default: none.
    ///
    /// Costs one clock read per call, and a timer if the handler is asynchronous.
    #[must_use]
    pub const fn served_within(mut self, deadline: Duration) -> Self {
        self.server_deadline = nanos(deadline);
        self
    }

    /// Largest encoded request, in bytes. The client does not send a larger one. The server answers
    /// a larger one with [`Code::InvalidArgument`](crate::status::Code::InvalidArgument). Default:
    /// limited only by the session.
    #[must_use]
    pub const fn max_request(mut self, bytes: u32) -> Self {
        self.max_request = bytes;
        self
    }

    /// Largest encoded response, in bytes. The server answers
    /// [`Code::OutOfRange`](crate::status::Code::OutOfRange) instead of a larger one, and a client
    /// refuses a larger one with
    /// [`Cause::ResponseTooLarge`](crate::protocol::Cause::ResponseTooLarge). Default: limited only
    /// by the session.
    #[must_use]
    pub const fn max_response(mut self, bytes: u32) -> Self {
        self.max_response = bytes;
        self
    }

    /// The method's full name, `package.Service/Method`.
    #[must_use]
    pub const fn full_name(&self) -> &'static str {
        self.full_name
    }

    /// The id that packets carry; see [`method_id`].
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

    /// Default time limit of a call; `None` means no limit. See [`Method::deadline`].
    #[must_use]
    #[inline]
    pub const fn default_deadline(&self) -> Option<Duration> {
        duration(self.deadline)
    }

    /// The server's time limit for calls that arrive without a deadline; see
    /// [`Method::served_within`].
    #[must_use]
    pub(crate) const fn server_deadline(&self) -> Option<Duration> {
        duration(self.server_deadline)
    }

    /// Largest encoded request, in bytes; `u32::MAX` if only the session limits it.
    #[must_use]
    #[inline]
    pub const fn request_limit(&self) -> u32 {
        self.max_request
    }

    /// Largest encoded response, in bytes; `u32::MAX` if only the session limits it.
    #[must_use]
    #[inline]
    pub const fn response_limit(&self) -> u32 {
        self.max_response
    }
}

/// No deadline. As a number of ns it would be 584 years.
const NEVER: u64 = u64::MAX;

const fn nanos(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos < NEVER as u128 { nanos as u64 } else { NEVER }
}

#[inline]
const fn duration(nanos: u64) -> Option<Duration> {
    if nanos == NEVER { None } else { Some(Duration::from_nanos(nanos)) }
}

// Written by hand, because a derive would require `Clone` and `Copy` of the messages.
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

/// Where a method's synchronous handler runs. Asynchronous handlers are tasks of the endpoint; see
/// [`Routes::unary_async`](super::Routes::unary_async).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mode {
    /// In the event loop of the endpoint that received the request, on the received bytes.
    ///
    /// The fastest mode, for handlers that take up to a few microseconds and never block: while the
    /// handler runs, the endpoint's other calls on all sessions wait.
    #[default]
    Dispatch,
    /// On a worker thread, on a copy of the request. For handlers that compute for long or block.
    /// Costs two handovers between threads.
    Worker,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_part_of_the_protocol() {
        // A change of the hash breaks calls between peers built before and after the change.
        assert_eq!(method_id("kv.v1.Kv/Get"), 0x82c5_09c9);
        assert_eq!(method_id("kv.v1.Kv/Put"), 0x5a8c_640e);
        assert_eq!(method_id(""), 0xf52a_15e9);
    }

    #[test]
    fn similar_names_have_evenly_spread_ids() {
        let names = (0..2_000).map(|n| format!("p.S/M{n}"));
        let mut low_bits = [0u32; 64];
        for name in names {
            low_bits[(method_id(&name) % 64) as usize] += 1;
        }
        assert!(low_bits.iter().all(|&count| (10..=60).contains(&count)), "{low_bits:?}");
    }

    #[test]
    fn a_method_holds_the_settings_of_its_calls() {
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
        assert_eq!(served.default_deadline(), None, "`Duration::MAX` means no deadline");
    }

    #[test]
    fn zero_is_reserved() {
        assert!((0..100_000u32).all(|n| method_id(&n.to_string()) != 0));
    }
}
