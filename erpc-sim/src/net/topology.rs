//! Topologies: hosts, switches and cables.

use super::SwitchConfig;

/// Packets that a host's transmit queue holds by default.
const NIC_PACKETS: u32 = 4_096;
/// The highest rate that a cable may have, in Mbit/s. The arithmetic does not overflow up to this
/// rate.
const MAX_RATE_MBPS: u64 = 1_000_000_000_000;
/// The longest delay that a cable may have, in ns: a little more than a year.
const MAX_DELAY_NANOS: u64 = 1 << 55;

/// A cable, the same in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Megabits per second, 1 to 10^12.
    pub rate_mbps: u64,
    /// Time from sending the last bit to its arrival, in ns. At most 2^55 ns, 417 days.
    pub delay_nanos: u64,
}

impl Link {
    /// The rate in bytes per second.
    #[must_use]
    pub fn byte_rate(&self) -> u64 {
        self.rate_mbps * (1_000_000 / 8)
    }
}

/// The number of a cable, below `Network::links()`. See [`Topology`] for the numbering.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u32);

/// An end of a cable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Node {
    Host(u32),
    Switch(u32),
}

/// One cable and its ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cable {
    pub(super) ends: [Node; 2],
    pub(super) link: Link,
}

/// Hosts, switches and the cables between them. They form a tree, so there is one path between any
/// two hosts, and packets between two hosts stay in order.
///
/// Numbers of cables: with a switch, host `h` has `LinkId(h)` ([`host_link`](Self::host_link)). In
/// two tiers, the cable from the switch of rack `r` to the spine is `LinkId(hosts + r)`
/// ([`uplink`](Self::uplink)). A pair has only `LinkId(0)`.
#[derive(Clone, Debug)]
pub struct Topology {
    hosts: u32,
    pub(super) nic_packets: u32,
    pub(super) switches: Vec<SwitchConfig>,
    pub(super) cables: Vec<Cable>,
}

impl Topology {
    /// Two hosts and one cable.
    ///
    /// # Panics
    /// Panics if the link is outside the bounds of [`Link`].
    #[must_use]
    pub fn pair(link: Link) -> Self {
        Self::new(2, Vec::new(), vec![Cable { ends: [Node::Host(0), Node::Host(1)], link }])
    }

    /// `hosts` around one switch.
    ///
    /// # Panics
    /// Panics if there are no hosts, or the link or the switch is outside the bounds of [`Link`] or
    /// [`SwitchConfig`].
    #[must_use]
    pub fn star(hosts: u32, link: Link, switch: SwitchConfig) -> Self {
        Self::star_of((0..hosts).map(|_| link), switch)
    }

    /// Hosts around one switch. Host `i` has the `i`-th cable of `links`.
    ///
    /// # Panics
    /// Panics as [`Self::star`] does.
    #[must_use]
    pub fn star_of(links: impl IntoIterator<Item = Link>, switch: SwitchConfig) -> Self {
        let cable = |(host, link)| Cable { ends: [Node::Host(host), Node::Switch(0)], link };
        let cables: Vec<_> = (0..).zip(links).map(cable).collect();
        Self::new(cables.len() as u32, vec![switch], cables)
    }

    /// Racks of hosts, each with a switch, and one spine above them. Host `h` is in rack `h /
    /// hosts_per_rack`. The cable from a rack to the spine has the rate of `hosts_per_rack /
    /// oversubscription` host cables, rounded down. All switches are equal. The CX4 cluster of
    /// Kalia's thesis has 5 racks of 20 hosts, and an oversubscription of 2.
    ///
    /// # Panics
    /// Panics if a number is 0, or a cable (to a host or to the spine) or the switch is outside the
    /// bounds of [`Link`] or [`SwitchConfig`].
    #[must_use]
    pub fn two_tier(
        racks: u32,
        hosts_per_rack: u32,
        oversubscription: u32,
        link: Link,
        switch: SwitchConfig,
    ) -> Self {
        assert!(oversubscription > 0, "an oversubscription of 0:1");
        let hosts = racks.checked_mul(hosts_per_rack).expect("the number of hosts fits 32 bits");
        let spine = racks;
        let up = Link {
            rate_mbps: u64::from(hosts_per_rack).saturating_mul(link.rate_mbps)
                / u64::from(oversubscription),
            ..link
        };
        let down = (0..hosts).map(|host| Cable {
            ends: [Node::Host(host), Node::Switch(host / hosts_per_rack)],
            link,
        });
        let up = (0..racks)
            .map(|rack| Cable { ends: [Node::Switch(rack), Node::Switch(spine)], link: up });
        Self::new(hosts, vec![switch; racks as usize + 1], down.chain(up).collect())
    }

    fn new(hosts: u32, switches: Vec<SwitchConfig>, cables: Vec<Cable>) -> Self {
        assert!(hosts > 0, "a network without hosts");
        for Cable { link, .. } in &cables {
            assert!((1..=MAX_RATE_MBPS).contains(&link.rate_mbps), "a rate of {}", link.rate_mbps);
            assert!(link.delay_nanos <= MAX_DELAY_NANOS, "a delay of {} ns", link.delay_nanos);
        }
        switches.iter().for_each(SwitchConfig::check);
        Self { hosts, nic_packets: NIC_PACKETS, switches, cables }
    }

    /// Limits the transmit queue of every host to `packets`, including the packet that is being
    /// sent. Default 4,096. Packets that find it full are dropped.
    ///
    /// # Panics
    /// Panics if `packets` is 0.
    #[must_use]
    pub fn nic_packets(mut self, packets: u32) -> Self {
        assert!(packets > 0, "a transmit queue without room");
        self.nic_packets = packets;
        self
    }

    /// The number of hosts. They are numbered from 0.
    #[must_use]
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// The number of cables.
    #[must_use]
    pub fn links(&self) -> u32 {
        self.cables.len() as u32
    }

    /// The cable of `host`.
    ///
    /// # Panics
    /// Panics if there is no such host.
    #[must_use]
    pub fn host_link(&self, host: u32) -> LinkId {
        assert!(host < self.hosts, "no host {host}");
        // The two hosts of a pair share their cable.
        LinkId(host.min(self.links() - 1))
    }

    /// The rate of `host`'s cable, in bytes per second.
    ///
    /// # Panics
    /// Panics if there is no such host.
    #[must_use]
    pub fn host_rate(&self, host: u32) -> u64 {
        self.cables[self.host_link(host).0 as usize].link.byte_rate()
    }

    /// The one-way delay of the two hosts' own cables, in ns: a lower bound for packets between
    /// them.
    #[must_use]
    pub fn least_delay(&self, from: u32, to: u32) -> u64 {
        let delay = |host| self.cables[self.host_link(host).0 as usize].link.delay_nanos;
        match (from == to, self.switches.is_empty()) {
            (true, _) => 0,
            (false, true) => delay(from),
            (false, false) => delay(from) + delay(to),
        }
    }

    /// The cable from the switch of `rack` to the spine. `None` in a pair or a star, and if there
    /// is no such rack.
    #[must_use]
    pub fn uplink(&self, rack: u32) -> Option<LinkId> {
        let link = self.hosts.checked_add(rack)?;
        (link < self.links()).then_some(LinkId(link))
    }

    /// The ends of a cable in words, such as `host 3 - switch 0`.
    ///
    /// # Panics
    /// Panics if there is no such cable.
    #[must_use]
    pub fn link_in_words(&self, link: LinkId) -> String {
        let end = |node| match node {
            Node::Host(host) => format!("host {host}"),
            Node::Switch(switch) => format!("switch {switch}"),
        };
        self.cables[link.0 as usize].ends.map(end).join(" - ")
    }

    /// For each switch and host, the cable end through which the switch reaches the host. The ends
    /// of cable `c` have the numbers `2c` and `2c + 1`; the first sends from `ends[0]`.
    pub(super) fn routes(&self) -> Vec<Vec<u32>> {
        const UNKNOWN: u32 = u32::MAX;
        // For each switch, the cable ends that lead to other switches.
        let mut neighbours = vec![Vec::new(); self.switches.len()];
        for (port, node, peer) in self.ports() {
            if let (Node::Switch(switch), Node::Switch(peer)) = (node, peer) {
                neighbours[switch as usize].push((port, peer));
            }
        }
        let mut routes = vec![vec![UNKNOWN; self.hosts as usize]; self.switches.len()];
        let mut reached = Vec::new();
        for (port, node, peer) in self.ports() {
            let (Node::Switch(switch), Node::Host(host)) = (node, peer) else { continue };
            routes[switch as usize][host as usize] = port;
            // Walk away from the host, from switch to switch. The way back is the other end of each
            // cable.
            reached.push(switch);
            while let Some(near) = reached.pop() {
                for (port, far) in &neighbours[near as usize] {
                    let way = &mut routes[*far as usize][host as usize];
                    if *way == UNKNOWN {
                        *way = port ^ 1;
                        reached.push(*far);
                    }
                }
            }
        }
        assert!(
            routes.iter().flatten().all(|port| *port != UNKNOWN),
            "a switch cannot reach a host"
        );
        routes
    }

    /// All cable ends: number, the node that sends from there, the node at the other end.
    pub(super) fn ports(&self) -> impl Iterator<Item = (u32, Node, Node)> {
        self.cables.iter().zip(0u32..).flat_map(|(cable, index)| {
            let [a, b] = cable.ends;
            [(2 * index, a, b), (2 * index + 1, b, a)]
        })
    }
}
