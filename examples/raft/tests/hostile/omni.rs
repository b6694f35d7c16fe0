//! Messages to a member that runs Omni-Paxos.

use erpc_raft::consensus::{Addresses, Entry, EntryKind, Position, Start};
use erpc_raft::fuzz::{Sent, omni_messages};
use erpc_raft::wire::{put_entry, put_members};
use erpc_test_tools::random::Random;

const PREPARE: u8 = 2;
const PREPARE_HANDOVER: u8 = 3;
const PROMISE: u8 = 4;
const ACCEPT_SYNC: u8 = 5;
const ACCEPT_DECIDE: u8 = 6;
const HEARTBEAT: u8 = 10;
const HEARTBEAT_REPLY: u8 = 11;
const KINDS: u8 = 15;

/// A small number, rarely a huge one.
fn number(random: &mut Random, bound: u64) -> u64 {
    if random.below(40) == 0 { u64::MAX - random.below(3) } else { random.below(bound) }
}

/// A ballot of one of the members, rarely of none.
fn term(random: &mut Random, of: u64) -> u64 {
    let node = if random.below(12) == 0 { random.below(6) } else { of };
    random.below(4) << 16 | node
}

fn put(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

/// Entries after `index`, which it moves.
fn put_entries(out: &mut Vec<u8>, random: &mut Random, index: &mut u64) {
    let count = random.below(4);
    out.extend_from_slice(&(count as u32).to_le_bytes());
    for _ in 0..count {
        *index = if random.below(40) == 0 { random.below(9) } else { index.wrapping_add(1) };
        let term = if random.below(20) == 0 { random.below(1 << 18) } else { 1 << 16 | 1 };
        let kind = if random.below(60) == 0 { EntryKind::Change } else { EntryKind::Command };
        let at = Position { term, index: *index };
        let (data, context) = (vec![1; random.below(3) as usize].into(), "".into());
        put_entry(out, &Entry { at, kind, data, context });
    }
}

/// A log: with nothing decided, with entries, or with a snapshot. Whether it is bulk, its bytes, what it
/// says is decided, and its end.
fn log(random: &mut Random) -> (bool, Vec<u8>, u64, u64) {
    let mut index = number(random, 5);
    let kind = random.below(3);
    let mut decided = Vec::new();
    match kind {
        1 => put_entries(&mut decided, random, &mut index),
        2 => {
            let addresses = [1, 2, 3].map(|id| (id, id.to_string()));
            let first = Start::first(Addresses(addresses.into())).snapshot;
            put(&mut decided, &[1 << 16 | 1, index]);
            let mut members = first.members;
            if random.below(10) == 0 {
                members.voters.pop();
            }
            put_members(&mut decided, &members);
            put(&mut decided, &[first.data.len() as u64]);
            decided.extend_from_slice(&first.data);
            put_entries(&mut decided, random, &mut index);
        }
        _ => {}
    }
    let mut out = Vec::new();
    put(&mut out, &[if random.below(20) == 0 { number(random, 8) } else { index }]);
    out.push(kind as u8);
    out.extend_from_slice(&decided);
    let sync = index;
    put_entries(&mut out, random, &mut index);
    let is_exact = kind > 0 && random.below(8) > 0;
    let decided = if is_exact { sync } else { random.below(index.wrapping_add(1).max(1)) };
    (kind == 2, out, decided, index)
}

/// A message with numbers near those of a member that has just begun.
fn message(random: &mut Random) -> Sent {
    let from = random.below(2);
    let kind = match random.below(4) {
        0 => random.within(1, KINDS.into()) as u8,
        1 => *random.pick(&[PREPARE, PREPARE_HANDOVER, HEARTBEAT_REPLY]),
        2 => PROMISE,
        _ => *random.pick(&[ACCEPT_SYNC, ACCEPT_DECIDE]),
    };
    let sender = from + 2;
    // Promises and acknowledgements name the member's own ballot.
    let own = matches!(kind, PROMISE | 7 | 8 | 13);
    let mut out = vec![kind];
    let n = match kind {
        HEARTBEAT => 0,
        _ => term(random, if own { 1 } else { sender }),
    };
    put(&mut out, &[n]);
    let mut bulk = None;
    match kind {
        PREPARE | PREPARE_HANDOVER => {
            let decided = number(random, 3);
            let accepted = term(random, sender);
            let end = decided.saturating_add(random.below(3));
            put(&mut out, &[decided, accepted, end]);
            if kind == PREPARE_HANDOVER {
                let agreed = random.below(4);
                put(&mut out, &[term(random, agreed)]);
            }
        }
        PROMISE | ACCEPT_SYNC => {
            let (is_bulk, bytes, decided, end) = log(random);
            let has_log = kind == ACCEPT_SYNC || random.below(3) > 0;
            let end = if has_log { end } else { number(random, 4) };
            let decided = if has_log { decided } else { random.below(end.wrapping_add(1).max(1)) };
            if kind == PROMISE {
                let accepted = term(random, sender);
                put(&mut out, &[accepted, decided, end]);
            } else {
                let session = number(random, 3);
                put(&mut out, &[session, 1, decided]);
            }
            match (has_log, is_bulk) {
                (false, _) => out.push(0),
                (true, false) => {
                    out.push(1);
                    out.extend_from_slice(&bytes);
                }
                (true, true) => {
                    out.push(2);
                    bulk = Some(bytes);
                }
            }
        }
        ACCEPT_DECIDE => {
            put(&mut out, &[number(random, 3), number(random, 5), number(random, 8)]);
            let mut index = number(random, 6);
            put_entries(&mut out, random, &mut index);
        }
        9 => put(&mut out, &[number(random, 3), number(random, 5), number(random, 8)]),
        HEARTBEAT_REPLY => {
            let leader = term(random, sender);
            put(&mut out, &[leader, random.below(12)]);
            out.push(random.below(2) as u8);
        }
        7 | HEARTBEAT | 12 | 13 => put(&mut out, &[number(random, 6)]),
        14 | 15 => put(&mut out, &[0]),
        _ => {}
    }
    if random.below(60) == 0 {
        out.truncate(random.below(out.len() as u64) as usize);
    }
    (from as u8, out, bulk)
}

#[test]
fn the_corpus_is_survived() {
    erpc_test_tools::corpus::survive("omni_messages", omni_messages);
}

#[test]
fn random_messages_are_survived() {
    let reached = crate::random_messages_are_survived(message, omni_messages);
    let least = reached.led.min(reached.applied).min(reached.snapshots);
    assert!(least >= 100, "{reached:?}");
}

#[test]
#[ignore = "writes files"]
fn write_the_seeds() {
    crate::write_the_seeds("omni_messages", message);
}
