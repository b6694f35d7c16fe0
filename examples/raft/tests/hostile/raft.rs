//! Messages to a member that runs Raft.

use erpc_raft::consensus::{EntryKind, Members};
use erpc_raft::fuzz::{Fields, Sent, raft_messages};
use erpc_raft::wire::put_members;
use erpc_test_tools::random::Random;

/// Kinds of messages between nodes, as the library numbers them: entries, votes, snapshots,
/// heartbeats, hand-over and pre-votes, with their answers.
const KINDS: [u8; 10] = [3, 4, 5, 6, 7, 8, 9, 14, 17, 18];
const APPEND: u8 = 3;
const SNAPSHOT: u8 = 7;
const VOTE_RESPONSE: u8 = 6;
const PRE_VOTE_RESPONSE: u8 = 18;

/// A change of the members: removes or adds a few nodes, or is damaged.
fn change(random: &mut Random) -> Vec<u8> {
    // ConfChangeV2: field 1 is the kind of the transition, field 2 a change of a node, in which field
    // 1 is its kind, and field 2 the node.
    let mut bytes = vec![1 << 3, random.below(3) as u8];
    for _ in 0..random.below(4) {
        bytes.extend([2 << 3 | 2, 4, 1 << 3, random.below(4) as u8, 2 << 3, random.below(6) as u8]);
    }
    if random.below(8) == 0 {
        bytes.truncate(random.below(bytes.len() as u64) as usize);
    }
    bytes
}

fn entries(random: &mut Random, term: u64, index: u64) -> Vec<(EntryKind, u64, u64, Vec<u8>)> {
    let mut entries = Vec::new();
    for at in 1..=random.below(4) {
        let index = if random.below(20) == 0 { random.below(9) } else { index.wrapping_add(at) };
        let term = if random.below(8) == 0 { random.below(5) } else { term };
        let is_change = random.below(3) == 0;
        let kind = if is_change { EntryKind::Change } else { EntryKind::Command };
        entries.push((kind, term, index, if is_change { change(random) } else { vec![1] }));
    }
    entries
}

/// A message with numbers near those of a member that has just begun.
fn message(random: &mut Random) -> Sent {
    let kind = match random.below(3) {
        0 => APPEND,
        1 => *random.pick(&[VOTE_RESPONSE, PRE_VOTE_RESPONSE, 4, 9]),
        _ => *random.pick(&KINDS),
    };
    let mut numbers = [0; 7];
    numbers.iter_mut().for_each(|number| *number = random.below(5));
    if random.below(10) == 0 {
        numbers[random.below(7) as usize] = u64::MAX - random.below(3);
    }
    let [term, log_term, index, ..] = numbers;
    let entries =
        if kind == APPEND { entries(random, log_term.max(term.min(4)), index) } else { Vec::new() };
    let fields =
        Fields { kind, reject: random.below(4) == 0, numbers, entries, ..Fields::default() };
    let mut bytes = fields.encode();
    let mut data = None;
    if kind == SNAPSHOT {
        bytes[1] |= 2;
        bytes.extend_from_slice(&random.below(5).to_le_bytes());
        bytes.extend_from_slice(&random.below(8).to_le_bytes());
        let voters = (1..2 + random.below(4)).collect();
        put_members(&mut bytes, &Members { voters, ..Members::default() });
        data = Some(vec![0; random.below(3) as usize]);
    }
    (random.below(2) as u8, bytes, data)
}

#[test]
fn the_corpus_is_survived() {
    erpc_test_tools::corpus::survive("raft_messages", raft_messages);
}

#[test]
fn random_messages_are_survived() {
    let reached = crate::random_messages_are_survived(message, raft_messages);
    let least = reached.led.min(reached.applied).min(reached.changes).min(reached.snapshots);
    assert!(least >= 100, "{reached:?}");
}

#[test]
#[ignore = "writes files"]
fn write_the_seeds() {
    crate::write_the_seeds("raft_messages", message);
}
