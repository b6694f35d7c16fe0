//! What clients may have on their way to this endpoint, so that its receive queue never overflows.

use std::collections::HashMap;

use crate::protocol::ids::KeyedHasher;
use crate::protocol::index::SessionIndex;
use crate::transport::Route;
use crate::wire::ReplyInfo;

/// No session.
pub(super) const NONE: SessionIndex = SessionIndex::new(u32::MAX);

struct Grant {
    /// One of its sessions; the others follow as its [`Siblings`](super::slot::Siblings).
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
    /// What each client endpoint may have on its way, worked out when clients come and go.
    share: u32,
    /// The share as replies tell it.
    info: ReplyInfo,
    clients: HashMap<(R, u8), Grant, KeyedHasher>,
}

impl<R: Route> Grants<R> {
    pub(super) fn new(capacity: u32, hasher: KeyedHasher) -> Self {
        Self {
            capacity,
            halvings: 0,
            share: capacity,
            info: ReplyInfo::new(0, capacity),
            clients: HashMap::with_hasher(hasher),
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
        self.info.window().unwrap_or(self.share)
    }

    /// What the share will be once a session of the client endpoint has opened.
    pub(super) fn share_with(&self, route: &R, steer: u8) -> u32 {
        let new = usize::from(!self.clients.contains_key(&(*route, steer)));
        self.capacity >> self.halvings.max(halvings(self.clients.len() + new))
    }

    /// Who comes may make the others' share smaller at once; it grows again only when a quarter is left
    /// of those that it is made for, unless they are few. So many have to go between two rounds of
    /// pings, and nobody can make a server tell all of them over and over by coming and going.
    fn divide(&mut self) {
        let needed = halvings(self.clients.len());
        let few = self.clients.len() <= FEW;
        if needed > self.halvings || few || needed + 1 < self.halvings {
            self.halvings = needed;
        }
        self.share = self.capacity >> self.halvings;
        self.info = ReplyInfo::new(0, self.share);
    }

    /// The `aux` word of a reply to a request that took so long; `marked` if it echoes a congestion mark.
    #[inline]
    pub(super) fn reply_info(&self, processing_nanos: u64, marked: bool) -> u32 {
        self.info.after(processing_nanos).with_mark(marked).to_u32()
    }

    /// Session `index` of the client endpoint opens. Returns whether the others' share has shrunk, and the
    /// session that `index` now stands in front of, [`NONE`] if it is the client endpoint's only one.
    pub(super) fn join(
        &mut self,
        route: R,
        steer: u8,
        index: SessionIndex,
    ) -> (bool, SessionIndex) {
        let before = self.share();
        let grant = self.clients.entry((route, steer)).or_insert(Grant { head: NONE, told: 0 });
        let after = std::mem::replace(&mut grant.head, index);
        self.divide();
        let share = self.share;
        if let Some(grant) = self.clients.get_mut(&(route, steer)) {
            grant.told = share;
        }
        (share < before, after)
    }

    /// Session `index` of the client endpoint has ended, which stood in front of `after`.
    pub(super) fn leave(&mut self, route: &R, steer: u8, index: SessionIndex, after: SessionIndex) {
        if let Some(grant) = self.clients.get_mut(&(*route, steer)) {
            if grant.head == index {
                grant.head = after;
            }
            if grant.head == NONE {
                self.clients.remove(&(*route, steer));
                let before = self.share;
                self.divide();
                if self.share > before {
                    // The next reply to anybody tells.
                    self.clients.values_mut().for_each(|grant| grant.told = self.share);
                }
            }
        }
    }

    /// A session of each client endpoint, the first of its list.
    pub(super) fn heads(&self) -> impl Iterator<Item = SessionIndex> + '_ {
        self.clients.values().map(|grant| grant.head)
    }

    /// A session of each client endpoint that was told more than its share; from now on they count as
    /// told.
    pub(super) fn tell(&mut self) -> Vec<SessionIndex> {
        let share = self.share;
        let told = |grant: &mut Grant| std::mem::replace(&mut grant.told, share) > share;
        self.clients.values_mut().filter_map(|grant| told(grant).then_some(grant.head)).collect()
    }
}

/// Clients that it costs nothing worth saving to tell.
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
            shrunk += u32::from(grants.join(TestRoute(client), 0, SessionIndex::new(client)).0);
            assert!(grants.share() as usize * (client as usize + 1) <= 1_000_000);
        }
        assert_eq!(shrunk, 7, "once per doubling");
        let told = grants.tell();
        assert!(told.contains(&SessionIndex::new(0)), "the first client was told the whole");
        assert!(grants.tell().is_empty(), "once");
        for client in 0..100 {
            grants.leave(&TestRoute(client), 0, SessionIndex::new(client), NONE);
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
    fn who_comes_and_goes_where_the_share_halves_has_nobody_told_twice() {
        let mut grants = Grants::new(1_000_000, IdSource::new((1, 2)).table_hasher());
        for client in 0..64 {
            grants.join(TestRoute(client), 0, SessionIndex::new(client));
        }
        grants.tell();
        let (mut told, mut shrunk) = (0, 0);
        for _ in 0..100 {
            shrunk += u32::from(grants.join(TestRoute(64), 0, SessionIndex::new(64)).0);
            told += grants.tell().len();
            grants.leave(&TestRoute(64), 0, SessionIndex::new(64), NONE);
        }
        assert_eq!((shrunk, told), (1, 64), "the 64 are told once");
        for client in 33..64 {
            grants.leave(&TestRoute(client), 0, SessionIndex::new(client), NONE);
        }
        assert_eq!(
            grants.share(),
            1_000_000 / 128,
            "made for 128, and more than a quarter is left"
        );
        grants.leave(&TestRoute(32), 0, SessionIndex::new(32), NONE);
        assert_eq!(grants.share(), 1_000_000 / 32);
    }

    #[test]
    fn a_client_endpoint_is_gone_with_its_last_session_whichever_that_is() {
        let mut grants = Grants::new(1_000, IdSource::new((1, 2)).table_hasher());
        assert_eq!(grants.join(TestRoute(1), 0, SessionIndex::new(5)).1, NONE);
        assert_eq!(grants.join(TestRoute(1), 0, SessionIndex::new(9)).1, SessionIndex::new(5));
        grants.leave(&TestRoute(1), 0, SessionIndex::new(5), NONE);
        assert!(grants.clients.contains_key(&(TestRoute(1), 0)));
        grants.leave(&TestRoute(1), 0, SessionIndex::new(9), NONE);
        assert!(grants.clients.is_empty());
    }
}
