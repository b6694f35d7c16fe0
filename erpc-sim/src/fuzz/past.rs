//! What a hostile peer has sent, to be sent again: as it was, or with bytes changed.

use std::collections::VecDeque;

use super::input::Input;
use crate::SimRoute;
use crate::hostile::craft;

/// Packets that are remembered.
const REMEMBERED: usize = 16;

/// An address that no attacker receives at.
pub(super) const STRANGER: SimRoute = SimRoute::new(3, 3);

/// The last packets that were sent, the oldest first, with the addresses they came from.
#[derive(Default)]
pub(super) struct Past(VecDeque<(SimRoute, Vec<u8>)>);

impl Past {
    /// Remembers a packet, in the memory of the one that it makes forgotten.
    pub(super) fn note(&mut self, from: SimRoute, packet: &[u8]) {
        let oldest = if self.0.len() == REMEMBERED { self.0.pop_front() } else { None };
        let (_, mut copy) = oldest.unwrap_or((from, Vec::new()));
        copy.clear();
        copy.extend_from_slice(packet);
        self.0.push_back((from, copy));
    }

    /// Writes an earlier packet to `out`, and returns where it comes from this time.
    pub(super) fn again(&self, input: &mut Input<'_>, out: &mut Vec<u8>) -> Option<SimRoute> {
        let at = usize::from(input.u8());
        let (from, packet) = self.0.get(at % REMEMBERED)?;
        out.clone_from(packet);
        Some(if at & 0x80 == 0 { *from } else { STRANGER })
    }

    /// The same with some bytes changed, and sealed again: an attacker can compute checksums.
    pub(super) fn changed(&self, input: &mut Input<'_>, out: &mut Vec<u8>) -> Option<SimRoute> {
        let (from, packet) = self.0.get(usize::from(input.u8()) % REMEMBERED)?;
        out.clone_from(packet);
        for _ in 0..=input.u8() % 4 {
            let (place, change) = (usize::from(input.u8()), input.u8());
            if let Some(byte) = out.get_mut(place) {
                *byte ^= change;
            }
        }
        craft::seal_again(out);
        Some(*from)
    }
}
