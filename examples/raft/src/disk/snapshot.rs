//! Files with one snapshot: `magic, term, index, members, data, CRC32C`.

use bytes::Bytes;

use crate::consensus::{Position, Snapshot};
use crate::wire::{self, Reader};

/// The last digit is the version.
const MAGIC: &[u8; 8] = b"raftsn01";

/// The name of the file of a snapshot. The names of later snapshots are greater.
pub(super) fn name(index: u64) -> String {
    format!("snapshot-{index:020}")
}

pub(super) fn is_name(name: &str) -> bool {
    name.starts_with("snapshot-")
}

pub(super) fn encode(snapshot: &Snapshot) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.reserve(snapshot.data.len() + 256);
    out.extend_from_slice(&snapshot.at.term.to_le_bytes());
    out.extend_from_slice(&snapshot.at.index.to_le_bytes());
    wire::put_members(&mut out, &snapshot.members);
    out.extend_from_slice(&snapshot.data);
    out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
    out
}

/// The snapshot with these bytes; none if they are damaged.
pub(super) fn decode(bytes: Bytes) -> Option<Snapshot> {
    let (body, checksum) = bytes.split_last_chunk::<4>()?;
    if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let mut reader = Reader::new(body.strip_prefix(MAGIC)?);
    let at = Position { term: reader.u64()?, index: reader.u64()? };
    let members = wire::members(&mut reader)?;
    let data = reader.take(reader.left())?;
    Some(Snapshot { at, members, data: bytes.slice_ref(data) })
}
