//! Lists in the messages of the service [`Participant`](crate::proto::Participant), as bytes, so that
//! a handler reads them in the packet, and needs no memory for each item. All numbers are
//! little-endian.
//!
//! ```text
//! access   kind 1 | table 2 | key 8
//! place    table 2 | key 8
//! seen     table 2 | key 8 | version 8
//! outcome  verdict 1 | present 1 | bucket 4 | version 8 | length 4 | value
//! ```
//!
//! Kinds and verdicts have the numbers of their enums in `proto/txn.proto`. An outcome without a value
//! has a length of 0.
#![forbid(unsafe_code)]

use bytes::{Buf, Bytes};

use crate::participant::{Access, Found, Place, Seen};
use crate::proto::{self, Verdict};
use crate::steps::kind;
use crate::table::{Bucket, LockError, Version};

/// An item of a list. All items of a type have the same length.
pub trait Item: Sized {
    /// Its length in bytes.
    const LEN: usize;

    /// Appends its bytes.
    fn put(&self, out: &mut Vec<u8>);

    /// The item with these bytes, of which there are [`LEN`](Self::LEN). None if there is no such
    /// item.
    fn get(bytes: &[u8]) -> Option<Self>;
}

/// The bytes of a list.
#[must_use]
pub fn pack<'i, I: Item + 'i>(
    items: impl IntoIterator<Item = &'i I, IntoIter: ExactSizeIterator>,
) -> Bytes {
    let items = items.into_iter();
    let mut out = Vec::with_capacity(items.len() * I::LEN);
    items.for_each(|item| item.put(&mut out));
    out.into()
}

/// The list that has these bytes. None if no list has.
pub fn unpack<I: Item, L: FromIterator<I>>(bytes: &[u8]) -> Option<L> {
    let items = bytes.chunks_exact(I::LEN);
    if !items.remainder().is_empty() {
        return None;
    }
    items.map(I::get).collect()
}

impl Item for Access {
    const LEN: usize = 1 + Place::LEN;

    fn put(&self, out: &mut Vec<u8>) {
        out.push(proto::Kind::from(self.kind) as u8);
        self.place.put(out);
    }

    fn get(bytes: &[u8]) -> Option<Self> {
        let (&number, place) = bytes.split_first()?;
        Some(Self { place: Place::get(place)?, kind: kind(number.into())? })
    }
}

impl Item for Place {
    const LEN: usize = 10;

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.table.to_le_bytes());
        out.extend_from_slice(&self.key.to_le_bytes());
    }

    fn get(mut bytes: &[u8]) -> Option<Self> {
        Some(Self { table: bytes.try_get_u16_le().ok()?, key: bytes.try_get_u64_le().ok()? })
    }
}

impl Item for Seen {
    const LEN: usize = Place::LEN + 8;

    fn put(&self, out: &mut Vec<u8>) {
        self.place.put(out);
        out.extend_from_slice(&self.version.get().to_le_bytes());
    }

    fn get(bytes: &[u8]) -> Option<Self> {
        let (place, mut version) = bytes.split_at_checked(Place::LEN)?;
        let version = Version::new(version.try_get_u64_le().ok()?)?;
        Some(Self { place: Place::get(place)?, version })
    }
}

/// The outcome of one access, as its coordinator hears of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What became of the access.
    pub verdict: Verdict,
    /// The key's bucket.
    pub bucket: Bucket,
    /// The bucket's version; 0 after a conflict, or if the table is full.
    pub version: Version,
    /// The key's value, if it was read and is present.
    pub value: Option<Bytes>,
}

/// The length of an outcome without its value.
const OUTCOME: usize = 18;

/// Appends the outcome of an access.
pub(crate) fn put_found(found: &Found, out: &mut Vec<u8>) {
    let (verdict, version, value) = match &found.read {
        Ok(read) => (Verdict::Done, read.version, read.value.as_deref()),
        Err(LockError::Conflict(_)) => (Verdict::Conflict, Version::ZERO, None),
        Err(LockError::Absent(version)) => (Verdict::Absent, *version, None),
        Err(LockError::Present(version)) => (Verdict::Present, *version, None),
        Err(LockError::Full(_)) => (Verdict::TableFull, Version::ZERO, None),
    };
    put(verdict, found.bucket, version, value, out);
}

fn put(
    verdict: Verdict,
    bucket: Bucket,
    version: Version,
    value: Option<&[u8]>,
    out: &mut Vec<u8>,
) {
    let bytes = value.unwrap_or_default();
    // Exactly, so that the bytes of a single outcome become those of the message without a copy.
    out.reserve_exact(OUTCOME + bytes.len());
    out.extend_from_slice(&[verdict as u8, u8::from(value.is_some())]);
    out.extend_from_slice(&bucket.index().to_le_bytes());
    out.extend_from_slice(&version.get().to_le_bytes());
    // No value is longer than a message.
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// The outcomes of a reply.
#[derive(Clone, Debug)]
pub struct Outcomes(Bytes);

impl Outcomes {
    /// Outcomes that have these bytes. An item is an error if the bytes from it on are no outcome.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

/// Bytes are no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Iterator for Outcomes {
    type Item = Result<Outcome, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| {
            let outcome = next(&mut self.0).ok_or(Malformed);
            if outcome.is_err() {
                self.0.clear();
            }
            outcome
        })
    }
}

fn next(bytes: &mut Bytes) -> Option<Outcome> {
    let mut head: &[u8] = bytes.get(..OUTCOME)?;
    let verdict = Verdict::try_from(i32::from(head.get_u8())).ok()?;
    let present = head.get_u8();
    let bucket = Bucket::new(head.get_u32_le());
    let version = Version::new(head.get_u64_le())?;
    let len = head.get_u32_le() as usize;
    let is_valid = present <= 1 && (present == 1 || len == 0);
    if !is_valid || bytes.len() - OUTCOME < len {
        return None;
    }
    bytes.advance(OUTCOME);
    // The last value takes the bytes with it: a part of them would need memory of its own.
    let value = if bytes.len() == len { std::mem::take(bytes) } else { bytes.split_to(len) };
    Some(Outcome { verdict, bucket, version, value: (present == 1).then_some(value) })
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the outcomes of a reply are malformed")
    }
}

impl std::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::participant::Kind;

    const PLACE: Place = Place { table: 0x0102, key: 0x0304_0506_0708_090a };

    fn version(number: u64) -> Version {
        Version::new(number).expect("it is small")
    }

    #[test]
    fn lists_come_back() {
        let accesses =
            [Kind::Read, Kind::Update, Kind::Insert].map(|kind| Access { place: PLACE, kind });
        assert_eq!(unpack(&pack(&accesses)), Some(accesses.to_vec()));
        assert_eq!(pack(&accesses)[..11], [1, 2, 1, 10, 9, 8, 7, 6, 5, 4, 3]);
        let seen = [Seen { place: PLACE, version: version(9) }; 2];
        assert_eq!(unpack(&pack(&seen)), Some(seen.to_vec()));
        assert_eq!(unpack(&pack(&[PLACE])), Some(vec![PLACE]));
        assert_eq!(unpack::<Place, Vec<_>>(&[]), Some(Vec::new()));
    }

    #[test]
    fn other_bytes_are_no_lists() {
        let bytes = pack(&[Access { place: PLACE, kind: Kind::Read }]);
        for len in 1..bytes.len() {
            assert_eq!(unpack::<Access, Vec<_>>(&bytes[..len]), None, "{len} bytes");
        }
        for kind in [0, 4, 255] {
            let mut bytes = bytes.to_vec();
            bytes[0] = kind;
            assert_eq!(unpack::<Access, Vec<_>>(&bytes), None, "kind {kind}");
        }
        let mut seen = pack(&[Seen { place: PLACE, version: version(9) }]).to_vec();
        seen[Place::LEN..].fill(0xff);
        assert_eq!(unpack::<Seen, Vec<_>>(&seen), None, "no such version");
    }

    fn outcomes() -> (Vec<Outcome>, Bytes) {
        let outcome = |verdict, number, value: Option<&'static [u8]>| Outcome {
            verdict,
            bucket: Bucket::new(number),
            version: version(number.into()),
            value: value.map(Bytes::from_static),
        };
        let all = vec![
            outcome(Verdict::Done, 1, Some(b"one")),
            outcome(Verdict::Conflict, 0, None),
            outcome(Verdict::Done, 2, Some(b"")),
            outcome(Verdict::Done, 3, None),
            outcome(Verdict::Done, 4, Some(&[4; 100])),
        ];
        let mut bytes = Vec::new();
        for Outcome { verdict, bucket, version, value } in &all {
            put(*verdict, *bucket, *version, value.as_deref(), &mut bytes);
        }
        (all, bytes.into())
    }

    #[test]
    fn outcomes_come_back() {
        let (all, bytes) = outcomes();
        assert_eq!(Outcomes::new(bytes).collect::<Result<Vec<_>, _>>(), Ok(all));
    }

    #[test]
    fn truncated_outcomes_end_with_an_error() {
        let (all, bytes) = outcomes();
        let ends: Vec<_> = all
            .iter()
            .scan(0, |end, outcome| {
                *end += OUTCOME + outcome.value.as_ref().map_or(0, Bytes::len);
                Some(*end)
            })
            .collect();
        for len in 0..bytes.len() {
            let whole = ends.iter().filter(|&&end| end <= len).count();
            let is_cut = len > 0 && !ends.contains(&len);
            let read: Vec<_> = Outcomes::new(bytes.slice(..len)).collect();
            assert_eq!(read.len(), whole + usize::from(is_cut), "{len} bytes");
            assert!(
                read[..whole]
                    .iter()
                    .map(|read| read.as_ref().ok())
                    .eq(all[..whole].iter().map(Some))
            );
            assert!(read[whole..].iter().all(|read| *read == Err(Malformed)), "{len} bytes");
        }
    }

    #[test]
    fn an_absent_key_has_no_value() {
        let mut bytes = Vec::new();
        put(Verdict::Done, Bucket::new(1), version(1), Some(b"x"), &mut bytes);
        for present in [0, 2] {
            bytes[1] = present;
            let mut read = Outcomes::new(bytes.clone().into());
            assert_eq!(read.next(), Some(Err(Malformed)));
            assert_eq!(read.next(), None);
        }
    }
}
