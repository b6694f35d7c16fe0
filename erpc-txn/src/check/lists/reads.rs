//! What transactions that committed saw of each key: whether it agrees with their own appends, and
//! with who committed.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::appends::Appends;
use super::{Operation, violation};
use crate::check::graph::index;
use crate::check::{Class, Outcome, Violation};

/// What was read and appended of one key by transactions that committed.
#[derive(Default)]
pub(super) struct Key<'a> {
    /// All lists, with the transaction that read each.
    pub(super) lists: Vec<(u32, &'a [u64])>,
    /// The number of elements of others that a transaction read, once for each.
    pub(super) external: Vec<(u32, usize)>,
    /// The appends, in the order of each transaction.
    pub(super) appended: Vec<(u32, u64)>,
}

/// What a transaction has read and appended of a key so far.
#[derive(Default)]
struct Own<'a> {
    external: Option<&'a [u64]>,
    appended: Vec<u64>,
}

/// Collects the reads of all keys.
///
/// # Errors
///
/// If a single read shows that the history is not valid.
pub(super) fn collect<'a>(
    appends: &Appends<'a>,
    done: &[bool],
) -> Result<BTreeMap<u64, Key<'a>>, Violation> {
    let mut keys: BTreeMap<u64, Key<'a>> = BTreeMap::new();
    let mut elements = HashSet::new();
    for (at, transaction) in appends.transactions.iter().enumerate() {
        if !done[at] {
            continue;
        }
        let mut own: HashMap<u64, Own<'a>> = HashMap::new();
        for operation in &transaction.operations {
            match operation {
                &Operation::Append { key, element } => {
                    own.entry(key).or_default().appended.push(element);
                    keys.entry(key).or_default().appended.push((index(at), element));
                }
                Operation::Read { key, list } => {
                    let by = Reader { appends, at: index(at), key: *key, list };
                    by.check_elements(&mut elements)?;
                    let own = own.entry(*key).or_default();
                    let external = by.external(own)?;
                    let of = keys.entry(*key).or_default();
                    of.lists.push((index(at), list));
                    if own.external.is_none() {
                        by.check_last(external)?;
                        own.external = Some(external);
                        of.external.push((index(at), external.len()));
                    }
                }
            }
        }
    }
    Ok(keys)
}

/// One read.
struct Reader<'a, 'b> {
    appends: &'b Appends<'a>,
    at: u32,
    key: u64,
    list: &'a [u64],
}

impl<'a> Reader<'a, '_> {
    /// Checks that each element is there once, and that its transaction committed.
    fn check_elements(&self, seen: &mut HashSet<u64>) -> Result<(), Violation> {
        let id = self.appends.id(self.at);
        seen.clear();
        for &element in self.list {
            let what = format!("transaction {id} read element {element} of key {}", self.key);
            if !seen.insert(element) {
                return Err(violation(Class::DuplicateElement, [id], format!("{what} twice")));
            }
            let Some(append) = self.appends.get(self.key, element) else {
                let because = format!("{what}, which no transaction appended");
                return Err(violation(Class::WrongValue, [id], because));
            };
            let by = &self.appends.transactions[append.transaction as usize];
            if by.outcome == Outcome::Aborted {
                let because = format!("{what} of transaction {}, which aborted", by.id);
                return Err(violation(Class::G1a, [id, by.id], because));
            }
        }
        Ok(())
    }

    /// Checks that the list ends with what the transaction appended itself, and otherwise is the one
    /// that it read before. Returns the list without what it appended itself.
    fn external(&self, own: &Own<'a>) -> Result<&'a [u64], Violation> {
        let id = self.appends.id(self.at);
        let is_own = |element: &u64| {
            self.appends.get(self.key, *element).is_some_and(|by| by.transaction == self.at)
        };
        let external = self.list.strip_suffix(&own.appended[..]);
        let Some(external) = external.filter(|external| !external.iter().any(is_own)) else {
            let because = format!(
                "transaction {id} read {:?} of key {}, which must end with {:?}, its own appends by \
                 then",
                self.list, self.key, own.appended
            );
            return Err(violation(Class::Internal, [id], because));
        };
        match own.external {
            Some(before) if before != external => {
                let longer = if before.len() > external.len() { before } else { external };
                let other = longer.get(before.len().min(external.len()));
                let other = other.and_then(|&element| self.appends.get(self.key, element));
                let because = format!(
                    "transaction {id} read {before:?} of key {}, and then {external:?}",
                    self.key
                );
                let others = other.map(|other| self.appends.id(other.transaction));
                let transactions = [id].into_iter().chain(others);
                Err(violation(Class::NonRepeatableRead, transactions, because))
            }
            _ => Ok(external),
        }
    }

    /// Checks that the last element of others was the last of its transaction.
    fn check_last(&self, external: &[u64]) -> Result<(), Violation> {
        let Some(&last) = external.last() else { return Ok(()) };
        match self.appends.get(self.key, last) {
            Some(append) if !append.is_last => {
                let (id, by) = (self.appends.id(self.at), self.appends.id(append.transaction));
                let because = format!(
                    "transaction {id} read element {last} of key {} without those that transaction \
                     {by} appended after it",
                    self.key
                );
                Err(violation(Class::G1b, [id, by], because))
            }
            _ => Ok(()),
        }
    }
}
