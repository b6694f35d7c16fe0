//! Whether a history of calls is linearizable: whether each call could have happened at one moment
//! between its begin and its end.
//!
//! Keys are independent, so each is checked alone (Herlihy and Wing, TOPLAS'90, theorem 1). The search is
//! that of Wing and Gong with the memory of Lowe ("Testing for linearizability", 2017): it puts calls in
//! an order, one after the other, and remembers which sets of calls have led to which value.

use std::collections::{BTreeMap, HashSet};

/// What a call did, and what it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Set the value.
    Put(Vec<u8>),
    /// Set the value if it was the expected one. None as the result: the client does not know.
    Cas {
        /// The expected value; none: absent.
        expected: Option<Vec<u8>>,
        /// The new value.
        value: Vec<u8>,
        /// Whether it was set.
        swapped: Option<bool>,
    },
    /// Read this value.
    Get(Option<Vec<u8>>),
}

/// A call of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The key.
    pub key: Vec<u8>,
    /// When it began.
    pub begun: u64,
    /// When its answer came. None: it did not come, so the call may have happened at any time after its
    /// begin, or not at all.
    pub ended: Option<u64>,
    /// What it did.
    pub operation: Operation,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The history is linearizable.
    Linearizable,
    /// The calls of this key have no order that explains their answers.
    Violation(Vec<u8>),
    /// The search was given up after so many steps. It says nothing about the history.
    Unknown(u64),
}

/// Checks a history. Gives up after `limit` steps.
#[must_use]
pub fn check(calls: &[Call], limit: u64) -> Verdict {
    let mut keys: BTreeMap<&[u8], Vec<&Call>> = BTreeMap::new();
    for call in calls {
        keys.entry(&call.key).or_default().push(call);
    }
    let mut left = limit;
    for (key, calls) in keys {
        match Search::new(calls).run(&mut left) {
            Some(true) => {}
            Some(false) => return Verdict::Violation(key.to_owned()),
            None => return Verdict::Unknown(limit),
        }
    }
    Verdict::Linearizable
}

/// Calls that have their place in the order, one bit each.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Placed(Vec<u64>);

impl Placed {
    fn has(&self, call: usize) -> bool {
        self.0[call / 64] >> (call % 64) & 1 != 0
    }

    fn flip(&mut self, call: usize) {
        self.0[call / 64] ^= 1 << (call % 64);
    }
}

/// Values by number, so that states are small.
struct Search {
    calls: Vec<Numbered>,
    placed: Placed,
    /// Calls with an answer that have no place yet.
    unplaced: usize,
    seen: HashSet<(Placed, u32)>,
}

struct Numbered {
    begun: u64,
    /// `u64::MAX` if there was no answer.
    ended: u64,
    action: Action,
}

#[derive(Clone, Copy)]
enum Action {
    Put(u32),
    Cas { expected: u32, value: u32, swapped: Option<bool> },
    Get(u32),
}

/// The number of an absent value.
const ABSENT: u32 = 0;

impl Search {
    fn new(mut calls: Vec<&Call>) -> Self {
        let mut numbers: BTreeMap<&[u8], u32> = BTreeMap::new();
        calls.sort_by_key(|call| call.begun);
        let calls: Vec<_> = calls
            .into_iter()
            .map(|call| {
                let numbers = &mut numbers;
                let action = match &call.operation {
                    Operation::Put(value) => Action::Put(number_of(numbers, Some(value))),
                    Operation::Cas { expected, value, swapped } => Action::Cas {
                        expected: number_of(numbers, expected.as_ref()),
                        value: number_of(numbers, Some(value)),
                        swapped: *swapped,
                    },
                    Operation::Get(value) => Action::Get(number_of(numbers, value.as_ref())),
                };
                let ended = call.ended.unwrap_or(u64::MAX);
                Numbered { begun: call.begun, ended, action }
            })
            // A read without an answer says nothing.
            .filter(|call| !(call.ended == u64::MAX && matches!(call.action, Action::Get(_))))
            .collect();
        let unplaced = calls.iter().filter(|call| call.ended != u64::MAX).count();
        let placed = Placed(vec![0; calls.len().div_ceil(64)]);
        Self { calls, placed, unplaced, seen: HashSet::new() }
    }

    /// Whether there is an order. None if no steps are left.
    fn run(&mut self, left: &mut u64) -> Option<bool> {
        let mut value = ABSENT;
        // The calls of the order so far, with the values before them.
        let mut order: Vec<(usize, u32)> = Vec::new();
        let mut from = 0;
        loop {
            if self.unplaced == 0 {
                return Some(true);
            }
            *left = left.checked_sub(1)?;
            match self.next(from, value) {
                Some((call, after)) => {
                    order.push((call, value));
                    self.place(call);
                    value = after;
                    from = 0;
                }
                None => {
                    let Some((call, before)) = order.pop() else { return Some(false) };
                    self.unplace(call);
                    value = before;
                    from = call + 1;
                }
            }
        }
    }

    /// The first call from `from` on that can be next, and leads to something new.
    fn next(&mut self, from: usize, value: u32) -> Option<(usize, u32)> {
        // Whatever comes next must begin before any of the others has ended.
        let open = self.calls.iter().enumerate().filter(|(call, _)| !self.placed.has(*call));
        let bound = open.map(|(_, call)| call.ended).min().unwrap_or(u64::MAX);
        for at in from..self.calls.len() {
            let call = &self.calls[at];
            if call.begun > bound {
                break;
            }
            if self.placed.has(at) {
                continue;
            }
            let Some(after) = call.action.apply(value) else { continue };
            let mut placed = self.placed.clone();
            placed.flip(at);
            if self.seen.insert((placed, after)) {
                return Some((at, after));
            }
        }
        None
    }

    fn place(&mut self, call: usize) {
        self.placed.flip(call);
        self.unplaced -= usize::from(self.calls[call].ended != u64::MAX);
    }

    fn unplace(&mut self, call: usize) {
        self.placed.flip(call);
        self.unplaced += usize::from(self.calls[call].ended != u64::MAX);
    }
}

fn number_of<'c>(numbers: &mut BTreeMap<&'c [u8], u32>, value: Option<&'c Vec<u8>>) -> u32 {
    let Some(value) = value else { return ABSENT };
    let next = numbers.len() as u32 + 1;
    *numbers.entry(value).or_insert(next)
}

impl Action {
    /// The value after the call; none if the call cannot have had its answer.
    fn apply(self, value: u32) -> Option<u32> {
        match self {
            Self::Put(new) => Some(new),
            Self::Get(read) => (read == value).then_some(value),
            Self::Cas { expected, value: new, swapped } => {
                let swaps = expected == value;
                let fits = swapped.is_none_or(|swapped| swapped == swaps);
                fits.then_some(if swaps { new } else { value })
            }
        }
    }
}

#[cfg(test)]
mod tests;
