//! The clients' shares of this endpoint's receive queue, which never overflows.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::protocol::ids::KeyedHasher;
use crate::protocol::index::SessionIndex;
use crate::transport::Route;
use crate::wire::ReplyInfo;

/// What a client endpoint is granted.
struct Grant {
    /// One of its sessions; the others follow in [`Siblings`].
    head: SessionIndex,
    /// The largest window that this client endpoint may have been told.
    told: u32,
}

/// Divides the receive queue's capacity among the client endpoints that have sessions here.
///
/// The share is the capacity divided by the number of client endpoints, rounded up to a power of two,
/// so that it changes rarely. Every reply carries it; when it shrinks, clients that were told more get
/// a ping with the new one.
pub(super) struct Grants<R> {
    capacity: u32,
    /// The capacity is divided by two to the power of this.
    halvings: u32,
    /// What each client endpoint may have on its way. Changes when client endpoints join and leave.
    share: u32,
    /// The share as replies tell it.
    window: ReplyInfo,
    clients: HashMap<(R, u8), Grant, KeyedHasher>,
    siblings: Siblings,
}

impl<R: Route> Grants<R> {
    pub(super) fn new(capacity: u32, hasher: KeyedHasher) -> Self {
        Self {
            capacity,
            halvings: 0,
            share: capacity,
            window: ReplyInfo::new(0, capacity),
            clients: HashMap::with_hasher(hasher),
            siblings: Siblings::default(),
        }
    }

    pub(super) fn set_capacity(&mut self, units: u32) {
        self.capacity = units;
        self.divide();
    }

    /// What each client endpoint may have on its way, in charge units.
    #[inline]
    pub(super) fn share(&self) -> u32 {
        self.share
    }

    /// The share as clients know it.
    pub(super) fn told(&self) -> u32 {
        self.window.window().unwrap_or(self.share)
    }

    /// What the share will be once a session of the client endpoint has opened.
    pub(super) fn share_with(&self, route: &R, steer: u8) -> u32 {
        let new = usize::from(!self.clients.contains_key(&(*route, steer)));
        self.capacity >> self.halvings.max(halvings(self.clients.len() + new))
    }

    /// Joins shrink shares at once; leaves grow them with hysteresis: only when a quarter is left of the client endpoints
    /// that the share is made for, unless they are few. So a client that joins and leaves over and over cannot make the
    /// server ping all clients each time.
    fn divide(&mut self) {
        let needed = halvings(self.clients.len());
        let few = self.clients.len() <= FEW;
        if needed > self.halvings || few || needed + 1 < self.halvings {
            self.halvings = needed;
        }
        self.share = self.capacity >> self.halvings;
        self.window = ReplyInfo::new(0, self.share);
    }

    /// The share as replies tell it, with a processing time of 0.
    #[inline]
    pub(super) fn window(&self) -> ReplyInfo {
        self.window
    }

    /// Session `index` of the client endpoint opens. Returns whether the others' share has shrunk.
    pub(super) fn join(&mut self, route: R, steer: u8, index: SessionIndex) -> bool {
        let before = self.share;
        match self.clients.entry((route, steer)) {
            Entry::Occupied(mut client) => {
                self.siblings.insert(index, Some(client.get().head));
                client.get_mut().head = index;
            }
            Entry::Vacant(client) => {
                self.siblings.insert(index, None);
                client.insert(Grant { head: index, told: 0 });
            }
        }
        self.divide();
        if let Some(grant) = self.clients.get_mut(&(route, steer)) {
            grant.told = self.share;
        }
        self.share < before
    }

    /// Session `index` of the client endpoint has ended.
    pub(super) fn leave(&mut self, route: &R, steer: u8, index: SessionIndex) {
        let client = (*route, steer);
        let Some(grant) = self.clients.get_mut(&client) else { return };
        let after = self.siblings.remove(index);
        if grant.head != index {
            return;
        }
        if let Some(after) = after {
            grant.head = after;
            return;
        }
        self.clients.remove(&client);
        let before = self.share;
        self.divide();
        if self.share > before {
            // The next reply to any client tells the larger share.
            self.clients.values_mut().for_each(|grant| grant.told = self.share);
        }
    }

    /// A session of each client endpoint that was told more than its share. All count as told from now on.
    pub(super) fn tell(&mut self) -> Vec<SessionIndex> {
        let share = self.share;
        let told = |grant: &mut Grant| std::mem::replace(&mut grant.told, share) > share;
        self.clients.values_mut().filter_map(|grant| told(grant).then_some(grant.head)).collect()
    }

    /// Returns the number of sessions.
    ///
    /// # Panics
    /// If something does not add up.
    pub(super) fn check_invariants(&self) -> usize {
        let lens = self.clients.values().map(|grant| self.siblings.check_list(grant.head));
        lens.sum()
    }
}

/// The sessions of each client endpoint, in a list.
#[derive(Default)]
struct Siblings {
    links: Vec<Links>,
}

/// A session's neighbours in the list.
#[derive(Clone, Copy, Default)]
struct Links {
    before: Option<SessionIndex>,
    after: Option<SessionIndex>,
}

impl Siblings {
    fn links(&mut self, session: SessionIndex) -> &mut Links {
        let at = session.get() as usize;
        if at >= self.links.len() {
            self.links.resize(at + 1, Links::default());
        }
        &mut self.links[at]
    }

    /// Puts a session in front of a list.
    fn insert(&mut self, session: SessionIndex, head: Option<SessionIndex>) {
        *self.links(session) = Links { before: None, after: head };
        if let Some(head) = head {
            self.links(head).before = Some(session);
        }
    }

    /// Takes a session out of its list. Returns the session behind it.
    fn remove(&mut self, session: SessionIndex) -> Option<SessionIndex> {
        let Links { before, after } = std::mem::take(self.links(session));
        if let Some(before) = before {
            self.links(before).after = after;
        }
        if let Some(after) = after {
            self.links(after).before = before;
        }
        after
    }

    /// Checks the list that begins with `head`. Returns its length.
    fn check_list(&self, head: SessionIndex) -> usize {
        let (mut before, mut next, mut len) = (None, Some(head), 0);
        while let Some(session) = next {
            let links = self.links[session.get() as usize];
            assert_eq!(links.before, before, "a client endpoint's list of sessions is whole");
            (before, next, len) = (next, links.after, len + 1);
            assert!(len <= self.links.len(), "a list of sessions ends");
        }
        len
    }
}

/// So few client endpoints that pings to all of them cost little.
const FEW: usize = 16;

/// How often the capacity is halved for so many clients.
fn halvings(clients: usize) -> u32 {
    clients.next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ids::IdSource;
    use crate::protocol::tests::TestRoute;

    #[test]
    fn shares_add_up_to_no_more_than_the_capacity() {
        let mut grants = Grants::new(1_000_000, IdSource::new((1, 2)).table_hasher());
        let mut shrunk = 0;
        for client in 0..100u32 {
            shrunk += u32::from(grants.join(TestRoute(client), 0, SessionIndex::new(client)));
            assert!(grants.share() as usize * (client as usize + 1) <= 1_000_000);
        }
        assert_eq!(shrunk, 7, "once per doubling");
        let told = grants.tell();
        assert!(told.contains(&SessionIndex::new(0)), "the first client was told the whole");
        assert!(grants.tell().is_empty(), "once");
        for client in 0..100 {
            grants.leave(&TestRoute(client), 0, SessionIndex::new(client));
        }
        assert_eq!(grants.share(), 1_000_000);
    }

    #[test]
    fn the_share_that_is_promised_is_the_one_that_is_given() {
        let mut grants = Grants::new(1_000_000, IdSource::new((1, 2)).table_hasher());
        for client in 0..70 {
            let promised = grants.share_with(&TestRoute(client), 0);
            grants.join(TestRoute(client), 0, SessionIndex::new(client));
            assert_eq!(grants.share(), promised, "client {client}");
            assert_eq!(
                grants.share_with(&TestRoute(client), 0),
                promised,
                "one more session of it"
            );
            assert_eq!(grants.told(), promised / 1_024 * 1_024);
        }
    }

    #[test]
    fn a_client_that_joins_and_leaves_where_the_share_halves_has_no_client_told_twice() {
        let mut grants = Grants::new(1_000_000, IdSource::new((1, 2)).table_hasher());
        for client in 0..64 {
            grants.join(TestRoute(client), 0, SessionIndex::new(client));
        }
        grants.tell();
        let (mut told, mut shrunk) = (0, 0);
        for _ in 0..100 {
            shrunk += u32::from(grants.join(TestRoute(64), 0, SessionIndex::new(64)));
            told += grants.tell().len();
            grants.leave(&TestRoute(64), 0, SessionIndex::new(64));
        }
        assert_eq!((shrunk, told), (1, 64), "the 64 are told once");
        for client in 33..64 {
            grants.leave(&TestRoute(client), 0, SessionIndex::new(client));
        }
        assert_eq!(
            grants.share(),
            1_000_000 / 128,
            "made for 128, and more than a quarter is left"
        );
        grants.leave(&TestRoute(32), 0, SessionIndex::new(32));
        assert_eq!(grants.share(), 1_000_000 / 32);
    }

    #[test]
    fn a_client_endpoint_is_gone_with_its_last_session_whichever_that_is() {
        let mut grants = Grants::new(1_000, IdSource::new((1, 2)).table_hasher());
        grants.join(TestRoute(1), 0, SessionIndex::new(5));
        grants.join(TestRoute(1), 0, SessionIndex::new(9));
        grants.leave(&TestRoute(1), 0, SessionIndex::new(5));
        assert!(grants.clients.contains_key(&(TestRoute(1), 0)));
        grants.leave(&TestRoute(1), 0, SessionIndex::new(9));
        assert!(grants.clients.is_empty());
    }
}
