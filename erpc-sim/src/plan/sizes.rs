//! The lengths of messages.

use crate::Random;

/// The distribution of message lengths.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The payload of the largest datagram with a checksum, in bytes.
    pub packet: u32,
    /// The longest message, in bytes.
    pub longest: u32,
    /// Percentage of messages whose lengths are drawn from those that fit one packet. Other
    /// messages may fit one packet by chance.
    pub short_percent: u32,
    /// If set, long and short calls alternate.
    pub turns: Option<Turns>,
}

/// Calls that alternate: a number of calls with messages of many packets, then a number of calls
/// with messages of two or three packets.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    /// Long calls in a row.
    pub long: u32,
    /// Short calls in a row.
    pub short: u32,
}

impl Sizes {
    /// The length of a message, in bytes. `made` is the number of calls that the caller has made in
    /// this round.
    pub fn draw_next(&self, made: u32, random: &mut Random) -> u32 {
        let Some(Turns { long, short }) = self.turns else { return self.draw(random) };
        let (packet, longest) = (u64::from(self.packet), u64::from(self.longest));
        let (least, most) = match made % (long + short) < long {
            true => (longest / 4, longest),
            false => (packet + 1, 2 * packet),
        };
        random.within(least, most) as u32
    }

    /// A random length in bytes.
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
        // The upper bound is the longest message divided by 1, 2, 4, .. or 32.
        let cap = longest >> random.below(6);
        let length = match random.below(8) {
            // A length of whole packets, or one byte less or more.
            0 => (1 + random.below(8)) * u64::from(self.packet) + random.below(3) - 1,
            _ => random.within(1, cap.max(1)),
        };
        length.min(longest) as u32
    }
}
