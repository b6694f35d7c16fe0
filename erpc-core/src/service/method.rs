//! Methods: what a client calls and a server answers.

use std::fmt;
use std::marker::PhantomData;

use super::Prost;

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
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    match (hash >> 32) as u32 {
        0 => 1,
        id => id,
    }
}

/// A method: its name, its id and the types of its messages.
///
/// Generated code has one constant per method; both sides of a call use it.
///
/// ```
/// use erpc_core::service::{Method, method_id};
///
/// const GET: Method<u32, String> = Method::new("kv.v1.Kv/Get");
/// assert_eq!(GET.id(), method_id("kv.v1.Kv/Get"));
/// ```
pub struct Method<Req, Resp, C = Prost> {
    full_name: &'static str,
    id: u32,
    /// A method makes messages, it has none: it is `Send` and `Sync` whatever they are.
    types: PhantomData<fn(Req) -> (Resp, C)>,
}

impl<Req, Resp, C> Method<Req, Resp, C> {
    /// The method with that full name, `package.Service/Method`.
    #[must_use]
    pub const fn new(full_name: &'static str) -> Self {
        Self { full_name, id: method_id(full_name), types: PhantomData }
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
}

// By hand, because derives would ask the same of the messages.
impl<Req, Resp, C> Clone for Method<Req, Resp, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Req, Resp, C> Copy for Method<Req, Resp, C> {}

impl<Req, Resp, C> fmt::Debug for Method<Req, Resp, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Method({}, {:#010x})", self.full_name, self.id)
    }
}

/// Where a method's handler runs.
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
    fn zero_is_reserved() {
        assert!((0..100_000u32).all(|n| method_id(&n.to_string()) != 0));
    }
}
