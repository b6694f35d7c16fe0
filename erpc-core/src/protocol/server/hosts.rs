//! Limits of sessions and sockets per client host.

use std::collections::HashMap;

use crate::mutants::mutant;
use crate::protocol::config::EndpointConfig;
use crate::protocol::ids::KeyedHasher;
use crate::wire::control::Refusal;

/// Counts sessions and sockets by host, and keeps one host from taking all sessions.
///
/// A host is an IPv4 address or an IPv6 network of 64 bits: see
/// [`Route::host`](crate::transport::Route::host). A malicious client can use any number of ports,
/// but not any number of addresses.
pub(super) struct Hosts {
    hosts: HashMap<u64, Host, KeyedHasher>,
}

/// The sessions and sockets of one host.
#[derive(Clone, Copy, Default)]
struct Host {
    sessions: u32,
    /// Number of ports from which the host has sessions.
    sockets: u32,
}

impl Hosts {
    pub(super) fn new(hasher: KeyedHasher) -> Self {
        Self { hosts: HashMap::with_hasher(hasher) }
    }

    /// Whether a host may open one more session while `sessions` are open in all. `is_new_socket`
    /// says that the host has no session from that socket yet.
    ///
    /// # Errors
    /// [`Refusal::Full`] or [`Refusal::HostFull`], the limit that is reached.
    pub(super) fn admit(
        &self,
        config: &EndpointConfig,
        sessions: usize,
        host: u64,
        is_new_socket: bool,
    ) -> Result<(), Refusal> {
        let Host { sessions: own, sockets } = self.hosts.get(&host).copied().unwrap_or_default();
        let left = (config.max_sessions as usize).saturating_sub(sessions);
        let (reserved, few) = config.reserve();
        if left == 0 {
            return Err(Refusal::Full);
        }
        let has_much = own >= few && left <= reserved as usize;
        let has_all = own >= config.host_sessions()
            || is_new_socket && sockets >= config.max_sockets_per_host;
        if has_all && !mutant!(HostsNotCounted) {
            return Err(Refusal::HostFull);
        }
        if has_much && !mutant!(ReserveGivenAway) {
            return Err(Refusal::HostFull);
        }
        Ok(())
    }

    /// Counts a session of the host that opens.
    pub(super) fn join(&mut self, host: u64, is_new_socket: bool) {
        let host = self.hosts.entry(host).or_default();
        host.sessions += 1;
        host.sockets += u32::from(is_new_socket);
    }

    /// Removes a session of the host that has ended.
    pub(super) fn leave(&mut self, host: u64, was_last_of_socket: bool) {
        let Some(entry) = self.hosts.get_mut(&host) else { return };
        if mutant!(HostNeverLeaves) {
            return;
        }
        entry.sessions -= 1;
        entry.sockets -= u32::from(was_last_of_socket);
        if entry.sessions == 0 {
            self.hosts.remove(&host);
        }
    }

    /// Number of open sessions of the host.
    pub(super) fn sessions(&self, host: u64) -> usize {
        self.hosts.get(&host).map_or(0, |host| host.sessions as usize)
    }

    /// Returns the numbers of sessions and of sockets.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub(super) fn check_invariants(&self, config: &EndpointConfig) -> (usize, usize) {
        for host in self.hosts.values() {
            assert!(
                host.sockets >= 1 && host.sessions >= host.sockets,
                "a host has sessions from each of its sockets"
            );
            assert!(
                host.sessions <= config.host_sessions(),
                "a host's sessions are within the limit"
            );
            assert!(
                host.sockets <= config.max_sockets_per_host,
                "a host's sockets are within the limit"
            );
        }
        let sum = |of: fn(&Host) -> u32| self.hosts.values().map(|host| of(host) as usize).sum();
        (sum(|host| host.sessions), sum(|host| host.sockets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ids::IdSource;

    fn hosts() -> Hosts {
        Hosts::new(IdSource::new((1, 2)).table_hasher())
    }

    /// Opens sessions of the host until one is refused, each from a socket of its own if `sockets`.
    /// Returns how many opened, and the reason of the refusal.
    fn fill(
        hosts: &mut Hosts,
        config: &EndpointConfig,
        host: u64,
        sockets: bool,
    ) -> (usize, Refusal) {
        for opened in 0.. {
            let total = hosts.check_invariants(config).0;
            let is_new_socket = sockets || opened == 0;
            match hosts.admit(config, total, host, is_new_socket) {
                Ok(()) => hosts.join(host, is_new_socket),
                Err(reason) => return (opened, reason),
            }
        }
        unreachable!("no host may open an endless number of sessions")
    }

    #[test]
    fn the_last_quarter_is_reserved_for_hosts_with_few_sessions() {
        let (mut hosts, config) = (hosts(), EndpointConfig::new().max_sessions(1_000));
        assert_eq!(fill(&mut hosts, &config, 1, false), (750, Refusal::HostFull));
        assert_eq!(fill(&mut hosts, &config, 2, false), (8, Refusal::HostFull));
        let mut last = Refusal::HostFull;
        for stranger in 3..40 {
            last = fill(&mut hosts, &config, stranger, false).1;
        }
        assert_eq!(last, Refusal::Full, "250 sessions are 8 each for 31 hosts, and 2 more");
        assert_eq!(hosts.check_invariants(&config).0, 1_000);
    }

    #[test]
    fn many_clients_behind_one_address_are_served_if_nothing_is_reserved() {
        let config = EndpointConfig::new().max_sessions(1_000).reserved_sessions(0, 0);
        let mut hosts = hosts();
        assert_eq!(fill(&mut hosts, &config, 1, true), (1_000, Refusal::Full));
    }

    #[test]
    fn the_settings_limit_a_hosts_sessions_and_sockets() {
        let new = || EndpointConfig::new().max_sessions(1_000);
        let config = new().max_sessions_per_host(20).max_sockets_per_host(10);
        let mut hosts = hosts();
        assert_eq!(fill(&mut hosts, &config, 1, true), (10, Refusal::HostFull));
        assert_eq!(fill(&mut hosts, &config, 2, false), (20, Refusal::HostFull));
        hosts.leave(2, false);
        assert_eq!(hosts.admit(&config, 29, 2, false), Ok(()));
        (0..10).for_each(|_| hosts.leave(1, true));
        assert_eq!(hosts.sessions(1), 0);
        assert_eq!(
            fill(&mut hosts, &config, 1, true),
            (10, Refusal::HostFull),
            "the host can use all its sockets again"
        );
    }
}
