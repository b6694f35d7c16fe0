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
    /// Where calls come in turns: so many long ones, then so many short ones, and so on.
    pub turns: Option<Turns>,
}

/// Calls that come in turns: so many with messages of many packets, then so many with messages of two or three.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    /// Long ones.
    pub long: u32,
    /// Short ones.
    pub short: u32,
}

impl Sizes {
    /// A length for a call, before which its caller has made so many in its round.
    pub fn draw_next(&self, made: u32, random: &mut Random) -> u32 {
        let Some(Turns { long, short }) = self.turns else { return self.draw(random) };
        let (packet, longest) = (u64::from(self.packet), u64::from(self.longest));
        let (least, most) = match made % (long + short) < long {
            true => (longest / 4, longest),
            false => (packet + 1, 2 * packet),
        };
        random.within(least, most) as u32
    }

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
