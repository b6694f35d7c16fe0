//! The layouts of entries, members and messages, in packets and on disk: little-endian fields one after
//! another.

use bytes::Bytes;

use crate::consensus::{Entry, EntryKind, Members, Position};

/// The longest list of nodes.
const MAX_NODES: u32 = 1024;

/// Reads fields from bytes. Every function returns none if the bytes end too early.
#[derive(Clone, Debug)]
pub struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    /// Reads these bytes from their begin.
    #[must_use]
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether all was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The number of bytes left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*array)
    }

    /// A number.
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// A number.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A length of four bytes, and as many bytes.
    pub fn bytes(&mut self) -> Option<&'b [u8]> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    /// Like [`Reader::bytes`], without a copy: a slice of `whole`, which this reader reads.
    pub fn shared(&mut self, whole: &Bytes) -> Option<Bytes> {
        self.bytes().map(|bytes| whole.slice_ref(bytes))
    }
}

/// Appends a length of four bytes, and the bytes.
///
/// # Panics
/// If there are 4 GiB or more.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("the limits of requests are far below 4 GiB");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Appends an entry: kind, term, index, data, context.
pub fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    out.push(match entry.kind {
        EntryKind::Command => 0,
        EntryKind::Change => 1,
    });
    out.extend_from_slice(&entry.at.term.to_le_bytes());
    out.extend_from_slice(&entry.at.index.to_le_bytes());
    put_bytes(out, &entry.data);
    put_bytes(out, &entry.context);
}

/// Reads an entry. Its data are slices of `whole`.
pub fn entry(reader: &mut Reader<'_>, whole: &Bytes) -> Option<Entry> {
    let kind = match reader.u8()? {
        0 => EntryKind::Command,
        1 => EntryKind::Change,
        _ => return None,
    };
    let at = Position { term: reader.u64()?, index: reader.u64()? };
    Some(Entry { at, kind, data: reader.shared(whole)?, context: reader.shared(whole)? })
}

/// Appends members: four lists, each with its length, and a flag.
pub fn put_members(out: &mut Vec<u8>, members: &Members) {
    for list in [&members.voters, &members.learners, &members.outgoing, &members.learners_next] {
        out.extend_from_slice(&(list.len() as u32).to_le_bytes());
        list.iter().for_each(|node| out.extend_from_slice(&node.to_le_bytes()));
    }
    out.push(members.auto_leave.into());
}

/// Reads members. None if no cluster can have them: the library would end the process.
pub fn members(reader: &mut Reader<'_>) -> Option<Members> {
    let mut list = || {
        let len = reader.u32().filter(|len| *len <= MAX_NODES)?;
        (0..len).map(|_| reader.u64()).collect::<Option<Vec<_>>>()
    };
    let (voters, learners, outgoing, learners_next) = (list()?, list()?, list()?, list()?);
    let auto_leave = match reader.u8()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let members = Members { voters, learners, outgoing, learners_next, auto_leave };
    members.are_possible().then_some(members)
}
