//! A switch with output queues in one shared buffer.

use super::port::Port;
use super::tournament::Tournament;

/// The unit of alpha. Decisions use integers, so that runs do not depend on floating-point
/// arithmetic.
const ALPHA_ONE: u64 = 1 << 16;

/// How a switch shares its buffer among its ports, and when it marks packets.
///
/// The threshold is dynamic (Choudhury and Hahne 1998), as in Broadcom's switches: the queue of a
/// port may grow while it is below `alpha` times the free buffer. One busy port gets
/// `alpha / (1 + alpha)` of the buffer, `n` busy ports get `alpha / (1 + n alpha)` each. The rest
/// absorbs bursts at other ports.
///
/// A packet is in the buffer, with its [bytes on the cable](super::WIRE_OVERHEAD_BYTES), from its
/// arrival until its last bit has left.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SwitchConfig {
    /// The buffer that all ports share. Default 12 MB.
    pub buffer_bytes: u64,
    /// The factor of the dynamic threshold, 0 to 65,536, rounded to multiples of 2^-16. Default 1.
    /// With 0 every packet is dropped.
    pub alpha: f64,
    /// A packet is marked (ECN) if the queue of its port is longer than this. `u64::MAX` disables
    /// marks. Default 100 kB.
    pub mark_bytes: u64,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self { buffer_bytes: 12_000_000, alpha: 1.0, mark_bytes: 100_000 }
    }
}

impl SwitchConfig {
    /// # Panics
    /// Panics if alpha is NaN or out of its range.
    pub(super) fn check(&self) {
        assert!((0.0..=65_536.0).contains(&self.alpha), "an alpha of {}", self.alpha);
    }
}

/// The decision of a switch about a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Queue {
        mark: bool,
    },
    /// The queue of the port has reached its threshold.
    FullPort,
    /// The whole buffer has no room.
    FullBuffer,
}

/// The state of a switch. Its ports are in the network's list of all ports.
#[derive(Debug)]
pub(super) struct Switch {
    buffer_bytes: u64,
    /// In units of 1 / [`ALPHA_ONE`].
    alpha: u64,
    mark_bytes: u64,
    /// The port through which each host is reached.
    routes: Vec<u32>,
    /// An upper bound of the bytes in the buffer. Packets that have left are subtracted when their
    /// port is used; all are subtracted before a packet is dropped.
    used_bytes: u64,
    /// Ports that may have packets in the buffer, each with a time. The first packet of the port
    /// leaves at this time or later. The port with the earliest time comes first.
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

    /// The port through which `host` is reached.
    #[inline]
    pub(super) fn route(&self, host: u32) -> u32 {
        self.routes[host as usize]
    }

    /// Decides whether the switch queues, marks or drops a packet of `bytes` bytes that has arrived
    /// at `now` (ns) and leaves through `port`. First subtracts the packets that have left the port
    /// ([`Port::settle`]).
    #[inline]
    pub(super) fn judge(&mut self, now: u64, port: u32, bytes: u64, ports: &mut [Port]) -> Verdict {
        self.used_bytes -= ports[port as usize].settle(now);
        let queued = ports[port as usize].queued_bytes();
        // `used_bytes` may be too large. So an acceptance is final, but before a drop, `used_bytes`
        // is made exact and the packet is judged again.
        let mut verdict = self.admit(queued, bytes);
        if !matches!(verdict, Verdict::Queue { .. }) && self.settle(now, ports) {
            verdict = self.admit(queued, bytes);
        }
        verdict
    }

    /// Applies the dynamic threshold to the current `used_bytes`.
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

    /// Adds a packet of `bytes` bytes to the buffer. It leaves `port` at `departs` (ns).
    #[inline]
    pub(super) fn fill(&mut self, port: u32, bytes: u64, departs: u64) {
        self.used_bytes += bytes;
        debug_assert!(self.used_bytes <= self.buffer_bytes);
        if self.leaving.due(port).is_none() {
            self.reschedule(port, Some(departs));
        }
    }

    /// Subtracts `bytes` from the buffer: a port has sent them.
    #[inline]
    pub(super) fn free(&mut self, bytes: u64) {
        self.used_bytes -= bytes;
    }

    /// The departures of `port` have changed, perhaps to earlier times.
    pub(super) fn reschedule(&mut self, port: u32, first: Option<u64>) {
        self.leaving.set(port, first.map(|departs| (departs, 0)));
    }

    /// Makes `used_bytes` exact. Costs O(log ports) for each port that has sent a packet since it
    /// was last settled. Returns whether `used_bytes` was too large.
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

    /// Panics if the counters are inconsistent. `ports` are the ports of this switch.
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
