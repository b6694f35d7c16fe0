//! The stateless token that ties a client's UDP address to its queue pair.

use std::hash::Hasher;
use std::net::SocketAddr;

use siphasher::sip::SipHasher24;

use crate::time::Instant;
use crate::transport::Route;
use crate::transport::udp::UdpRoute;

/// Bytes of a [`Token`].
pub(super) const TOKEN_LEN: usize = 40;

/// How long a token is valid, in ns: as long as a cookie of the handshake.
const LIFETIME: u64 = 10_000_000_000;
/// Derives the key that hides the time of issue, as in the cookies of the handshake.
const HIDES: u64 = 0x9E37_79B9_7F4A_7C15;

/// What a server gives to a client that asks for its verbs address. It names the client's UDP
/// address and is of no use at any other.
///
/// ```text
///   0        8     16               32      36     38     40
///   | issued | MAC | IPv6 address   | scope | port | zero |      issued: hidden by a hash of the MAC
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token(pub [u8; TOKEN_LEN]);

/// Makes and checks tokens.
#[derive(Clone)]
pub(in crate::transport::verbs) struct TokenMaker {
    key: (u64, u64),
}

impl TokenMaker {
    pub(in crate::transport::verbs) fn new(key: (u64, u64)) -> Self {
        Self { key }
    }

    /// A token for the client at `route`.
    pub(in crate::transport::verbs) fn issue(&self, now: Instant, route: UdpRoute) -> Token {
        let mut token = [0; TOKEN_LEN];
        write_address(&mut token, route);
        let issued = now.as_nanos();
        let mac = self.mac(issued, &token);
        token[..8].copy_from_slice(&(issued ^ self.mask(mac)).to_le_bytes());
        token[8..16].copy_from_slice(&mac.to_le_bytes());
        Token(token)
    }

    /// The client's UDP address, if this maker has issued the token within the last
    /// [`LIFETIME`].
    pub(in crate::transport::verbs) fn check(
        &self,
        now: Instant,
        token: &Token,
    ) -> Option<UdpRoute> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&token.0[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let mac = word(8);
        let issued = word(0) ^ self.mask(mac);
        let is_fresh = now.as_nanos().checked_sub(issued).is_some_and(|age| age <= LIFETIME);
        (is_fresh && self.mac(issued, &token.0) == mac).then(|| read_address(&token.0))
    }

    fn mask(&self, mac: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.key.0 ^ HIDES, self.key.1 ^ HIDES);
        hasher.write_u64(mac);
        hasher.finish()
    }

    fn mac(&self, issued: u64, token: &[u8; TOKEN_LEN]) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.key.0, self.key.1);
        hasher.write_u64(issued);
        hasher.write(&token[16..]);
        hasher.finish()
    }
}

/// IPv4 addresses are stored IPv4-mapped. The scope is this host's name of a link.
fn write_address(token: &mut [u8; TOKEN_LEN], route: UdpRoute) {
    let scope = match route.socket_addr() {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    };
    token[16..32].copy_from_slice(&route.octets());
    token[32..36].copy_from_slice(&scope.to_le_bytes());
    token[36..38].copy_from_slice(&route.port().to_le_bytes());
}

fn read_address(token: &[u8; TOKEN_LEN]) -> UdpRoute {
    let (mut octets, mut scope) = ([0; 16], [0; 4]);
    octets.copy_from_slice(&token[16..32]);
    scope.copy_from_slice(&token[32..36]);
    let port = u16::from_le_bytes([token[36], token[37]]);
    UdpRoute::from_v6(octets, port, u32::from_le_bytes(scope))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(text: &str) -> UdpRoute {
        text.parse::<SocketAddr>().unwrap().into()
    }

    #[test]
    fn a_token_names_its_address_for_ten_seconds_at_one_server() {
        let maker = TokenMaker::new((1, 2));
        let now = Instant::from_nanos(5_000_000_000);
        for text in ["10.0.0.7:31850", "[2001:db8::7]:443", "[fe80::1%3]:65535"] {
            let token = maker.issue(now, route(text));
            let late = now.plus_nanos(LIFETIME);
            assert_eq!(maker.check(late, &token), Some(route(text)));
            assert_eq!(maker.check(late.plus_nanos(1), &token), None, "too old");
            assert_eq!(maker.check(Instant::from_nanos(4_999_999_999), &token), None, "too new");
            assert_eq!(TokenMaker::new((1, 3)).check(now, &token), None, "another server");
            for bit in 0..TOKEN_LEN * 8 {
                let mut forged = token;
                forged.0[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(maker.check(now, &forged), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn the_hidden_times_of_two_tokens_are_unrelated() {
        let maker = TokenMaker::new((1, 2));
        let word = |nanos: u64| {
            let token = maker.issue(Instant::from_nanos(nanos), route("10.0.0.7:31850"));
            u64::from_le_bytes(token.0[..8].try_into().expect("eight bytes"))
        };
        for at in 1..100 {
            let differ = (word(5_000_000_000) ^ word(5_000_000_000 + at)).count_ones();
            assert!((8..=56).contains(&differ), "{differ} bits differ");
        }
    }
}
