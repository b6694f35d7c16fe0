//! The order of the elements of a key, and which orders of transactions follow.

use std::collections::{HashMap, HashSet};

use super::appends::Appends;
use super::reads::Key;
use super::violation;
use crate::check::graph::{Builder, Kind};
use crate::check::{Class, Summary, Violation};

/// Adds the edges of a key.
///
/// # Errors
///
/// If the reads contradict each other, or an update was lost.
pub(super) fn add(
    appends: &Appends<'_>,
    key: u64,
    reads: &Key<'_>,
    builder: &mut Builder,
    place: usize,
    summary: &mut Summary,
) -> Result<(), Violation> {
    let list = longest(appends, key, reads)?;
    summary.versions += list.len();
    // The elements have appenders: a read of others was refused.
    let order: Vec<u32> =
        list.iter().filter_map(|&element| Some(appends.get(key, element)?.transaction)).collect();
    let positions: HashMap<u64, usize> =
        list.iter().enumerate().map(|(at, &element)| (element, at)).collect();
    check_own_order(appends, key, reads, &positions)?;
    let mut unread = Vec::new();
    // The position of the first append of each transaction.
    let mut firsts: HashMap<u32, usize> = HashMap::new();
    for &(transaction, element) in &reads.appended {
        let position = positions.get(&element).copied();
        firsts.entry(transaction).or_insert(position.unwrap_or(order.len()));
        if position.is_none() && unread.last() != Some(&transaction) {
            unread.push(transaction);
        }
    }
    check_updates(appends, key, reads, &order, &firsts, &unread)?;

    let mut edge = |from, to, kind, count: usize| {
        let added = builder.edge(from, to, kind, place, count as u64);
        let number = match kind {
            Kind::WriteWrite => &mut summary.write_write,
            Kind::WriteRead => &mut summary.write_read,
            _ => &mut summary.read_write,
        };
        *number += usize::from(added);
    };
    for (at, pair) in order.windows(2).enumerate() {
        edge(pair[0], pair[1], Kind::WriteWrite, at + 1);
    }
    if let Some(&last) = order.last() {
        unread.iter().for_each(|&next| edge(last, next, Kind::WriteWrite, order.len()));
    }
    for &(reader, count) in &reads.external {
        if let Some(&writer) = count.checked_sub(1).and_then(|last| order.get(last)) {
            edge(writer, reader, Kind::WriteRead, count);
        }
        if let Some(&next) = order.get(count) {
            edge(reader, next, Kind::ReadWrite, count);
        }
    }
    read_all(reads, &order, &unread, builder, place);
    Ok(())
}

/// Adds the edges from transactions that read all elements that were ever read to those that appended
/// others.
fn read_all(reads: &Key<'_>, order: &[u32], unread: &[u32], builder: &mut Builder, place: usize) {
    if unread.is_empty() {
        return;
    }
    let count = order.len() as u64;
    let appenders: HashSet<u32> = unread.iter().copied().collect();
    let all = || reads.external.iter().filter(|read| read.1 == order.len()).map(|read| read.0);
    let junction = builder.junction();
    for reader in all().filter(|reader| !appenders.contains(reader)) {
        builder.edge(reader, junction, Kind::ReadWrite, place, count);
    }
    for &next in unread {
        builder.edge(junction, next, Kind::Through, place, count);
    }
    // At most one, or an update was lost. It must not come before itself.
    for reader in all().filter(|reader| appenders.contains(reader)) {
        unread.iter().for_each(|&next| {
            builder.edge(reader, next, Kind::ReadWrite, place, count);
        });
    }
}

/// The longest list that was read. All others must be its beginnings.
fn longest<'a>(appends: &Appends<'_>, key: u64, reads: &Key<'a>) -> Result<&'a [u64], Violation> {
    let Some(&(by, longest)) = reads.lists.iter().max_by_key(|(_, list)| list.len()) else {
        return Ok(&[]);
    };
    match reads.lists.iter().find(|(_, list)| !longest.starts_with(list)) {
        None => Ok(longest),
        Some(&(other, list)) => {
            let at = longest.iter().zip(list).take_while(|(a, b)| a == b).count();
            let (by, other) = (appends.id(by), appends.id(other));
            let because = format!(
                "transaction {by} read {} as element {} of key {key}, and transaction {other} read {}",
                longest[at],
                at + 1,
                list[at]
            );
            Err(violation(Class::IncompatibleOrder, [by, other], because))
        }
    }
}

/// Checks that the elements of each transaction are in its order, without any missing in between.
fn check_own_order(
    appends: &Appends<'_>,
    key: u64,
    reads: &Key<'_>,
    positions: &HashMap<u64, usize>,
) -> Result<(), Violation> {
    let position = |element| positions.get(&element).copied().unwrap_or(usize::MAX);
    let is_wrong = |pair: &&[(u32, u64)]| {
        let [(first, before), (second, after)] = [pair[0], pair[1]];
        first == second && position(before) > position(after)
    };
    let Some(pair) = reads.appended.windows(2).find(is_wrong) else { return Ok(()) };
    let [(at, before), (_, after)] = [pair[0], pair[1]];
    let id = appends.id(at);
    let because = format!(
        "transaction {id} appended {before} to key {key} before {after}, but others read {after} \
         without {before} before it"
    );
    Err(violation(Class::IncompatibleOrder, [id], because))
}

/// Checks that transactions that read a key and append to it have read all elements before theirs.
fn check_updates(
    appends: &Appends<'_>,
    key: u64,
    reads: &Key<'_>,
    order: &[u32],
    firsts: &HashMap<u32, usize>,
    unread: &[u32],
) -> Result<(), Violation> {
    let lost = |by: u32, count: usize, other: u32| {
        let (by, other) = (appends.id(by), appends.id(other));
        let because = format!(
            "transaction {by} read {count} elements of key {key} and appended to them, but transaction \
             {other} appended the next one"
        );
        Err(violation(Class::LostUpdate, [by, other], because))
    };
    let appenders: HashSet<u32> = unread.iter().copied().collect();
    let mut at_end: Option<u32> = None;
    for &(reader, count) in &reads.external {
        let Some(&first) = firsts.get(&reader) else { continue };
        if first > count {
            return lost(reader, count, order[count]);
        }
        if first == order.len()
            && count == first
            && appenders.contains(&reader)
            && let Some(other) = at_end.replace(reader)
        {
            return lost(reader, count, other);
        }
    }
    Ok(())
}
