//! Whether each transaction saw one version of each bucket, and wrote on top of that.

use super::index::Index;
use crate::check::{Class, Violation};

/// A version of a bucket that a transaction saw.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    transaction: u32,
    item: u32,
    version: u64,
    /// Whether it was locked, or only read.
    is_base: bool,
}

pub(super) fn check(index: &Index<'_>, done: &[bool]) -> Result<(), Violation> {
    let reads = index.reads.iter().map(|read| Seen {
        transaction: read.transaction,
        item: read.item,
        version: read.version,
        is_base: false,
    });
    let bases = index.writes.iter().map(|write| Seen {
        transaction: write.transaction,
        item: write.item,
        version: write.version - 1,
        is_base: true,
    });
    let mut seen: Vec<_> =
        reads.chain(bases).filter(|seen| done[seen.transaction as usize]).collect();
    seen.sort_unstable();
    let differ = |pair: &&[Seen]| {
        let [first, second] = [pair[0], pair[1]];
        (first.transaction, first.item) == (second.transaction, second.item)
            && first.version != second.version
    };
    let Some(pair) = seen.windows(2).find(differ) else { return Ok(()) };
    // Sorted by version, so the first one is lower. Of equal versions, the base comes last.
    let (first, second) = (pair[0], pair[1]);
    let class = match second.is_base {
        true => Class::LostUpdate,
        false => Class::NonRepeatableRead,
    };
    let (id, item) = (index.id(first.transaction), index.items[first.item as usize]);
    let next = index.writes_at(first.item, first.version + 1);
    let next = next.iter().map(|write| write.transaction).find(|&at| done[at as usize]);
    let does = |seen: Seen| if seen.is_base { "overwrote" } else { "read" };
    let mut because = format!(
        "transaction {id} {} version {} of {item}, and {} version {}",
        does(first),
        first.version,
        does(second),
        second.version
    );
    let other = next.filter(|&next| next != first.transaction).map(|next| index.id(next));
    if let Some(other) = other {
        because += &format!("; transaction {other} made version {}", first.version + 1);
    }
    let transactions = [id].into_iter().chain(other).collect();
    Err(Violation { class, transactions, because: vec![because] })
}
