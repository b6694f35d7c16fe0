//! Packets that are held back.

/// A packet is held back for at most so many bursts (receiving) or flushes (sending), should the later
/// packets that it waits for not come.
const PATIENCE: u64 = 16;

/// A packet of ours.
#[derive(Clone)]
pub(super) struct Owned<R> {
    pub(super) route: R,
    pub(super) bytes: Vec<u8>,
}

/// Packets that are held back.
pub(super) struct Late<R> {
    waiting: Vec<(Due, Owned<R>)>,
    pub(super) packets: u64,
    pub(super) turns: u64,
}

/// When a late packet goes on: whichever count is reached first.
struct Due {
    packets: u64,
    turns: u64,
}

impl<R> Late<R> {
    pub(super) fn new() -> Self {
        Self { waiting: Vec::new(), packets: 0, turns: 0 }
    }

    pub(super) fn hold(&mut self, overtaken_by: u32, packet: Owned<R>) {
        let due =
            Due { packets: self.packets + u64::from(overtaken_by), turns: self.turns + PATIENCE };
        self.waiting.push((due, packet));
    }

    /// The next packet that has waited long enough.
    pub(super) fn take_due(&mut self) -> Option<Owned<R>> {
        let due = |(due, _): &(Due, _)| due.packets <= self.packets || due.turns <= self.turns;
        let at = self.waiting.iter().position(due)?;
        Some(self.waiting.remove(at).1)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// No packet waits any longer.
    pub(super) fn release_all(&mut self) {
        for (due, _) in &mut self.waiting {
            due.turns = 0;
        }
    }
}
