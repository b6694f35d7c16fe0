//! A packet-level model of an incast: all sessions send through one shared link.
//!
//! Each session has 32 credits. It spaces its packets by its controller's rate, but no faster than
//! the link. The link serves packets in the order of their arrival and marks a packet that finds
//! more than 100 kB queued. A loss or a mark reaches the session with the packet's answer, one
//! round trip after the packet was sent.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use erpc_test_tools::random::Random;
use erpc_test_tools::statistics::{jain, quantile};

use super::{Congestion, CongestionControl, Controller, Path, Sample};
use crate::time::Instant;

const CREDITS: u32 = 32;
const MARK_BYTES: u64 = 100_000;

/// A millisecond in nanoseconds.
pub(super) const MS: u64 = 1_000_000;

#[derive(Clone, Copy)]
pub(super) struct Bottleneck {
    /// Rate and packet length of the link; also passed to the controllers. All bytes are bytes on
    /// the cable.
    pub(super) path: Path,
    /// Round trip through empty queues, in ns. A random time of up to `jitter` ns is added to each.
    pub(super) base: u64,
    pub(super) jitter: u64,
    pub(super) sessions: usize,
    /// Sessions start at random times within this period, in ns.
    pub(super) stagger: u64,
    /// Start and end of the measurement, in ns.
    pub(super) from: u64,
    pub(super) until: u64,
    /// Packets lost per million. They are lost behind the link, so they take up its time and its
    /// queue like other packets.
    pub(super) lost_ppm: u64,
}

/// Results of the measured period.
pub(super) struct Outcome {
    /// Fraction of the link's rate that was used.
    pub(super) share: f64,
    /// Round trips in us.
    pub(super) median: f64,
    pub(super) p99: f64,
    /// Jain's index: 1 if all sessions get the same, `1 / sessions` if one session gets everything.
    pub(super) jain: f64,
    pub(super) rates: Vec<u64>,
}

struct Session {
    control: Congestion,
    credits: u32,
    /// Earliest departure of the next packet, in ns.
    next: u64,
    is_waiting: bool,
    delivered: u64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Turn,
    Answer { sent: u64, is_marked: bool, is_lost: bool },
}

struct Run {
    events: BinaryHeap<Reverse<(u64, u64, usize, Event)>>,
    count: u64,
    random: Random,
    /// When the link has sent everything in its queue, in ns.
    busy: u64,
}

impl Run {
    fn push(&mut self, at: u64, session: usize, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at, self.count, session, event)));
    }
}

impl Bottleneck {
    /// The link's rate in bytes per second.
    pub(super) fn line(&self) -> u64 {
        self.path.line_rate.expect("the model's link has a rate")
    }

    fn serialise(&self, rate: u64) -> u64 {
        u64::from(self.path.datagram) * 1_000_000_000 / rate
    }

    /// The round trip when all credits of all sessions are in the queue, in us.
    pub(super) fn without_control(&self) -> f64 {
        (self.serialise(self.line()) * u64::from(CREDITS) * self.sessions as u64) as f64 / 1e3
    }

    pub(super) fn run(&self, control: &CongestionControl) -> Outcome {
        let mut run = Run { events: BinaryHeap::new(), count: 0, random: Random::new(5), busy: 0 };
        let mut sessions: Vec<Session> = (0..self.sessions)
            .map(|index| {
                let next = 1_000 + run.random.below(self.stagger);
                run.push(next, index, Event::Turn);
                let control = Congestion::new(control, &self.path);
                Session { control, credits: CREDITS, next, is_waiting: true, delivered: 0 }
            })
            .collect();
        let mut rtts = Vec::new();
        while let Some(Reverse((now, _, index, event))) = run.events.pop()
            && now < self.until
        {
            let session = &mut sessions[index];
            match event {
                Event::Turn => session.is_waiting = false,
                Event::Answer { sent, is_marked, is_lost } => {
                    session.answer(now, now - sent, is_marked, is_lost);
                    if now >= self.from && !is_lost {
                        rtts.push(now - sent);
                        session.delivered += 1;
                    }
                }
            }
            let is_within = session.in_flight() < u32::from(session.control.window());
            if !session.is_waiting && session.credits > 0 && is_within {
                session.is_waiting = true;
                if session.next <= now {
                    self.send(&mut run, session, now, index);
                }
                run.push(session.next, index, Event::Turn);
            }
        }
        self.outcome(&sessions, rtts)
    }

    fn send(&self, run: &mut Run, session: &mut Session, now: u64, index: usize) {
        let line = self.line();
        session.credits -= 1;
        session.next = now + self.serialise(session.control.rate().min(line));
        session.control.on_sent(Instant::from_nanos(now), self.path.datagram);
        let arrival = now + self.base / 2;
        let ahead = run.busy.saturating_sub(arrival) * line / 1_000_000_000;
        run.busy = run.busy.max(arrival) + self.serialise(line);
        let answer = run.busy + self.base / 2 + run.random.below(self.jitter);
        let is_lost = run.random.below(1_000_000) < self.lost_ppm;
        let event = Event::Answer { sent: now, is_marked: ahead > MARK_BYTES, is_lost };
        run.push(answer, index, event);
    }

    fn outcome(&self, sessions: &[Session], mut rtts: Vec<u64>) -> Outcome {
        rtts.sort_unstable();
        let micros = |fraction| quantile(&rtts, fraction).map_or(0.0, |nanos| nanos as f64 / 1e3);
        let delivered: Vec<f64> = sessions.iter().map(|session| session.delivered as f64).collect();
        let possible = (self.until - self.from) / self.serialise(self.line());
        Outcome {
            share: delivered.iter().sum::<f64>() / possible as f64,
            median: micros(0.5),
            p99: micros(0.99),
            jain: jain(&delivered),
            rates: sessions.iter().map(|session| session.control.rate()).collect(),
        }
    }
}

impl Session {
    fn in_flight(&self) -> u32 {
        CREDITS - self.credits
    }

    fn answer(&mut self, now: u64, rtt: u64, is_marked: bool, is_lost: bool) {
        self.credits += 1;
        let now = Instant::from_nanos(now);
        if is_lost {
            self.control.on_loss(now, self.in_flight());
            return;
        }
        let in_flight = self.in_flight() + 1;
        let sample = Sample { now, nanos: rtt, waited: 0, in_flight, is_full: true };
        if !self.control.is_calm(&sample) {
            self.control.on_rtt(&sample);
        }
        if is_marked {
            self.control.on_mark(now);
        }
    }
}
