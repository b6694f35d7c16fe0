//! The script of a stream, drawn when the stream begins, and known to both of its ends.

use erpc_core::status::{Code, Status};
use erpc_core::stream::BATCH;

use crate::call_behaviour::CallMix;
use crate::{Random, pattern};

/// The properties of a run's streams.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamMix {
    /// The length of the largest item, in bytes.
    pub largest: u32,
    /// Percentage of readers and writers that pause.
    pub pause_percent: u32,
    /// The longest pause, in ns.
    pub longest_pause: u64,
    /// Percentage of readers that leave after a random number of items, and of streams that the
    /// client closes after a random time.
    pub leave_percent: u32,
    /// Percentage of handlers that end with a status.
    pub fail_percent: u32,
    /// Percentage of streams with a deadline.
    pub deadline_percent: u32,
}

/// The sender of items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// Items from the client.
    Up,
    /// Items from the server.
    Down,
}

/// The most items of one side of a stream.
const MOST_ITEMS: u64 = 300;

/// About the most bytes of the items of one side, several batches: the number of items is at most
/// this number divided by the mean length of an item.
const MOST_BYTES: u64 = 10 * BATCH as u64;

/// The most pauses that are drawn for one reader or writer. Because the interval is rounded down,
/// nearly twice as many are possible.
const MOST_PAUSES: u32 = 6;

/// The latest time for an early close of a stream, in ns after it has begun.
const SOON: u64 = 30_000;

/// The distribution of item lengths, in bytes.
#[derive(Clone, Copy, Debug)]
enum Lengths {
    /// Below this length.
    Below(u32),
    /// Of every order of magnitude, up to this length.
    Any(u32),
    /// Up to 23 bytes below this length. If the length is half a batch, two items fill a batch, or
    /// do not fit into one batch.
    Near(u32),
}

/// The items of one side, how they are sent, and how they are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) items: u32,
    lengths: Lengths,
    /// The pauses of the writer and of the reader.
    pub(crate) writer: Pauses,
    pub(crate) reader: Pauses,
    /// The number of items after which the reader leaves.
    pub(crate) leaves_after: Option<u32>,
}

/// Pauses of equal length, before every `every`-th item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pauses {
    every: u32,
    nanos: u64,
}

impl Pauses {
    const NONE: Self = Self { every: u32::MAX, nanos: 0 };

    fn draw(random: &mut Random, stream_mix: &StreamMix, items: u32) -> Self {
        let (pauses, count) =
            (random.percent(stream_mix.pause_percent), random.within(1, MOST_PAUSES.into()));
        // Draws the length of the pauses. All orders of magnitude are equally likely, from about 1
        // us on.
        let order = random.within(10, u64::from(stream_mix.longest_pause.max(1_024).ilog2()));
        let nanos = random.within(1 << (order - 1), 1 << order);
        let every = (items / count as u32).max(1);
        if pauses { Self { every, nanos } } else { Self::NONE }
    }

    /// The length of the pause before item `number` in ns, if there is one.
    pub(crate) fn before(self, number: u32) -> Option<u64> {
        (number > 0 && number.is_multiple_of(self.every)).then_some(self.nanos)
    }

    /// The sum of all pauses of a flow with `items` items, in ns.
    fn in_all(self, items: u32) -> u64 {
        u64::from(items / self.every) * self.nanos
    }
}

impl Flow {
    fn draw(random: &mut Random, stream_mix: &StreamMix, items: Option<u32>) -> Self {
        let largest = u64::from(stream_mix.largest);
        let half = (BATCH as u64 / 2).min(largest);
        let (lengths, mean) = match random.below(8) {
            0 | 1 => (Lengths::Below(17), 8),
            2 | 3 => (Lengths::Below(400), 200),
            4 | 5 => (Lengths::Any(largest as u32), largest / 6),
            6 => (Lengths::Near(half as u32), half),
            _ => (Lengths::Near(largest as u32), largest),
        };
        let most = (MOST_BYTES / mean.max(1)).clamp(1, MOST_ITEMS);
        let drawn = match random.below(8) {
            0 => 0,
            1 => 1,
            _ => random.within(1, most) as u32,
        };
        let items = items.unwrap_or(drawn).min(most as u32);
        let writer = Pauses::draw(random, stream_mix, items);
        let reader = Pauses::draw(random, stream_mix, items);
        let leaves = random.percent(stream_mix.leave_percent);
        let after = random.below(u64::from(items) + 1) as u32;
        Self { items, lengths, writer, reader, leaves_after: leaves.then_some(after) }
    }

    /// The length of the item with this key, in bytes.
    pub(crate) fn len(&self, key: u64) -> usize {
        let mut random = Random::new(key);
        let len = match self.lengths {
            Lengths::Below(most) => random.below(most.into()),
            Lengths::Any(most) => {
                let cap = u64::from(most) >> random.below(12);
                random.below(cap + 1)
            }
            Lengths::Near(near) => u64::from(near).saturating_sub(random.below(24)),
        };
        len as usize
    }

    /// The most bytes of one item.
    pub(crate) fn longest(&self) -> usize {
        match self.lengths {
            Lengths::Below(most) | Lengths::Any(most) | Lengths::Near(most) => most as usize,
        }
    }
}

/// When a handler sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// Independently of its reading.
    Apart,
    /// After it has read all items.
    ReadFirst,
    /// One item for each item that it reads.
    Echo,
}

/// The script of a stream: everything except the effects of the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamScript {
    pub(crate) up: Flow,
    pub(crate) down: Flow,
    pub(crate) order: Order,
    /// The handler ends when it has sent all its items, even if it has not read all.
    pub(crate) careless: bool,
    /// The number of sent items after which the handler ends with a status.
    pub(crate) fails_after: Option<u32>,
    /// Time until the deadline, in ns.
    pub(crate) deadline: Option<u64>,
    /// Time until the client closes the stream, in ns.
    pub(crate) closes_in: Option<u64>,
}

impl StreamScript {
    pub(crate) fn draw(random: &mut Random, stream_mix: &StreamMix) -> Self {
        let shape = random.below(10);
        let mut up = Flow::draw(random, stream_mix, (shape < 3).then_some(1));
        let down = match shape {
            3..5 => Some(1),
            8.. => Some(up.items),
            _ => None,
        };
        let mut down = Flow::draw(random, stream_mix, down);
        let order = match shape {
            0..5 => Order::ReadFirst,
            5..8 => Order::Apart,
            _ => Order::Echo,
        };
        if order == Order::Echo {
            let items = up.items.min(down.items);
            for flow in [&mut up, &mut down] {
                flow.items = items;
                flow.leaves_after = flow.leaves_after.map(|after| after.min(items));
            }
        }
        let careless = random.percent(30) && order == Order::Apart;
        let fails = random.percent(stream_mix.fail_percent);
        let after = random.below(u64::from(down.items) + 1) as u32;
        let deadline = random.percent(stream_mix.deadline_percent).then(|| CallMix::wait(random));
        // Some closes are so early that CLOSE may overtake OPEN.
        let soon = random.percent(60);
        let closes = if soon { random.below(SOON) } else { CallMix::wait(random) };
        let closes_in = random.percent(stream_mix.leave_percent).then_some(closes);
        let fails_after = fails.then_some(after);
        Self { up, down, order, careless, fails_after, deadline, closes_in }
    }

    /// A stream of small items without pauses, failures or deadlines.
    #[cfg(test)]
    pub(crate) fn plain(up: u32, down: u32) -> Self {
        let flow = |items| Flow {
            items,
            lengths: Lengths::Below(17),
            writer: Pauses::NONE,
            reader: Pauses::NONE,
            leaves_after: None,
        };
        Self {
            up: flow(up),
            down: flow(down),
            order: Order::Apart,
            careless: false,
            fails_after: None,
            deadline: None,
            closes_in: None,
        }
    }

    /// The sum of all pauses of both ends, in ns.
    pub(crate) fn pauses(&self) -> u64 {
        let of = |flow: &Flow| flow.writer.in_all(flow.items) + flow.reader.in_all(flow.items);
        of(&self.up) + of(&self.down)
    }

    /// The result of a handler that ends by itself. A status is unique per stream.
    pub(crate) fn verdict(&self, key: u64) -> Result<(), Status> {
        if self.fails_after.is_none() {
            return Ok(());
        }
        let codes = [Code::NotFound, Code::Aborted, Code::OutOfRange, Code::FailedPrecondition];
        let mut random = Random::new(key);
        let code = *random.pick(&codes);
        let message = format!("{:x<1$}", format!("{key:016x}"), random.below(200) as usize);
        let mut details = Vec::new();
        let len = random.below(100) as usize;
        pattern::fill(&mut details, key, len);
        Err(Status::new(code, message).with_details(&details))
    }
}

#[cfg(test)]
mod tests {
    use erpc_test_tools::random::mix;

    use super::*;

    const MIX: StreamMix = StreamMix {
        largest: 2 * BATCH as u32,
        pause_percent: 50,
        longest_pause: 1_000_000_000,
        leave_percent: 30,
        fail_percent: 30,
        deadline_percent: 30,
    };

    #[test]
    fn drawn_scripts_cover_every_kind_of_stream_within_the_bounds() {
        let mut random = Random::new(1);
        let stream_mix: Vec<_> =
            (0..2_000).map(|_| StreamScript::draw(&mut random, &MIX)).collect();
        let any = |of: &dyn Fn(&StreamScript) -> bool| stream_mix.iter().any(of);
        assert!(any(&|script| script.up.items == 0 && script.down.items == 0));
        assert!(any(&|script| script.up.items == 1 && script.down.items > 100));
        assert!(any(&|script| script.up.items > 100 && script.down.items == 1));
        assert!(any(&|script| script.up.longest() > BATCH && script.up.items > 1));
        assert!(any(&|script| script.deadline.is_none() && script.closes_in.is_some()));
        for script in &stream_mix {
            assert!(script.order != Order::Echo || script.up.items == script.down.items);
            for flow in [&script.up, &script.down] {
                let lens = (0..flow.items).map(|at| flow.len(mix(at.into())));
                assert!(lens.clone().all(|len| len <= flow.longest()), "{script:?}");
                assert!(lens.sum::<usize>() as u64 <= 3 * MOST_BYTES, "{script:?}");
                assert!(flow.leaves_after.is_none_or(|after| after <= flow.items));
            }
            let most = 4 * u64::from(MOST_PAUSES) * 2 * MIX.longest_pause;
            assert!(script.pauses() <= most, "{script:?}");
        }
    }

    #[test]
    fn a_verdict_is_a_status_unique_to_its_key() {
        let mut script = StreamScript::draw(&mut Random::new(1), &MIX);
        script.fails_after = None;
        assert_eq!(script.verdict(7), Ok(()));
        script.fails_after = Some(0);
        assert_eq!(script.verdict(7), script.verdict(7));
        assert_ne!(script.verdict(7), script.verdict(8));
    }
}
