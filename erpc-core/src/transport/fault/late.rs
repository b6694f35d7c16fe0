//! Packets that are held back.

use std::collections::BTreeMap;

use super::packets::Owned;
use crate::time::Instant;

/// Maximum number of packets held back in one direction. It is large, because a delay spike of 10 s
/// holds many packets back.
const MOST: usize = 65_536;

/// Packets in order of due time, then of arrival.
#[derive(Debug)]
pub(super) struct Late<R> {
    packets: BTreeMap<(Instant, u64), Owned<R>>,
    serial: u64,
}

impl<R> Late<R> {
    pub(super) fn new() -> Self {
        Self { packets: BTreeMap::new(), serial: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Holds a packet back.
    ///
    /// # Errors
    /// The packet, if the limit is reached.
    pub(super) fn hold(&mut self, due: Instant, packet: Owned<R>) -> Result<(), Owned<R>> {
        if self.packets.len() == MOST {
            return Err(packet);
        }
        self.serial += 1;
        let before = self.packets.insert((due, self.serial), packet);
        debug_assert!(before.is_none(), "a serial number was used twice");
        Ok(())
    }

    /// When the next packet is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.packets.first_key_value().map(|((due, _), _)| *due)
    }

    /// Removes the next packet that is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Owned<R>> {
        let next = self.packets.first_entry()?;
        (next.key().0 <= now).then(|| next.remove())
    }
}
