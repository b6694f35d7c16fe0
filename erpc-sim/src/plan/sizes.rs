//! How long messages are.

use crate::Random;

/// How long messages are.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Payload that fits one packet of the shortest path, in bytes.
    pub packet: u32,
    /// Longest message.
    pub longest: u32,
    /// In a hundred messages, how many have one packet.
    pub short_percent: u32,
}

impl Sizes {
    /// A length.
    pub fn draw(&self, random: &mut Random) -> u32 {
        if random.percent(self.short_percent) {
            return match random.below(8) {
                0 => 0,
                1 => random.below(8) as u32,
                2 | 3 => 32,
                4 | 5 => random.below(256) as u32,
                6 => self.packet.saturating_sub(random.below(40) as u32),
                _ => random.below(u64::from(self.packet)) as u32,
            };
        }
        let longest = u64::from(self.longest);
        // Lengths of every order of magnitude alike.
        let cap = longest >> random.below(6);
        let length = match random.below(8) {
            // On the edge of a packet.
            0 => (1 + random.below(8)) * u64::from(self.packet) + random.below(3) - 1,
            _ => random.within(1, cap.max(1)),
        };
        length.min(longest) as u32
    }
}
