//! The sessions of clients: for each its last write, so that a repeated one is not made again (Ongaro's
//! thesis, section 6.3).

use std::collections::BTreeMap;

/// Sessions at a time. One more ends the session that has not written for the longest time.
pub const MAX_SESSIONS: usize = 4096;

/// The last write of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Last {
    /// Its number; 0 if there was none.
    pub(super) sequence: u64,
    /// Whether it has set its key.
    pub(super) swapped: bool,
    /// The index of the entry, or of the one that has opened the session.
    pub(super) index: u64,
}

/// All sessions.
#[derive(Clone, Debug, Default)]
pub(super) struct Sessions {
    lasts: BTreeMap<u64, Last>,
}

impl Sessions {
    /// Opens the session `index`. Looks at all sessions if there are too many.
    pub(super) fn open(&mut self, index: u64) {
        if self.lasts.len() >= MAX_SESSIONS {
            let oldest = self.lasts.iter().min_by_key(|(_, last)| last.index);
            if let Some(oldest) = oldest.map(|(session, _)| *session) {
                self.lasts.remove(&oldest);
            }
        }
        self.lasts.insert(index, Last { index, ..Last::default() });
    }

    pub(super) fn get(&mut self, session: u64) -> Option<&mut Last> {
        self.lasts.get_mut(&session)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (u64, Last)> {
        self.lasts.iter().map(|(session, last)| (*session, *last))
    }

    pub(super) fn restore(&mut self, session: u64, last: Last) {
        self.lasts.insert(session, last);
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_SESSIONS, Sessions};

    #[test]
    fn the_session_that_was_idle_for_the_longest_time_ends() {
        let mut sessions = Sessions::default();
        (1..=MAX_SESSIONS as u64).for_each(|index| sessions.open(index));
        sessions.get(1).expect("it is open").index = 5000;
        sessions.open(6000);
        assert!(sessions.get(1).is_some() && sessions.get(2).is_none());
        assert_eq!(sessions.iter().len(), MAX_SESSIONS);
    }
}
