//! The sessions of each client endpoint, in doubly linked lists.

use crate::protocol::index::SessionIndex;

/// One linked list of sessions per client endpoint. The owner stores the head of each list.
#[derive(Default)]
pub(super) struct Siblings {
    links: Vec<Links>,
}

/// A session's neighbours in the list.
#[derive(Clone, Copy, Default)]
struct Links {
    before: Option<SessionIndex>,
    after: Option<SessionIndex>,
}

impl Siblings {
    fn links(&mut self, session: SessionIndex) -> &mut Links {
        let at = session.get() as usize;
        if at >= self.links.len() {
            self.links.resize(at + 1, Links::default());
        }
        &mut self.links[at]
    }

    /// Puts a session in front of the list that begins with `head`; `None` starts a new list.
    pub(super) fn insert(&mut self, session: SessionIndex, head: Option<SessionIndex>) {
        *self.links(session) = Links { before: None, after: head };
        if let Some(head) = head {
            self.links(head).before = Some(session);
        }
    }

    /// Takes a session out of its list. Returns the next session in the list, if any.
    pub(super) fn remove(&mut self, session: SessionIndex) -> Option<SessionIndex> {
        let Links { before, after } = std::mem::take(self.links(session));
        if let Some(before) = before {
            self.links(before).after = after;
        }
        if let Some(after) = after {
            self.links(after).before = before;
        }
        after
    }

    /// Checks the list that begins with `head`. Returns its length.
    ///
    /// # Panics
    /// If the list is broken.
    pub(super) fn check_list(&self, head: SessionIndex) -> usize {
        let (mut before, mut next, mut len) = (None, Some(head), 0);
        while let Some(session) = next {
            let links = self.links[session.get() as usize];
            assert_eq!(links.before, before, "the links of a client endpoint's session list match");
            (before, next, len) = (next, links.after, len + 1);
            assert!(len <= self.links.len(), "a session list has no cycle");
        }
        len
    }
}
