//! A model of an incast: sessions that all send through one link, packet by packet.
//!
//! Each has 32 credits, spaces its packets by its controller's rate and by its own link, which is as fast. The shared one serves them in
//! the order in which they come; a packet that finds more than 100 kB before it is marked. What the network has to tell arrives
//! with the answer, one round trip after the packet left.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use erpc_test_tools::random::Random;
use erpc_test_tools::statistics::{jain, quantile};

use super::{Congestion, CongestionControl, Controller, Path, Sample};
use crate::time::Instant;

const CREDITS: u32 = 32;
const MARK_BYTES: u64 = 100_000;

/// Nanoseconds.
pub(super) const MS: u64 = 1_000_000;

#[derive(Clone, Copy)]
pub(super) struct Bottleneck {
    /// Rate and packet length, with which controllers are made, too. All bytes are bytes on the cable.
    pub(super) path: Path,
    /// A round trip through empty queues, and what is added to it at random, in nanoseconds.
    pub(super) base: u64,
    pub(super) jitter: u64,
    pub(super) sessions: usize,
    /// Sessions start at random instants within this, in nanoseconds.
    pub(super) stagger: u64,
    /// When measuring begins and ends.
    pub(super) from: u64,
    pub(super) until: u64,
    /// Of a million packets, so many are lost behind the queue.
    pub(super) lost_ppm: u64,
}

/// What came through while it was measured.
pub(super) struct Outcome {
    /// Of the link's rate.
    pub(super) share: f64,
    /// Round trips in microseconds.
    pub(super) median: f64,
    pub(super) p99: f64,
    /// Jain's index: 1 if all have got the same, `1 / sessions` if one has got all.
    pub(super) jain: f64,
    pub(super) rates: Vec<u64>,
}

struct Session {
    control: Congestion,
    credits: u32,
    /// When the next packet may leave.
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
    /// Until when the link has something to send.
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

    /// The round trip when all credits are in the queue, in microseconds.
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
