//! The checker of histories with the versions of buckets.

mod contents;
mod index;
mod outcomes;
mod repeats;

use std::collections::BTreeMap;

use super::cycles;
use super::graph::{Builder, Edge, Kind};
use super::history::Contents;
use super::{Class, Item, Outcome, Summary, Transaction, Violation};
use contents::Walk;
use index::Index;
use outcomes::{Choices, resolve};

/// How many combinations of transactions with unknown outcomes are tried, and how many accesses are
/// looked at in all of them together: a minute at most.
const ATTEMPTS: usize = 256;
const ACCESSES: usize = 20_000_000;

pub(super) fn check(
    initial: &BTreeMap<Item, Contents>,
    transactions: &[Transaction],
) -> Result<Summary, Violation> {
    let index = Index::new(initial, transactions)?;
    let mut choices = Choices::default();
    let mut likely: Option<Violation> = None;
    let accesses = index.reads.len() + index.writes.len();
    let attempts = ATTEMPTS.min(ACCESSES / accesses.max(1)).max(8);
    for _ in 0..attempts {
        let violation = match attempt(&index, &mut choices) {
            Ok(summary) => return Ok(summary),
            Err(violation) => violation,
        };
        // The first choice is the likely one. But a wrong choice shows in versions and values.
        let is_of_order = |violation: &Violation| violation.class > Class::WrongValue;
        let likely = match likely.take() {
            Some(other) if is_of_order(&other) || !is_of_order(&violation) => likely.insert(other),
            _ => likely.insert(violation),
        };
        if !choices.advance() {
            return Err(likely.clone());
        }
    }
    let because = format!(
        "too many transactions with unknown outcomes may have made the same versions: {attempts} \
         combinations are not valid, and there are more; one of them"
    );
    let (transactions, lines) =
        likely.map(|found| (found.transactions, found.because)).unwrap_or_default();
    let because = [because].into_iter().chain(lines).collect();
    Err(Violation { class: Class::Undecided, transactions, because })
}

/// Checks the history with one choice of the transactions with unknown outcomes that committed.
fn attempt(index: &Index<'_>, choices: &mut Choices) -> Result<Summary, Violation> {
    let done = resolve(index, choices);
    let mut summary = count(index, &done);
    let mut builder = Builder::new(index.transactions.len());
    Walk { index, done: &done, builder: &mut builder, summary: &mut summary }.all()?;
    repeats::check(index, &done)?;
    let spans = index.transactions.iter().enumerate().filter(|(at, _)| done[*at]);
    builder.real_time(
        spans.map(|(at, t)| {
            (at as u32, t.began, (t.outcome != Outcome::Unknown).then_some(t.ended))
        }),
    );
    let Some((class, cycle)) = cycles::find(&builder.build()) else { return Ok(summary) };
    Err(Violation {
        class,
        transactions: cycle.iter().map(|edge| index.id(edge.from)).collect(),
        because: cycle.iter().map(|edge| explain(index, edge)).collect(),
    })
}

fn count(index: &Index<'_>, done: &[bool]) -> Summary {
    let mut summary = Summary::default();
    for (transaction, &done) in index.transactions.iter().zip(done) {
        *match (transaction.outcome, done) {
            (Outcome::Committed, _) => &mut summary.committed,
            (Outcome::Aborted, _) => &mut summary.aborted,
            (Outcome::Unknown, true) => &mut summary.unknown_seen,
            (Outcome::Unknown, false) => &mut summary.unknown_unseen,
        } += 1;
    }
    summary
}

/// An edge in words.
fn explain(index: &Index<'_>, edge: &Edge) -> String {
    let (from, to) = (index.id(edge.from), index.id(edge.to));
    let (version, next) = (edge.version, edge.version.saturating_add(1));
    let item = || index.items[edge.place as usize];
    let because = match edge.kind {
        Kind::WriteWrite => format!(
            "transaction {from} made version {version} of {}, and transaction {to} overwrote it",
            item()
        ),
        Kind::WriteRead => format!(
            "transaction {from} made version {version} of {}, and transaction {to} read {} there",
            item(),
            index.keys(edge.to, edge.place, version)
        ),
        Kind::ReadWrite => format!(
            "transaction {from} read {} at version {version} of {}, and transaction {to} made \
             version {next}",
            index.keys(edge.from, edge.place, version),
            item()
        ),
        Kind::RealTime | Kind::Through => format!(
            "transaction {from} ended at {} ns, and transaction {to} began at {} ns",
            index.transactions[edge.from as usize].ended,
            index.transactions[edge.to as usize].began
        ),
    };
    format!("{from} before {to}: {because}")
}
