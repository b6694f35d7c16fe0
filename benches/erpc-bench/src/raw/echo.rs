//! Small requests with small answers.

use std::io;
use std::time::{Duration, Instant};

use super::link::{Receive, Send};
use super::watch::{Alive, Progress};
use crate::failure::Failure;
use crate::payload;
use crate::report::Latencies;

/// Sizes of an echo, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) request: usize,
    pub(super) answer: usize,
}

/// Answers requests until the client has ended.
pub(super) fn serve(
    rx: &mut impl Receive,
    tx: &mut impl Send,
    alive: &mut Alive,
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
        }
    }
    Ok(())
}

/// A closed loop of echoes.
pub(super) struct EchoClient<R, T> {
    rx: R,
    tx: T,
    sizes: Sizes,
    request: Vec<u8>,
    /// Per slot, the time at which its call was sent, and the call's number. The low 16 bits of a
    /// call number are its slot.
    calls: Vec<(Instant, u64)>,
    next_round: u64,
}

impl<R: Receive, T: Send> EchoClient<R, T> {
    pub(super) fn new(rx: R, tx: T, sizes: Sizes, outstanding: usize) -> Self {
        let calls = vec![(Instant::now(), u64::MAX); outstanding];
        Self { rx, tx, sizes, request: vec![0; sizes.request], calls, next_round: 0 }
    }

    fn call(&mut self, slot: usize, now: Instant) -> io::Result<()> {
        let number = self.next_round << 16 | slot as u64;
        self.next_round += 1;
        self.calls[slot] = (now, number);
        payload::write_echo(&mut self.request, number, self.sizes.answer);
        self.tx.send(None, &self.request)
    }

    /// Keeps a call in flight in each slot for `duration`, then waits for their ends. Returns the
    /// number of answered calls.
    pub(super) fn run(
        &mut self,
        duration: Duration,
        latencies: &mut Latencies,
    ) -> Result<u64, Failure> {
        let io = Failure::of::<io::Error>("the raw client's socket failed");
        let start = Instant::now();
        for slot in 0..self.calls.len() {
            self.call(slot, start).map_err(&io)?;
        }
        self.tx.flush().map_err(&io)?;
        let (mut waiting, mut done) = (self.calls.len(), 0);
        let mut progress = Progress::new(start);
        while waiting > 0 {
            let count = self.rx.receive().map_err(&io)?;
            if count == 0 {
                progress.check()?;
                continue;
            }
            let now = Instant::now();
            progress.note(now);
            for index in 0..count {
                let (answer, _) = self.rx.message(index);
                let slot = payload::number_of(answer) as usize & 0xFFFF;
                let Some(&(sent, number)) = self.calls.get(slot) else {
                    return Err(Failure::new("an answer belongs to no slot"));
                };
                if !payload::is_echo(answer, number, self.sizes.answer) {
                    return Err(Failure::new(format!("the answer to call {number} is wrong")));
                }
                latencies.record((now - sent).as_nanos() as u64);
                done += 1;
                if now - start < duration {
                    self.call(slot, now).map_err(&io)?;
                } else {
                    waiting -= 1;
                }
            }
            self.tx.flush().map_err(&io)?;
        }
        Ok(done)
    }
}
