//! Plans of [`Scenario::Path`](crate::Scenario::Path): near clients of a server, a client that
//! loses packets, and a far client.
//!
//! First, all near clients call at the same time and share the server's link. Then the lossy client
//! calls. The throughput of the far client depends on its credits. It has two rounds of calls with
//! a pause between them; each round has many packets, then few for a while, then many again.

use erpc_core::protocol::{CongestionControl, DEFAULT_SLOTS, EndpointConfig};
use erpc_core::time::Instant;
use erpc_core::transport::fault::Faults;
use erpc_core::transport::{Link as KnownLink, MAX_BURST};

use super::{MOST_CREDITS, MS, Plan, SECOND, Sizes, Turns};
use crate::Random;
use crate::net::{Link, SwitchConfig, Topology};
use crate::scenario::PATH_HOSTS;
use crate::transport::Nic;

/// The server's host.
pub(crate) const SERVER: u32 = 0;
/// The far client (the host after the server's), and the client that loses packets (the last host).
pub(crate) const FAR: u32 = 1;
pub(crate) const LOSSY: u32 = PATH_HOSTS - 1;
/// The delay of the lossy client's cable in ns, and the client's credits. The credits are fewer
/// than the packets that the path holds, so that only losses, and no queue, signal congestion.
const LOSSY_DELAY: u64 = 200_000;
const LOSSY_CREDITS: u16 = 16;
/// The fraction of the lossy client's sent packets that are lost: at least one packet in most round
/// trips.
const LOST: f64 = 0.08;
/// Length of a datagram in bytes, and of the longest message in packets.
const DATAGRAM: usize = 1_472;
const LONGEST: u32 = 400;
/// Capacity of a receive queue in packets, more than the credits of all sessions.
const QUEUED: u32 = 16_384;
/// The first credits of near sessions, and the most credits that the far client allows. The server
/// allows at most 256 or 1,024.
const NEAR_CREDITS: u16 = 32;
const FAR_CREDITS: u16 = 1_024;
/// Calls that a client has under way.
const OUTSTANDING: u32 = 4;
/// The far client's calls: long calls, then short calls, then long calls again. The short calls
/// take enough round trips for the session to lose all credits beyond the first ones.
const TURNS: Turns = Turns { long: 6, short: 120 };
/// The calls of a near client and of the lossy client, all of them long.
const NEAR_CALLS: u32 = 3;
/// The start times of rounds, in ns: after the handshakes, and after the previous rounds.
const NEAR_ROUND: u64 = SECOND + 50 * MS;
const LOSSY_ROUND: u64 = SECOND + 350 * MS;
const FAR_ROUNDS: [u64; 2] = [SECOND + 900 * MS, SECOND + 2_600 * MS];

/// Turns a plan into a plan of paths.
pub(super) fn shape(plan: &mut Plan, random: &mut Random) {
    let rate_mbps = *random.pick(&[1_000, 10_000, 10_000, 25_000]);
    let far = *random.pick(&[600_000, 600_000, 2 * MS, 5 * MS]);
    let near = *random.pick(&[1_000, 5_000, 10_000]);
    let links = (0..PATH_HOSTS).map(|host| {
        let delay_nanos = match host {
            SERVER => 500,
            FAR => far,
            LOSSY => LOSSY_DELAY,
            _ => near,
        };
        Link { rate_mbps, delay_nanos }
    });
    plan.topology = Topology::star_of(links, SwitchConfig::default());
    let packet = DATAGRAM as u32 - 28;
    plan.sizes = Sizes { packet, longest: LONGEST * packet, short_percent: 0, turns: Some(TURNS) };
    plan.outstanding = OUTSTANDING;
    let model = plan.endpoints[0].nic;
    let rx_capacity = QUEUED * model.charge.charge(DATAGRAM);
    let (is_known, is_known_far) = (random.percent(20), random.percent(40));
    let is_free = random.percent(30);
    let (far_credits, granted) = (*random.pick(&[8, 32]), *random.pick(&[256, 256, 1_024]));
    for endpoint in &mut plan.endpoints {
        let (host, serves) = (endpoint.route.host, !endpoint.group.is_empty());
        let (is_far, is_lossy) = (host == FAR, host == LOSSY);
        let is_known = if is_far { is_known_far } else { is_known };
        let link = KnownLink::Rate(plan.topology.host_rate(0));
        endpoint.nic = Nic {
            max_datagram: DATAGRAM,
            inline: DATAGRAM,
            rx_capacity,
            burst: MAX_BURST,
            dma_nanos: 0,
            link: if is_known { link } else { KnownLink::Unknown },
            ..model
        };
        let control = match is_far && is_free {
            true => CongestionControl::None,
            false => CongestionControl::default(),
        };
        let (first, most) = match host {
            _ if serves => (NEAR_CREDITS, granted),
            FAR => (far_credits, FAR_CREDITS),
            LOSSY => (LOSSY_CREDITS, LOSSY_CREDITS),
            _ => (NEAR_CREDITS, MOST_CREDITS),
        };
        endpoint.config = EndpointConfig::new()
            .credits(first)
            .max_credits(most)
            .max_message(plan.sizes.longest)
            .congestion(control);
        (endpoint.first_credits, endpoint.most_credits) = (first, most);
        endpoint.slots = DEFAULT_SLOTS as u8;
        let at = Instant::from_nanos;
        endpoint.rounds = match host {
            _ if serves => Vec::new(),
            FAR => FAR_ROUNDS.map(|nanos| (at(nanos), 2 * TURNS.long + TURNS.short)).to_vec(),
            LOSSY => vec![(at(LOSSY_ROUND), NEAR_CALLS)],
            _ => vec![(at(NEAR_ROUND), NEAR_CALLS)],
        };
        if is_lossy {
            endpoint.faults = (Faults::none(), Faults::none().drop(LOST));
        }
    }
}
