//! The endpoints that listen at one address, and how sessions are distributed among them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::mutants::mutant;
use crate::protocol::cookie::CookieMaker;
use crate::time::Instant;
use crate::transport::Route;
use crate::wire::ConnectionId;
use crate::wire::control::{Control, Cookie};

/// The endpoints that listen at one address.
#[derive(Debug)]
pub struct ListenGroup {
    secret: [u8; 16],
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    port: u16,
    sessions: AtomicU32,
}

impl ListenGroup {
    /// A group whose member `i` receives at `ports[i]`. All ports are the same where the kernel
    /// steers by connection id. `secret` authenticates cookies and must not be guessable.
    ///
    /// # Panics
    /// If there are no ports or more than 256: a connection id names the member in one byte.
    #[must_use]
    pub fn new(secret: [u8; 16], ports: Vec<u16>) -> Self {
        assert!((1..=256).contains(&ports.len()), "a listening group has 1 to 256 endpoints");
        let member = |port| Member { port, sessions: AtomicU32::new(0) };
        Self { secret, members: ports.into_iter().map(member).collect() }
    }

    /// The number of open sessions of each member.
    #[must_use]
    pub fn sessions(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.sessions.load(Ordering::Relaxed)).collect()
    }
}

/// An endpoint's membership in a [`ListenGroup`]. An endpoint needs one to accept sessions.
#[derive(Clone, Debug)]
pub struct Acceptor {
    group: Arc<ListenGroup>,
    steer: u8,
}

impl Acceptor {
    /// Member `steer` of `group`.
    ///
    /// # Panics
    /// If the group has no such member.
    #[must_use]
    pub fn new(group: Arc<ListenGroup>, steer: u8) -> Self {
        assert!((steer as usize) < group.members.len(), "the group has no member {steer}");
        Self { group, steer }
    }

    /// The answer to a `Hello`: the member to open a session with, and a cookie for it. The server
    /// has room for a padded `Open` of `proof` bytes.
    pub(super) fn challenge<R: Route>(
        &self,
        now: Instant,
        route: &R,
        client: ConnectionId,
        proof: u32,
    ) -> Control {
        let (steer, port) = self.choose(spread(client));
        let cookie = self.cookies().issue(now, route, client, steer);
        let own_port = self.group.members[self.steer as usize].port;
        let port = if port == own_port { 0 } else { port };
        Control::Challenge { cookie, port, steer, proof }
    }

    /// Whether a member of the group has recently issued the cookie to this client, for this
    /// member.
    pub(super) fn accepts<R: Route>(
        &self,
        now: Instant,
        cookie: &Cookie,
        route: &R,
        client: ConnectionId,
    ) -> bool {
        self.cookies().check(now, cookie, route, client, self.steer)
    }

    fn cookies(&self) -> CookieMaker {
        CookieMaker::new(self.group.secret)
    }

    /// Picks two members by `salt` and returns the one with fewer sessions: the power of two
    /// choices (Mitzenmacher). A `Hello` does not change the number of sessions. So if the member
    /// with the fewest sessions were chosen, all clients of a burst would go to that member.
    fn choose(&self, salt: u64) -> (u8, u16) {
        let members = &self.group.members;
        let load = |at: usize| members[at].sessions.load(Ordering::Relaxed);
        let first = salt as u32 as usize % members.len();
        let step = 1 + (salt >> 32) as usize % (members.len() - 1).max(1);
        let second = (first + step) % members.len();
        let at = if load(second) < load(first) && !mutant!(LoadIgnored) { second } else { first };
        (at as u8, members[at].port)
    }

    pub(super) fn session_began(&self) {
        self.group.members[self.steer as usize].sessions.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn session_ended(&self) {
        self.group.members[self.steer as usize].sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Spreads the random half of a client's id over 64 bits (Fibonacci hashing).
fn spread(client: ConnectionId) -> u64 {
    u64::from(client.generation()).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn salts() -> impl Iterator<Item = u64> {
        (0..1_000u64).map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17))
    }

    #[test]
    fn the_member_with_fewer_sessions_of_two_is_chosen() {
        for count in 2..9u16 {
            let group = Arc::new(ListenGroup::new([1; 16], (100..100 + count).collect()));
            let acceptor = Acceptor::new(Arc::clone(&group), 0);
            (0..5).for_each(|_| acceptor.session_began());
            assert_eq!(group.sessions()[..2], [5, 0]);
            let mut chosen = vec![0; count.into()];
            for (steer, port) in salts().map(|salt| acceptor.choose(salt)) {
                assert_eq!(port, 100 + u16::from(steer));
                chosen[usize::from(steer)] += 1;
            }
            assert_eq!(chosen[0], 0, "every other member has fewer sessions: {chosen:?}");
            let fair = 1_000 / (i32::from(count) - 1);
            assert!(chosen[1..].iter().all(|times| *times > fair / 2), "{chosen:?}");
            (0..5).for_each(|_| acceptor.session_ended());
            assert_eq!(group.sessions()[0], 0);
        }
    }

    #[test]
    fn a_group_of_one_chooses_its_only_member() {
        let acceptor = Acceptor::new(Arc::new(ListenGroup::new([1; 16], vec![7])), 0);
        assert!(salts().all(|salt| acceptor.choose(salt) == (0, 7)));
    }
}
