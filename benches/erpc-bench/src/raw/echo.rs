//! Small requests with small answers.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::link::{Receive, Send};
use super::watch::{Alive, Progress};
use crate::failure::Failure;
use crate::load::Load;
use crate::payload::{self, Lengths};
use crate::report::Latencies;

/// Sizes of an echo, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) request: usize,
    pub(super) answer: usize,
}

/// Answers requests until the client has ended. If it `yields`, gives its core to other threads
/// while no request is there.
pub(super) fn serve(
    rx: &mut impl Receive,
    tx: &mut impl Send,
    alive: &mut Alive,
    yields: bool,
) -> io::Result<()> {
    let mut answer = Vec::new();
    while alive.check() {
        let count = rx.receive()?;
        for index in 0..count {
            let (request, peer) = rx.message(index);
            let Some(len) = payload::wanted(request) else { continue };
            answer.resize(len, 0);
            payload::answer_echo(request, &mut answer);
            tx.send(peer, &answer)?;
        }
        if count > 0 {
            tx.flush()?;
        } else if yields {
            thread::yield_now();
        }
    }
    Ok(())
}

/// The requests of a closed loop.
enum Requests {
    /// Small requests, which are written for each call in the same memory.
    Written(Vec<u8>),
    /// Large or mixed requests, one per slot, of which only the number changes. The answers have
    /// the bytes of the requests. So the loop does not measure the writing and comparing of
    /// patterns, as `client` does not.
    Kept(Vec<Vec<u8>>),
}

impl Requests {
    fn kept(lengths: impl Iterator<Item = Sizes>) -> Self {
        let request = |sizes: Sizes| {
            let mut request = vec![0; sizes.request];
            payload::write_echo(&mut request, 0, sizes.answer);
            request
        };
        Self::Kept(lengths.map(request).collect())
    }

    fn of(sizes: Sizes, outstanding: usize) -> Self {
        match sizes.request > Load::MAX_ECHO {
            true => Self::kept((0..outstanding).map(|_| sizes)),
            false => Self::Written(vec![0; sizes.request]),
        }
    }
}

/// A closed loop of echoes.
pub(super) struct EchoClient<R, T> {
    rx: R,
    tx: T,
    sizes: Sizes,
    requests: Requests,
    yields: bool,
    /// Per slot, the time at which its call was sent, and the call's number. The low 16 bits of a
    /// call number are its slot.
    calls: Vec<(Instant, u64)>,
    next_round: u64,
}

impl<R: Receive, T: Send> EchoClient<R, T> {
    /// If it `yields`, gives its core to other threads while no answer is there.
    pub(super) fn new(rx: R, tx: T, sizes: Sizes, outstanding: usize, yields: bool) -> Self {
        let calls = vec![(Instant::now(), u64::MAX); outstanding];
        let requests = Requests::of(sizes, outstanding);
        Self { rx, tx, sizes, requests, yields, calls, next_round: 0 }
    }

    /// Calls with requests and answers of these lengths, slot by slot.
    pub(super) fn mixed(self, lengths: &Lengths) -> Self {
        let sizes = |slot| Sizes { request: lengths.of(slot), answer: lengths.of(slot) };
        let requests = Requests::kept((0..self.calls.len()).map(sizes));
        Self { requests, ..self }
    }

    fn call(&mut self, slot: usize, now: Instant) -> io::Result<()> {
        let number = self.next_round << 16 | slot as u64;
        self.next_round += 1;
        self.calls[slot] = (now, number);
        let request = match &mut self.requests {
            Requests::Written(request) => {
                payload::write_echo(request, number, self.sizes.answer);
                request
            }
            Requests::Kept(requests) => {
                payload::number_request(&mut requests[slot], number);
                &requests[slot]
            }
        };
        self.tx.send(None, request)
    }

    /// Makes the first call of each slot.
    pub(super) fn begin(&mut self, now: Instant) -> Result<(), Failure> {
        for slot in 0..self.calls.len() {
            self.call(slot, now).map_err(Self::failure)?;
        }
        self.tx.flush().map_err(Self::failure)
    }

    /// Takes the answers that have arrived. Each triggers the next call before the time `end`.
    /// Returns the number of answers, and the time.
    #[inline]
    pub(super) fn turn(
        &mut self,
        end: Instant,
        latencies: &mut Latencies,
    ) -> Result<Option<(usize, Instant)>, Failure> {
        let count = self.rx.receive().map_err(Self::failure)?;
        if count == 0 {
            return Ok(None);
        }
        let now = Instant::now();
        for index in 0..count {
            let (answer, _) = self.rx.message(index);
            let slot = payload::number_of(answer) as usize & 0xFFFF;
            let Some(&(sent, number)) = self.calls.get(slot) else {
                return Err(Failure::new("an answer belongs to no slot"));
            };
            let is_right = match &self.requests {
                Requests::Written(_) => payload::is_echo(answer, number, self.sizes.answer),
                Requests::Kept(requests) => {
                    // The request names the length of its answer.
                    payload::wanted(&requests[slot]) == Some(answer.len())
                        && requests[slot].starts_with(answer)
                }
            };
            if !is_right {
                return Err(Failure::new(format!("the answer to call {number} is wrong")));
            }
            latencies.record((now - sent).as_nanos() as u64);
            if now < end {
                self.call(slot, now).map_err(Self::failure)?;
            }
        }
        self.tx.flush().map_err(Self::failure)?;
        Ok(Some((count, now)))
    }

    fn failure(error: io::Error) -> Failure {
        Failure::of("the raw client's socket failed")(error)
    }

    /// Keeps a call in flight in each slot for `duration`, then waits for their ends. Returns the
    /// number of answered calls.
    pub(super) fn run(
        &mut self,
        duration: Duration,
        latencies: &mut Latencies,
    ) -> Result<u64, Failure> {
        let start = Instant::now();
        self.begin(start)?;
        let (mut waiting, mut done) = (self.calls.len(), 0);
        let (end, mut progress) = (start + duration, Progress::new(start));
        while waiting > 0 {
            let Some((count, now)) = self.turn(end, latencies)? else {
                progress.check()?;
                if self.yields {
                    thread::yield_now();
                }
                continue;
            };
            progress.note(now);
            done += count as u64;
            waiting -= if now < end { 0 } else { count };
        }
        Ok(done)
    }
}
