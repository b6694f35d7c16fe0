//! Small histories, valid ones and others, compared with a search through all orders.

use std::collections::BTreeMap;

use proptest::prelude::*;

use erpc_test_tools::random::Random;

use super::generator::{Run, Shape};
use crate::check::history::Contents;
use crate::check::{History, Item, Outcome, Transaction};

/// Whether some order of the committed transactions, with any of those with unknown outcome, explains
/// the history.
fn has_order(history: &History) -> bool {
    let transactions: Vec<_> =
        history.transactions.iter().filter(|t| t.outcome != Outcome::Aborted).collect();
    let store = history.initial.clone();
    try_orders(&transactions, &mut vec![false; transactions.len()], &store)
}

type Store = BTreeMap<Item, Contents>;

fn try_orders(transactions: &[&Transaction], ran: &mut Vec<bool>, store: &Store) -> bool {
    let rest: Vec<usize> = (0..ran.len()).filter(|&at| !ran[at]).collect();
    let committed = |&&at: &&usize| transactions[at].outcome == Outcome::Committed;
    if rest.iter().find(committed).is_none() {
        return true;
    }
    // It runs before all others that may have to come first.
    let may_run = |next: &&usize| {
        let began = transactions[**next].began;
        rest.iter().filter(committed).all(|&at| transactions[at].ended >= began)
    };
    rest.iter().filter(may_run).copied().any(|at| {
        let Some(store) = run(transactions[at], store) else { return false };
        ran[at] = true;
        let found = try_orders(transactions, ran, &store);
        ran[at] = false;
        found
    })
}

/// The store after a transaction, if it can have run now.
fn run(transaction: &Transaction, store: &Store) -> Option<Store> {
    let mut store = store.clone();
    for read in &transaction.reads {
        let contents = store.entry(read.item).or_default();
        let value = contents.entries.iter().find(|(key, _)| *key == read.key).map(|entry| entry.1);
        if contents.version != read.version || value != read.value {
            return None;
        }
    }
    for write in &transaction.writes {
        let contents = store.entry(write.item).or_default();
        if contents.version != write.base {
            return None;
        }
        contents.version += 1;
        for &(key, value) in &write.entries {
            contents.entries.retain(|entry| entry.0 != key);
            contents.entries.extend(value.map(|value| (key, value)));
        }
    }
    Some(store)
}

/// Makes one thing wrong, perhaps.
fn spoil(history: &mut History, random: &mut Random) {
    let count = history.transactions.len() as u64;
    let at = random.below(count) as usize;
    let other = random.below(count) as usize;
    let what = random.below(9);
    let (began, ended) = {
        let other = &history.transactions[other];
        (other.began, other.ended)
    };
    let transaction = &mut history.transactions[at];
    let (reads, writes) = (transaction.reads.len() as u64, transaction.writes.len() as u64);
    match what {
        0 | 1 if reads > 0 => {
            let read = &mut transaction.reads[random.below(reads) as usize];
            let step = 1 + random.below(2);
            read.version = match random.percent(60) {
                true => read.version.saturating_sub(step),
                false => read.version + step,
            };
        }
        2 if reads > 0 => {
            let read = &mut transaction.reads[random.below(reads) as usize];
            read.value = random.percent(70).then(|| random.below(2));
        }
        3 | 4 if writes > 0 => {
            let write = &mut transaction.writes[random.below(writes) as usize];
            write.base = match random.percent(60) {
                true => write.base.saturating_sub(1),
                false => write.base + 1,
            };
        }
        5 => {
            transaction.outcome =
                [Outcome::Committed, Outcome::Aborted, Outcome::Unknown][random.below(3) as usize];
        }
        6 => (transaction.began, transaction.ended) = (began, ended),
        7 => {
            // Long before or after all others.
            let shift = random.below(2) * 500;
            (transaction.began, transaction.ended) = (400 + shift * 10, 410 + shift * 10);
        }
        8 if writes > 0 => drop(transaction.writes.remove(random.below(writes) as usize)),
        _ => {}
    }
}

/// Reads at other versions with the values that these versions have, so that most mistakes are in the
/// order of the transactions.
fn reread(history: &mut History, random: &mut Random) {
    let count = history.transactions.len() as u64;
    let at = random.below(count) as usize;
    let mut versions: BTreeMap<(Item, u64), Vec<(u64, u64)>> = BTreeMap::new();
    for (item, contents) in &history.initial {
        versions.insert((*item, contents.version), contents.entries.clone());
    }
    let mut writes: Vec<_> = history
        .transactions
        .iter()
        .filter(|t| t.outcome != Outcome::Aborted)
        .flat_map(|t| &t.writes)
        .collect();
    writes.sort_by_key(|write| write.base);
    for write in writes {
        let first = (write.base == 0).then(Vec::new);
        let before = versions.get(&(write.item, write.base)).cloned().or(first);
        let Some(mut entries) = before else { continue };
        for &(key, value) in &write.entries {
            entries.retain(|entry| entry.0 != key);
            entries.extend(value.map(|value| (key, value)));
        }
        versions.insert((write.item, write.base + 1), entries);
    }
    for read in &mut history.transactions[at].reads {
        let version = random.below(read.version + 3);
        if random.percent(70)
            && let Some(entries) = versions.get(&(read.item, version))
        {
            read.version = version;
            read.value = entries.iter().find(|entry| entry.0 == read.key).map(|entry| entry.1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]
    #[test]
    fn the_checker_agrees_with_a_search_through_all_orders(
        seed: u64,
        count in 1usize..7,
        items in 1u32..4,
        unknown in 0u64..40,
        mistakes in 0u8..4,
        rereads in 0u8..3,
        overlap in 0u64..60,
    ) {
        let shape = Shape {
            items, keys: 2, accesses: 3, values: 2, overlap, aborted: 10, unknown,
        };
        let mut run = Run::new(seed, shape);
        run.random(count);
        let (mut history, mut random) = (run.history, run.random);
        for _ in 0..rereads {
            reread(&mut history, &mut random);
        }
        for _ in 0..mistakes {
            spoil(&mut history, &mut random);
        }
        match history.check() {
            Ok(_) => prop_assert!(has_order(&history), "there is no order: {history:#?}"),
            Err(violation) => {
                prop_assert!(!has_order(&history), "there is an order: {violation}\n{history:#?}");
                prop_assert!(!violation.transactions.is_empty() && !violation.because.is_empty());
            }
        }
    }
}
