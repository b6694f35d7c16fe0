//! A member that gets any messages, for fuzzers and tests.

use bytes::Bytes;

use crate::consensus::omni::{self, OmniCore};
use crate::consensus::raft::{self, RaftCore};
use crate::consensus::{
    Addresses, Consensus, Effects, Entry, EntryKind, Position, Role, Start, StepError,
};
use crate::wire::{Reader, put_bytes};

/// How far a member came. It shows whether inputs reach what they shall test.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reached {
    /// Messages that it took as the leader.
    pub led: u64,
    /// Entries that it applied.
    pub applied: u64,
    /// Changes of the members among them.
    pub changes: u64,
    /// Snapshots that it installed.
    pub snapshots: u64,
}

/// The member at work, and what holds for it.
struct Member<C> {
    core: C,
    reached: Reached,
    /// The last applied entry.
    applied: u64,
    term: u64,
}

/// Feeds one of three members with messages of the two others, and panics if it finds a bug.
///
/// The first byte is the number of ticks before the first message; with enough of them the member
/// begins an election, and a vote among the messages makes it the leader. Then follow messages: a byte
/// for the sender, the length (four bytes), the bytes of the message, the length of the snapshot's
/// data (four bytes) and these data, or `0xffff_ffff` for none.
///
/// What is checked: a decoded message encodes to the same bytes. The library does not end the process.
/// The term never falls. Committed entries follow each other, and each change of the members leaves
/// possible ones.
///
/// # Panics
/// If one of these does not hold.
pub fn raft_messages(data: &[u8]) -> Reached {
    let settings = raft::Settings { node: 1, election_ticks: 10, heartbeat_ticks: 3, seed: 1 };
    peer_messages(data, |start| RaftCore::new(&settings, start))
}

/// The same for a member that runs Omni-Paxos.
///
/// # Panics
/// As [`raft_messages`].
pub fn omni_messages(data: &[u8]) -> Reached {
    let settings = omni::Settings { node: 1, election_ticks: 10 };
    peer_messages(data, |start| OmniCore::new(&settings, start))
}

fn peer_messages<C: Consensus>(
    data: &[u8],
    core: impl FnOnce(&Start) -> Result<C, String>,
) -> Reached {
    let mut reader = Reader::new(data);
    let Some(ticks) = reader.u8() else { return Reached::default() };
    let addresses = Addresses([1, 2, 3].map(|id| (id, id.to_string())).into());
    let core = core(&Start::first(addresses)).expect("the settings are valid");
    let mut member = Member { core, reached: Reached::default(), applied: 1, term: 1 };
    for _ in 0..ticks {
        member.core.tick();
        member.work();
    }
    while let Some((from, bytes, data)) = next(&mut reader) {
        let Ok(message) = C::decode(bytes.clone(), data.clone()) else { continue };
        let mut again = Vec::new();
        C::encode(&message, &mut again);
        assert_eq!(again, bytes, "the message encodes to other bytes");
        assert_eq!(C::bulk(&message), data, "the message has another bulk");
        match member.core.step(from, message) {
            Ok(()) | Err(StepError::Wrong(_)) => member.work(),
            Err(StepError::Lost { .. }) => return member.reached,
        }
        if member.core.status().role == Role::Leader {
            member.reached.led += 1;
            // An error only says that the leader is busy.
            let _ = member.core.propose(vec![Bytes::from_static(b"command")]);
            member.work();
        }
    }
    member.reached
}

/// The number of the sender, the bytes of a message, and the data of its snapshot.
pub type Sent = (u8, Vec<u8>, Option<Vec<u8>>);

/// An input of [`raft_messages`] or [`omni_messages`].
#[must_use]
pub fn input(ticks: u8, messages: &[Sent]) -> Vec<u8> {
    let mut out = vec![ticks];
    for (from, bytes, data) in messages {
        out.push(*from);
        put_bytes(&mut out, bytes);
        match data {
            Some(data) => put_bytes(&mut out, data),
            None => out.extend_from_slice(&u32::MAX.to_le_bytes()),
        }
    }
    out
}

fn next(reader: &mut Reader<'_>) -> Option<(u64, Bytes, Option<Bytes>)> {
    let from = 2 + u64::from(reader.u8()? % 2);
    let bytes = Bytes::copy_from_slice(reader.bytes()?);
    let data = match reader.u32()? {
        u32::MAX => None,
        len => Some(Bytes::copy_from_slice(reader.take(len as usize)?)),
    };
    Some((from, bytes, data))
}

impl<C: Consensus> Member<C> {
    /// Does what is to be done.
    fn work(&mut self) {
        let mut effects = Effects::default();
        // The library may have more to do after each step. A bound shows a loop without end.
        for _ in 0..100 {
            if !self.core.poll(&mut effects) {
                let term = self.core.status().term;
                assert!(term >= self.term, "the term falls from {} to {term}", self.term);
                self.term = term;
                return;
            }
            if let Some(snapshot) = effects.install.take() {
                assert!(snapshot.at.index > self.applied, "an old snapshot is installed");
                assert!(snapshot.members.are_possible(), "{:?}", snapshot.members);
                self.applied = snapshot.at.index;
                self.reached.snapshots += 1;
            }
            for entry in effects.committed.drain(..) {
                self.apply(&entry);
            }
            if let Some(write) = effects.write.take() {
                self.core.persisted(write.ticket);
            }
            self.core.applied(self.applied);
            effects = Effects::default();
        }
        panic!("the member always has more to do");
    }

    fn apply(&mut self, entry: &Entry) {
        assert_eq!(entry.at.index, self.applied + 1, "committed entries follow each other");
        assert!(entry.at.term <= self.core.status().term, "an entry of a later term");
        self.applied = entry.at.index;
        self.reached.applied += 1;
        if entry.kind == EntryKind::Change {
            let before = self.core.members();
            let is_made = self.core.apply_change(entry);
            let members = self.core.members();
            assert!(is_made || members == before, "{members:?}");
            assert!(members.are_possible(), "{members:?}");
            self.reached.changes += 1;
        }
    }
}

/// The bytes of a message of this kind, for [`raft_messages`].
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// The kind, a number of the library's `MessageType`.
    pub kind: u8,
    /// Whether the message refuses.
    pub reject: bool,
    /// Term, term and index of the entry before, commit index and its term, index of a wanted
    /// snapshot, hint of a refusal.
    pub numbers: [u64; 7],
    /// The context.
    pub context: Vec<u8>,
    /// Kind, term, index and data of the entries.
    pub entries: Vec<(EntryKind, u64, u64, Vec<u8>)>,
}

impl Fields {
    /// The bytes of the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.kind, u8::from(self.reject)];
        self.numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        put_bytes(&mut out, &self.context);
        out.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        for (kind, term, index, data) in &self.entries {
            let at = Position { term: *term, index: *index };
            let (data, context) = (Bytes::copy_from_slice(data), Bytes::new());
            crate::wire::put_entry(&mut out, &Entry { at, kind: *kind, data, context });
        }
        out
    }
}
