//! Checks that servers keep to the shares that they grant.

use super::World;
use crate::SimRoute;

/// The largest share of a client that sends nothing, in charge units, where shares are unequal.
const QUIET: u32 = 4_096;
/// Shares are equal in three cases: at most `FEWEST` client addresses have sessions, an equal share
/// is at least `AMPLE` charge units, or the capacity is below twice `AMPLE`.
const FEWEST: usize = 4;
const AMPLE: u32 = 32_768;

impl World<'_> {
    /// Checks that a server that shrinks a client's share tells the client so in the same turn, and
    /// that it reserves its last sessions for hosts with few sessions.
    pub(super) fn check_told(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let Some(rpc) = &node.rpc else { return };
        let sessions = rpc.sessions().1 as u64;
        let reserve = self.plan.endpoints[index].reserve;
        if let Some(client) = node.told.last_opened.take() {
            let own = rpc.host_sessions(&client);
            let left = u64::from(reserve.sessions) + 1 - sessions.min(reserve.sessions.into());
            if own > reserve.few as usize && left <= reserve.reserved.into() {
                self.oracle.blame(format!(
                    "gives one of its last {left} sessions to {client}, whose host already has {own}"
                ));
            }
        }
        if !node.turns.is_multiple_of((sessions / 3).max(1)) {
            return;
        }
        let oracle = &mut self.oracle;
        node.told.windows.retain(|(client, _), told| {
            let granted = rpc.granted(client);
            if granted.is_some_and(|granted| *told > granted) {
                oracle.blame(format!("grants {client} {granted:?} units, but has told it {told}"));
            }
            granted.is_some()
        });
    }

    /// Checks that clients that send nothing keep no share that other clients could use.
    pub(super) fn check_quiet(&mut self, index: usize) {
        let node = &self.nodes[index];
        let Some(rpc) = &node.rpc else { return };
        let mut clients: Vec<SimRoute> =
            node.told.windows.keys().map(|(client, _)| *client).collect();
        clients.dedup();
        clients.retain(|client| rpc.granted(client).is_some());
        let capacity = node.port.nic().rx_capacity / 4 * 3;
        let equal = capacity / clients.len().next_power_of_two() as u32;
        if clients.len() <= FEWEST || capacity < 2 * AMPLE || equal >= AMPLE {
            return;
        }
        for client in clients {
            let granted = rpc.granted(&client);
            if granted.is_some_and(|granted| granted > QUIET) {
                self.oracle.blame_endpoint(
                    index,
                    format!("{client} has sent nothing for long, but is granted {granted:?} units"),
                );
            }
        }
    }
}
