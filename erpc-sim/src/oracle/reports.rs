//! Rules for reports that packets were not delivered: a forged report ends no session whose server
//! is alive and answers, and true reports end sessions quickly.

use std::collections::{BTreeMap, BTreeSet};

use erpc_core::protocol::MAX_RTO;
use erpc_core::time::Instant;
use erpc_core::transport::NetworkError;

use super::{Oracle, SessionRecord};
use crate::plan::Plan;
use crate::{Feature, SimRoute};

/// After a report, the client gives a live server at least this time to answer, in ns. It is the
/// time that the inquiry's four pings take.
const LEAST_SILENCE: u64 = 48_000_000;

/// A session must end before more than this many of its pings in a row have been returned, unless
/// the first of them was returned less than [`LONGEST_INQUIRY`] ago. An inquiry sends at most 4
/// pings to a dead server. A session also sends pings when calls time out, and every few
/// milliseconds if its ping interval is short.
const MOST_RETURNED: usize = 16;

/// The longest inquiry about a dead server whose pings are all returned, in ns. The client waits
/// for one timeout of a call, and for a second one if all reports of the first one came in its
/// first 25 ms. Half as much is allowed for a loop that runs late.
const LONGEST_INQUIRY: u64 = 3 * MAX_RTO;

/// The times at which endpoints die and live again, and the pings that were returned.
#[derive(Debug)]
pub(super) struct Deaths {
    is_reported: bool,
    /// For each endpoint, when it last came to life, and whether it has lived before. `None` while
    /// it is dead.
    lives: BTreeMap<SimRoute, Option<(Instant, bool)>>,
    /// The sessions that are open at their clients.
    open: BTreeSet<SessionKey>,
    /// For each open session, its pings that were returned after the last packet of the server
    /// arrived at the client.
    returned: BTreeMap<SessionKey, ReturnedPings>,
    /// For each endpoint and sender, when the last packet arrived. Empty in runs without reports.
    arrivals: BTreeMap<(usize, SimRoute), Instant>,
}

/// The client, the server, and the session's id at the server.
type SessionKey = (usize, SimRoute, u64);

#[derive(Debug)]
struct ReturnedPings {
    first_at: Instant,
    nonces: BTreeSet<u32>,
}

impl Deaths {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            is_reported: plan.features.has(Feature::Reports),
            lives: BTreeMap::new(),
            open: BTreeSet::new(),
            returned: BTreeMap::new(),
            arrivals: BTreeMap::new(),
        }
    }

    /// Whether the endpoint has been alive since `since`.
    fn has_lived_since(&self, route: &SimRoute, since: Instant) -> bool {
        match self.lives.get(route) {
            Some(&Some((born, is_reborn))) => !is_reborn || born <= since,
            // `Some(None)`: the endpoint is dead. `None`: no endpoint has ever lived at this
            // address.
            Some(None) | None => false,
        }
    }
}

impl Oracle {
    pub(crate) fn endpoint_lives(&mut self, index: usize) {
        let route = self.routes[index];
        let is_reborn = self.deaths.lives.contains_key(&route);
        self.deaths.lives.insert(route, Some((self.now, is_reborn)));
        let returned = &mut self.deaths.returned;
        returned.retain(|(client, server, _), _| *client != index && *server != route);
    }

    pub(crate) fn endpoint_dies(&mut self, index: usize) {
        self.deaths.lives.insert(self.routes[index], None);
        self.deaths.open.retain(|(client, ..)| *client != index);
    }

    fn session_key(&self, session: u32) -> Option<SessionKey> {
        let SessionRecord { of, address, .. } = self.sessions[session as usize];
        Some((of, address.server, address.to_server?))
    }

    /// The session is open at its client from now on.
    pub(super) fn begin_pings(&mut self, session: u32) {
        self.deaths.open.extend(self.session_key(session));
    }

    /// The session has ended at its client. Packets of it may still be on their way: those that
    /// waited in a stopped link, and replayed ones. Their reports say nothing about the client.
    pub(super) fn end_pings(&mut self, session: u32) {
        if let Some(key) = self.session_key(session) {
            self.deaths.open.remove(&key);
            self.deaths.returned.remove(&key);
        }
    }

    /// Endpoint `index` gets a packet of `from`.
    #[inline]
    pub(crate) fn hears(&mut self, index: usize, from: SimRoute) {
        let Deaths { is_reported, returned, arrivals, .. } = &mut self.deaths;
        if *is_reported {
            arrivals.insert((index, from), self.now);
        }
        if !returned.is_empty() {
            returned.retain(|(client, server, _), _| (*client, *server) != (index, from));
        }
    }

    /// Whether the network has delivered no packet of the session's client since the client has
    /// heard the server, because queues are long or full. Then a server that is alive answers no
    /// ping in time, and a forged report ends the session.
    pub(super) fn has_reached_no_server(&self, session: u32) -> bool {
        let SessionRecord { of, address, heard_at, .. } = self.sessions[session as usize];
        let Some(server) = self.routes.iter().position(|route| *route == address.server) else {
            return false;
        };
        let arrived = self.deaths.arrivals.get(&(server, self.routes[of]));
        arrived.is_none_or(|at| *at < heard_at)
    }

    /// Endpoint `index` gets a true report: a ping of its session with this id at `server` was
    /// returned.
    pub(crate) fn ping_is_returned(&mut self, index: usize, server: SimRoute, id: u64, nonce: u32) {
        let (now, key) = (self.now, (index, server, id));
        if !self.deaths.open.contains(&key) {
            return;
        }
        let returned = self
            .deaths
            .returned
            .entry(key)
            .or_insert_with(|| ReturnedPings { first_at: now, nonces: BTreeSet::new() });
        returned.nonces.insert(nonce);
        let count = returned.nonces.len();
        if count > MOST_RETURNED && now.nanos_since(returned.first_at) >= LONGEST_INQUIRY {
            let what = format!(
                "a session to {server} goes on after {count} of its pings were returned and nothing came from there"
            );
            self.blame_endpoint(index, what);
        }
    }

    /// Checks that a session may end because of a report.
    pub(super) fn check_unreachable(&mut self, session: u32, error: NetworkError, what: &str) {
        let record = self.sessions[session as usize];
        if !self.deaths.is_reported {
            return self
                .blame_session(session, format!("{what}, and no packet was returned: {error}"));
        }
        let server = record.address.server;
        let lived = self.deaths.has_lived_since(&server, record.heard_at);
        let silence = self.now.nanos_since(record.heard_at);
        if lived && silence < LEAST_SILENCE && self.clocks_are_true {
            self.blame_session(
                session,
                format!("{what}, although its server {server} is alive and was heard {silence} ns ago: {error}"),
            );
        }
    }
}
