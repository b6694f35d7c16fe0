//! Who appended each element, and who committed.

use std::collections::HashMap;

use super::{Operation, Transaction, violation};
use crate::check::graph::index;
use crate::check::{Class, Outcome, Violation};

/// An element that was appended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Append {
    pub(super) transaction: u32,
    /// Whether it is the last of its transaction for the key.
    pub(super) is_last: bool,
}

/// All elements of a history by key and element.
pub(super) struct Appends<'a> {
    pub(super) transactions: &'a [Transaction],
    elements: HashMap<(u64, u64), Append>,
}

impl<'a> Appends<'a> {
    pub(super) fn new(transactions: &'a [Transaction]) -> Result<Self, Violation> {
        let mut elements = HashMap::new();
        let mut last = HashMap::new();
        for (at, transaction) in transactions.iter().enumerate() {
            last.clear();
            for operation in &transaction.operations {
                let &Operation::Append { key, element } = operation else { continue };
                let append = Append { transaction: index(at), is_last: true };
                if let Some(first) = elements.insert((key, element), append) {
                    let first: &Transaction = &transactions[first.transaction as usize];
                    let because = format!("element {element} is appended to key {key} twice");
                    return Err(violation(Class::Malformed, [first.id, transaction.id], because));
                }
                if let Some(before) = last.insert(key, element)
                    && let Some(before) = elements.get_mut(&(key, before))
                {
                    before.is_last = false;
                }
            }
        }
        Ok(Self { transactions, elements })
    }

    pub(super) fn get(&self, key: u64, element: u64) -> Option<Append> {
        self.elements.get(&(key, element)).copied()
    }

    pub(super) fn id(&self, transaction: u32) -> u64 {
        self.transactions[transaction as usize].id
    }

    /// Says of each transaction whether it committed. One with unknown outcome did so if a transaction
    /// that committed read one of its elements.
    pub(super) fn resolve(&self) -> Vec<bool> {
        let committed = |t: &Transaction| t.outcome == Outcome::Committed;
        let mut done: Vec<bool> = self.transactions.iter().map(committed).collect();
        if self.transactions.iter().all(|t| t.outcome != Outcome::Unknown) {
            return done;
        }
        let mut open: Vec<usize> = (0..done.len()).filter(|&at| done[at]).collect();
        while let Some(at) = open.pop() {
            for operation in &self.transactions[at].operations {
                let Operation::Read { key, list } = operation else { continue };
                for append in list.iter().filter_map(|&element| self.get(*key, element)) {
                    let of = append.transaction as usize;
                    if !done[of] && self.transactions[of].outcome == Outcome::Unknown {
                        done[of] = true;
                        open.push(of);
                    }
                }
            }
        }
        done
    }
}
