//! The stateless cookie that validates a client's address before the server keeps state for it.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::time::Instant;
use crate::transport::Route;
use crate::wire::ConnectionId;
use crate::wire::control::{COOKIE_LEN, Cookie};

/// Lifetime of a cookie, in nanoseconds: longer than a client needs to send it back, and so short
/// that collecting cookies is useless.
const LIFETIME: u64 = 10_000_000_000;

/// Makes and checks cookies.
///
/// ```text
/// mac:    SipHash-2-4(secret; issued (server's clock, nanoseconds), client id, steer, address)
/// cookie: issued u64 XOR SipHash-2-4(another secret; mac) | mac u64
/// ```
///
/// The clock of many servers starts at boot. A readable time of issue would tell strangers the
/// server's uptime, which hints at missing patches. Therefore the time is encrypted, with the MAC
/// in place of a nonce (as in SIV, RFC 5297): only cookies with the same MAC are encrypted with the
/// same mask.
///
/// All endpoints of a listening group share the secret and the clock's origin, so each can check a
/// cookie that another has issued. A cookie proves that its sender receives packets at its source
/// address.
#[derive(Clone)]
pub(super) struct CookieMaker {
    key: (u64, u64),
}

/// Derives the encryption key from the authentication key.
const ENCRYPTS: u64 = 0x9E37_79B9_7F4A_7C15;

impl CookieMaker {
    pub(super) fn new(secret: [u8; 16]) -> Self {
        let secret = u128::from_le_bytes(secret);
        Self { key: (secret as u64, (secret >> 64) as u64) }
    }

    /// A cookie for a client at `route` that will open a session to endpoint `steer`.
    pub(super) fn issue<R: Route>(
        &self,
        now: Instant,
        route: &R,
        client: ConnectionId,
        steer: u8,
    ) -> Cookie {
        let issued = now.as_nanos();
        let mac = self.mac(issued, route, client, steer);
        let mut cookie = [0; COOKIE_LEN];
        cookie[..8].copy_from_slice(&(issued ^ self.mask(mac)).to_le_bytes());
        cookie[8..].copy_from_slice(&mac.to_le_bytes());
        cookie
    }

    /// Whether a cookie was issued to this client at `route`, for endpoint `steer`, within the last
    /// [`LIFETIME`].
    pub(super) fn check<R: Route>(
        &self,
        now: Instant,
        cookie: &Cookie,
        route: &R,
        client: ConnectionId,
        steer: u8,
    ) -> bool {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&cookie[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let mac = word(8);
        let issued = word(0) ^ self.mask(mac);
        // A group's endpoints read the clock at different moments: a cookie may seem to come from
        // the future, by up to a turn of an event loop.
        let fresh = now.as_nanos().abs_diff(issued) <= LIFETIME;
        fresh && self.mac(issued, route, client, steer) == mac
    }

    /// The mask that encrypts the time of issue.
    fn mask(&self, mac: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.key.0 ^ ENCRYPTS, self.key.1 ^ ENCRYPTS);
        hasher.write_u64(mac);
        hasher.finish()
    }

    fn mac<R: Route>(&self, issued: u64, route: &R, client: ConnectionId, steer: u8) -> u64 {
        let mut bytes = [0; 32];
        let len = route.to_bytes(&mut bytes);
        let mut hasher = SipHasher24::new_with_keys(self.key.0, self.key.1);
        hasher.write_u64(issued);
        hasher.write_u64(client.to_u64());
        hasher.write_u8(steer);
        hasher.write(&bytes[..len]);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::tests::TestRoute;

    #[test]
    fn the_encrypted_times_of_two_cookies_are_unrelated() {
        let maker = CookieMaker::new([3; 16]);
        let word = |nanos: u64, client: u64| {
            let client = ConnectionId::from_u64(client);
            let cookie = maker.issue(Instant::from_nanos(nanos), &TestRoute(1), client, 2);
            u64::from_le_bytes(cookie[..8].try_into().expect("eight bytes"))
        };
        let first = word(5_000_000_000, 1);
        for (nanos, client) in
            (1..100).flat_map(|at| [(5_000_000_000, 1 + at), (5_000_000_000 + at, 1)])
        {
            let differ = (first ^ word(nanos, client)).count_ones();
            assert!((8..=56).contains(&differ), "{differ} bits differ");
        }
    }

    #[test]
    fn a_cookie_is_valid_for_one_address_client_and_endpoint_for_ten_seconds() {
        let maker = CookieMaker::new([3; 16]);
        let (now, client) = (Instant::from_nanos(5_000_000_000), ConnectionId::from_u64(77));
        let cookie = maker.issue(now, &TestRoute(1), client, 2);
        let late = now.plus_nanos(LIFETIME);
        assert!(maker.check(late, &cookie, &TestRoute(1), client, 2));
        assert!(!maker.check(late.plus_nanos(1), &cookie, &TestRoute(1), client, 2), "too old");
        assert!(!maker.check(now, &cookie, &TestRoute(2), client, 2), "another address");
        assert!(
            !maker.check(now, &cookie, &TestRoute(1), ConnectionId::from_u64(78), 2),
            "another client"
        );
        assert!(!maker.check(now, &cookie, &TestRoute(1), client, 3), "another endpoint");
        assert!(
            !CookieMaker::new([4; 16]).check(now, &cookie, &TestRoute(1), client, 2),
            "another server"
        );
        for bit in 0..128 {
            let mut forged = cookie;
            forged[bit / 8] ^= 1 << (bit % 8);
            assert!(!maker.check(now, &forged, &TestRoute(1), client, 2), "bit {bit}");
        }
    }
}
