//! A switch with output queues in one shared buffer.

use super::port::Port;
use super::tournament::Tournament;

/// The unit of alpha: runs must not depend on how floating point is done, so decisions are made
/// with integers.
const ALPHA_ONE: u64 = 1 << 16;

/// How a switch shares its buffer among its ports, and when it marks packets.
///
/// The threshold is the dynamic one of Choudhury and Hahne (1998), which Broadcom's switches use:
/// the queue of a port may grow while it is below `alpha` times the free buffer. One busy port gets
/// `alpha / (1 + alpha)` of the buffer, `n` of them `alpha / (1 + n alpha)` each; what is left
/// takes the bursts of others.
///
/// A packet is in the buffer, with its [bytes on the cable](super::WIRE_OVERHEAD_BYTES), from when
/// it has arrived until its last bit has left.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SwitchConfig {
    /// The buffer that all ports share. Default 12 MB.
    pub buffer_bytes: u64,
    /// The factor of the dynamic threshold, 0 to 65,536, rounded to multiples of 2^-16. Default 1.
    /// With 0 everything is dropped.
    pub alpha: f64,
    /// A packet that finds more than this in the queue of its port is marked (ECN). `u64::MAX` is
    /// never. Default 100 kB.
    pub mark_bytes: u64,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self { buffer_bytes: 12_000_000, alpha: 1.0, mark_bytes: 100_000 }
    }
}

impl SwitchConfig {
    /// # Panics
    /// If alpha is not a number in its range.
    pub(super) fn check(&self) {
        assert!((0.0..=65_536.0).contains(&self.alpha), "an alpha of {}", self.alpha);
    }
}

/// What a switch does with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Queue {
        mark: bool,
    },
    /// The port has its share.
    FullPort,
    /// Nobody has room.
    FullBuffer,
}

/// The state of a switch. Its ports are in the network's list of all ports.
#[derive(Debug)]
pub(super) struct Switch {
    buffer_bytes: u64,
    /// In units of 1 / [`ALPHA_ONE`].
    alpha: u64,
    mark_bytes: u64,
    /// By host: the port through which it is reached.
    routes: Vec<u32>,
    /// At least what is in the buffer: packets that have left are taken off when their port is
    /// used, and all at once before a packet is dropped.
    used_bytes: u64,
    /// Ports that may have something in the buffer, by when the first of it leaves, or earlier.
    leaving: Tournament,
}

impl Switch {
    /// An empty switch in a network of `ports` ports.
    pub(super) fn new(config: &SwitchConfig, routes: Vec<u32>, ports: usize) -> Self {
        Self {
            buffer_bytes: config.buffer_bytes,
            alpha: (config.alpha * ALPHA_ONE as f64).round() as u64,
            mark_bytes: config.mark_bytes,
            routes,
            used_bytes: 0,
            leaving: Tournament::new(ports),
        }
    }

    /// The port towards `host`.
    #[inline]
    pub(super) fn route(&self, host: u32) -> u32 {
        self.routes[host as usize]
    }

    /// Decides about a packet of `bytes` that has arrived at `now` and leaves through `port`.
    /// Settles the port.
    #[inline]
    pub(super) fn judge(&mut self, now: u64, port: u32, bytes: u64, ports: &mut [Port]) -> Verdict {
        self.used_bytes -= ports[port as usize].settle(now);
        let queued = ports[port as usize].queued_bytes();
        // `used_bytes` may be too large, so a yes is a yes and a no has to be looked into.
        let mut verdict = self.admit(queued, bytes);
        if !matches!(verdict, Verdict::Queue { .. }) && self.settle(now, ports) {
            verdict = self.admit(queued, bytes);
        }
        verdict
    }

    /// The dynamic threshold, for what is in use now.
    #[inline]
    fn admit(&self, queued: u64, bytes: u64) -> Verdict {
        let free = self.buffer_bytes - self.used_bytes;
        let share = u128::from(self.alpha) * u128::from(free);
        if u128::from(queued) * u128::from(ALPHA_ONE) >= share {
            Verdict::FullPort
        } else if bytes > free {
            Verdict::FullBuffer
        } else {
            Verdict::Queue { mark: queued > self.mark_bytes }
        }
    }

    /// Takes `bytes` into the buffer, which leave `port` at `departs`.
    #[inline]
    pub(super) fn fill(&mut self, port: u32, bytes: u64, departs: u64) {
        self.used_bytes += bytes;
        debug_assert!(self.used_bytes <= self.buffer_bytes);
        if self.leaving.due(port).is_none() {
            self.reschedule(port, Some(departs));
        }
    }

    /// Gives `bytes` back, which a port has been found to have sent.
    #[inline]
    pub(super) fn free(&mut self, bytes: u64) {
        self.used_bytes -= bytes;
    }

    /// The departures of `port` have changed, perhaps to earlier ones.
    pub(super) fn reschedule(&mut self, port: u32, first: Option<u64>) {
        self.leaving.set(port, first.map(|departs| (departs, 0)));
    }

    /// Makes `used_bytes` exact. Costs O(log ports) for each port that has sent something since.
    /// Returns whether it was too large.
    #[cold]
    fn settle(&mut self, now: u64, ports: &mut [Port]) -> bool {
        let before = self.used_bytes;
        while let Some((departs, port)) = self.leaving.first()
            && departs <= now
        {
            let first = &mut ports[port as usize];
            self.used_bytes -= first.settle(now);
            let next = first.next_departure();
            self.reschedule(port, next);
        }
        self.used_bytes < before
    }

    /// Panics if the books are wrong. `ports` are those of this switch.
    pub(super) fn check<'a>(&self, ports: impl Iterator<Item = (u32, &'a Port)>) {
        let mut queued = 0;
        for (index, port) in ports {
            queued += port.queued_bytes();
            let Some(first) = port.next_departure() else { continue };
            let due = self.leaving.due(index).expect("a port in use is due");
            assert!(due <= first, "port {index} would be settled too late");
        }
        assert_eq!(self.used_bytes, queued, "the buffer is not the sum of its queues");
        assert!(self.used_bytes <= self.buffer_bytes, "the buffer overflows");
        self.leaving.check();
    }
}
