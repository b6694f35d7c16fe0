//! The replicated state: keys with their values, and the sessions of clients.
//!
//! All nodes apply the same commands in the same order, so the state depends on nothing else: not on
//! time, and not on the order of a hash table.

mod command;
mod image;
mod sessions;

use std::collections::HashMap;

use bytes::Bytes;
pub use command::{Command, MAX_KEY, MAX_VALUE, check_key, check_value};
pub use image::ImageError;
pub use sessions::MAX_SESSIONS;
use sessions::{Last, Sessions};

use crate::consensus::Addresses;
use crate::mutants::mutant;

/// What a command has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Nothing: no command, or one that is damaged, or a change of the members that cannot be made.
    Nothing,
    /// The members have begun to change: a majority of the old ones is needed, too.
    Changing,
    /// The members have changed.
    Changed,
    /// Opened this session.
    Opened(u64),
    /// The write is done, now or before. `swapped` is false if the key did not have the expected
    /// value.
    Written {
        /// Whether the key was set.
        swapped: bool,
    },
    /// The session does not exist.
    Expired,
    /// The session has made a later write.
    Stale,
}

/// The replicated state.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    values: HashMap<Box<[u8]>, Box<[u8]>>,
    sessions: Sessions,
    addresses: Addresses,
}

impl Machine {
    /// Without keys and sessions.
    #[must_use]
    pub fn new(addresses: Addresses) -> Self {
        Self { addresses, ..Self::default() }
    }

    /// Applies the command of the entry at `index`.
    pub fn apply(&mut self, index: u64, command: &[u8]) -> Applied {
        match Command::decode(command) {
            None => Applied::Nothing,
            Some(Command::Open) => {
                self.sessions.open(index);
                Applied::Opened(index)
            }
            Some(Command::Put { session, sequence, key, value }) => {
                self.write(index, session, sequence, |values| {
                    values.insert(key.into(), value.into());
                    true
                })
            }
            Some(Command::Cas { session, sequence, key, expected, value }) => {
                self.write(index, session, sequence, |values| {
                    let found = values.get(key).map(AsRef::as_ref);
                    let swaps = found == expected || mutant!(CasIgnoresExpected);
                    if swaps {
                        values.insert(key.into(), value.into());
                    }
                    swaps
                })
            }
        }
    }

    /// Makes a write unless it was made before.
    fn write(
        &mut self,
        index: u64,
        session: u64,
        sequence: u64,
        write: impl FnOnce(&mut HashMap<Box<[u8]>, Box<[u8]>>) -> bool,
    ) -> Applied {
        let Some(last) = self.sessions.get(session) else { return Applied::Expired };
        if sequence < last.sequence {
            return Applied::Stale;
        }
        if sequence == last.sequence && !mutant!(AppliedTwice) {
            return Applied::Written { swapped: last.swapped };
        }
        let swapped = write(&mut self.values);
        *last = Last { sequence, swapped, index };
        Applied::Written { swapped }
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.values.get(key).map(AsRef::as_ref)
    }

    /// The number of keys.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.values.len()
    }

    /// The addresses of the nodes.
    #[must_use]
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Adds the addresses that come with a change of the members, and keeps those of members only.
    pub fn set_addresses(&mut self, added: Addresses, members: &[u64]) {
        self.addresses.0.extend(added.0);
        self.addresses.0.retain(|node, _| members.contains(node));
    }

    /// All of the state as bytes. Equal states have equal bytes. Takes a time in proportion to the
    /// state, in which the node does nothing else.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        image::encode(self)
    }

    /// The state with these bytes.
    ///
    /// # Errors
    /// [`ImageError`]
    pub fn decode(bytes: &[u8]) -> Result<Self, ImageError> {
        image::decode(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{Applied, Command, Machine};

    fn put(session: u64, sequence: u64, value: &[u8]) -> Vec<u8> {
        Command::Put { session, sequence, key: b"k", value }.encode()
    }

    fn cas(sequence: u64, expected: Option<&[u8]>, value: &[u8]) -> Vec<u8> {
        Command::Cas { session: 1, sequence, key: b"k", expected, value }.encode()
    }

    fn opened() -> Machine {
        let mut machine = Machine::default();
        assert_eq!(machine.apply(1, &Command::Open.encode()), Applied::Opened(1));
        machine
    }

    const DONE: Applied = Applied::Written { swapped: true };

    #[test]
    fn a_repeated_write_is_answered_and_not_made() {
        let mut machine = opened();
        assert_eq!(machine.apply(2, &put(1, 1, b"a")), DONE);
        assert_eq!(machine.apply(3, &cas(2, Some(b"a"), b"b")), DONE);
        assert_eq!(machine.apply(4, &cas(2, Some(b"a"), b"b")), DONE, "it would fail now");
        assert_eq!(machine.apply(5, &put(1, 1, b"a")), Applied::Stale);
        assert_eq!(machine.get(b"k"), Some(&b"b"[..]));
    }

    #[test]
    fn a_failed_cas_fails_again_when_repeated() {
        let mut machine = opened();
        assert_eq!(
            machine.apply(2, &cas(1, Some(b"a"), b"b")),
            Applied::Written { swapped: false }
        );
        machine.apply(3, &Command::Open.encode());
        assert_eq!(machine.apply(4, &put(3, 1, b"a")), DONE);
        assert_eq!(
            machine.apply(5, &cas(1, Some(b"a"), b"b")),
            Applied::Written { swapped: false }
        );
        assert_eq!(machine.get(b"k"), Some(&b"a"[..]));
    }

    #[test]
    fn a_write_of_an_unknown_session_is_not_made() {
        let mut machine = opened();
        assert_eq!(machine.apply(2, &put(7, 1, b"a")), Applied::Expired);
        assert_eq!(machine.get(b"k"), None);
    }

    #[test]
    fn damaged_commands_do_nothing() {
        let mut machine = opened();
        let whole = cas(1, None, b"value");
        for len in 0..whole.len() {
            assert_eq!(machine.apply(2, &whole[..len]), Applied::Nothing, "{len} bytes");
        }
        let longer = [&whole[..], &[0]].concat();
        assert_eq!(machine.apply(2, &longer), Applied::Nothing);
        assert_eq!(machine.keys(), 0);
    }
}
