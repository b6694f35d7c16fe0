//! Shares follow the use of sockets.

use super::*;
use crate::protocol::ids::IdSource;
use crate::protocol::tests::TestRoute;

const MS: u64 = 1_000_000;
const CAPACITY: u32 = 239_616;

/// Grants of the receive queue of an untuned kernel, and the current time.
struct Test {
    grants: Grants<TestRoute>,
    now: Instant,
}

impl Test {
    /// A test with `clients` clients that have one session each.
    fn with(clients: u32) -> Self {
        let grants = Grants::new(CAPACITY, IdSource::new((1, 2)).table_hasher());
        let mut test = Self { grants, now: Instant::from_nanos(1) };
        (0..clients).for_each(|client| test.join(client));
        test.told();
        test
    }

    fn join(&mut self, client: u32) {
        self.grants.join(self.now, TestRoute(client), 0, SessionIndex::new(client));
    }

    fn leave(&mut self, client: u32) {
        self.grants.leave(&TestRoute(client), 0, SessionIndex::new(client));
    }

    fn share(&self, client: u32) -> u32 {
        self.grants.share(self.grants.by_route[&TestRoute(client)])
    }

    /// The client sends enough to become busy.
    fn uses(&mut self, client: u32) {
        let socket = self.grants.by_route[&TestRoute(client)];
        (0..2).for_each(|_| self.grants.sample(self.now, socket));
    }

    /// `millis` milliseconds pass. The `busy` clients send in a burst each millisecond.
    fn pass(&mut self, millis: u64, busy: &[u32]) {
        for _ in 0..millis {
            self.now = self.now.plus_nanos(MS);
            busy.iter().for_each(|&client| self.uses(client));
            self.grants.end_of_burst(self.now);
        }
        self.grants.check_invariants();
    }

    /// The sessions whose clients get a ping with their windows.
    fn told(&mut self) -> Vec<u32> {
        let mut told: Vec<_> = std::iter::from_fn(|| self.grants.next_untold()).collect();
        told.sort_unstable();
        told.into_iter().map(SessionIndex::get).collect()
    }
}

#[test]
fn a_busy_client_among_a_thousand_idle_ones_has_half_of_the_queue() {
    let mut test = Test::with(1_000);
    test.pass(2_000, &[]);
    test.pass(1, &[7]);
    assert_eq!(test.share(7), CAPACITY / 2, "the share grows within a millisecond");
    test.pass(2_000, &[7]);
    assert_eq!((test.share(7), test.share(8)), (CAPACITY / 2, 4_096));
}

#[test]
fn occasional_calls_do_not_make_a_client_busy() {
    let mut test = Test::with(1_000);
    for _ in 0..10 {
        test.pass(1_600, &[]);
        let socket = test.grants.by_route[&TestRoute(3)];
        test.grants.sample(test.now, socket);
    }
    test.pass(1, &[]);
    assert_eq!(test.share(3), 4_096);
}

#[test]
fn a_client_that_becomes_busy_waits_until_the_others_were_told() {
    let mut test = Test::with(100);
    test.pass(2_000, &[1]);
    test.told();
    test.pass(1, &[1, 2]);
    assert_eq!(test.told(), [1]);
    assert_eq!((test.share(1), test.share(2)), (CAPACITY / 4, 4_096));
    test.pass(1, &[1, 2]);
    assert_eq!((test.share(1), test.share(2)), (CAPACITY / 4, CAPACITY / 4));
    assert!(test.told().is_empty());
}

#[test]
fn a_client_that_becomes_quiet_is_told_before_the_others_have_more() {
    let mut test = Test::with(100);
    test.pass(2_000, &[1, 2]);
    test.told();
    let mut quiet_at = None;
    for at in 0..3_000 {
        test.pass(1, &[1]);
        if test.share(2) == 4_096 && quiet_at.is_none() {
            quiet_at = Some(at);
            assert_eq!(test.told(), [2]);
            assert_eq!(test.share(1), CAPACITY / 4);
        }
        if test.share(1) == CAPACITY / 2 {
            let quiet_at = quiet_at.expect("client 2 is quiet");
            assert!(quiet_at >= 900 && at >= quiet_at + 100, "{quiet_at}, {at}");
            return;
        }
    }
    panic!("client 1 never gets the share that client 2 gave up");
}

#[test]
fn all_busy_clients_share_the_whole_queue() {
    let mut test = Test::with(64);
    let all: Vec<u32> = (0..64).collect();
    test.pass(2_000, &all);
    assert!((0..64).all(|client| test.share(client) == CAPACITY / 64));
}

#[test]
fn few_clients_have_equal_shares_whatever_their_use() {
    let mut test = Test::with(4);
    assert_eq!(test.share(0), CAPACITY / 4);
    test.pass(2_000, &[1]);
    assert_eq!((test.share(1), test.share(2)), (CAPACITY / 4, CAPACITY / 4));
    test.leave(3);
    test.leave(2);
    assert_eq!(test.share(1), CAPACITY / 2, "a share among few clients grows immediately");
    test.leave(1);
    assert_eq!(test.share(0), CAPACITY);
}

#[test]
fn shares_become_equal_again_when_few_clients_remain() {
    let mut test = Test::with(100);
    test.pass(2_000, &[1]);
    test.told();
    for client in 4..100 {
        test.leave(client);
    }
    assert!((0..4).all(|client| test.share(client) == CAPACITY / 4));
    assert_eq!(test.told(), [1]);
    test.pass(2_000, &[]);
    assert!((0..4).all(|client| test.share(client) == CAPACITY / 4));
}

#[test]
fn a_client_that_joins_and_leaves_repeatedly_causes_no_repeated_pings() {
    let mut test = Test::with(64);
    let all: Vec<u32> = (0..64).collect();
    test.pass(2_000, &all);
    test.told();
    let mut told = 0;
    for _ in 0..10 {
        test.join(64);
        test.pass(3, &all);
        test.uses(64);
        test.pass(3, &all);
        told += test.told().len();
        test.leave(64);
        test.pass(500, &all);
    }
    assert_eq!(told, 64 + 65, "64 pings when the client joins, 65 when it becomes busy");
}

#[test]
fn endpoints_of_one_socket_divide_its_share() {
    let mut test = Test::with(1);
    for steer in 1..=255 {
        let index = SessionIndex::new(steer.into());
        test.grants.join(test.now, TestRoute(0), steer, index);
        test.grants.check_invariants();
    }
    assert_eq!(test.share(0), CAPACITY / 256);
    assert!(test.told().contains(&0), "the first endpoint was granted the whole share");
    test.grants.join(test.now, TestRoute(1), 0, SessionIndex::new(256));
    assert_eq!(test.share(1), CAPACITY / 2, "a socket with many endpoints counts as one");
    for steer in (1..=255).rev() {
        let index = SessionIndex::new(steer.into());
        test.grants.leave(&TestRoute(0), steer, index);
        test.grants.check_invariants();
    }
    assert_eq!(test.share(0), CAPACITY / 2);
}

#[test]
fn a_client_endpoint_is_removed_with_its_last_session() {
    let mut test = Test::with(0);
    for index in [5, 9] {
        test.grants.join(test.now, TestRoute(1), 0, SessionIndex::new(index));
    }
    test.grants.leave(&TestRoute(1), 0, SessionIndex::new(5));
    assert_eq!(test.grants.check_invariants(), 1);
    test.grants.leave(&TestRoute(1), 0, SessionIndex::new(9));
    assert!(test.grants.by_route.is_empty() && test.grants.busy.is_empty());
}

#[test]
fn the_least_share_is_the_share_if_all_clients_are_busy() {
    let mut test = Test::with(0);
    for client in 0..70_u32 {
        let expected = CAPACITY / (client + 1).next_power_of_two();
        assert_eq!(test.grants.least_share(&TestRoute(client), 0), expected);
        test.join(client);
        assert_eq!(test.grants.least_share(&TestRoute(client), 0), expected);
        assert_eq!(test.grants.least_share(&TestRoute(client), 1), expected / 2);
    }
}
