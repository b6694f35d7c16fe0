//! The state as bytes, for snapshots: `magic, keys, sessions, addresses, CRC32C`.

use std::error::Error;
use std::fmt;

use bytes::Bytes;

use super::Machine;
use super::sessions::Last;
use crate::consensus::Addresses;
use crate::mutants::mutant;
use crate::wire::{self, Reader};

/// The last digit is the version.
const MAGIC: &[u8; 8] = b"raftkv01";

/// Bytes are no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageError {
    /// The bytes are those of something else, or of another version.
    Format,
    /// The bytes are damaged.
    Checksum,
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => "the snapshot has another format; run the version that wrote it",
            Self::Checksum => "the snapshot is damaged: its checksum is wrong",
        })
    }
}

impl Error for ImageError {}

pub(super) fn encode(machine: &Machine) -> Bytes {
    let mut values: Vec<_> = machine.values.iter().collect();
    values.sort_unstable();
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&(values.len() as u64).to_le_bytes());
    for (key, value) in values {
        wire::put_bytes(&mut out, key);
        wire::put_bytes(&mut out, value);
    }
    let sessions = machine.sessions.iter();
    out.extend_from_slice(&(sessions.len() as u64).to_le_bytes());
    for (session, mut last) in sessions {
        if mutant!(SnapshotForgetsSessions) {
            last.sequence = 0;
        }
        out.extend_from_slice(&session.to_le_bytes());
        out.extend_from_slice(&last.sequence.to_le_bytes());
        out.extend_from_slice(&last.index.to_le_bytes());
        out.push(last.swapped.into());
    }
    wire::put_bytes(&mut out, &machine.addresses.encode());
    out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
    out.into()
}

pub(super) fn decode(bytes: &[u8]) -> Result<Machine, ImageError> {
    if !bytes.starts_with(MAGIC) {
        return Err(ImageError::Format);
    }
    let (body, checksum) = bytes.split_last_chunk::<4>().ok_or(ImageError::Format)?;
    if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
        return Err(ImageError::Checksum);
    }
    fields(&body[MAGIC.len()..]).ok_or(ImageError::Format)
}

fn fields(bytes: &[u8]) -> Option<Machine> {
    let mut reader = Reader::new(bytes);
    let mut machine = Machine::default();
    for _ in 0..reader.u64()? {
        let (key, value) = (reader.bytes()?, reader.bytes()?);
        machine.values.insert(key.into(), value.into());
    }
    for _ in 0..reader.u64()? {
        let session = reader.u64()?;
        let (sequence, index) = (reader.u64()?, reader.u64()?);
        let swapped = reader.u8()? != 0;
        machine.sessions.restore(session, Last { sequence, swapped, index });
    }
    machine.addresses = Addresses::decode(reader.bytes()?)?;
    reader.is_empty().then_some(machine)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::ImageError;
    use crate::consensus::Addresses;
    use crate::machine::{Applied, Command, Machine};

    fn full() -> Machine {
        let addresses = BTreeMap::from([(1, "10.0.0.1:1".to_owned()), (2, String::new())]);
        let mut machine = Machine::new(Addresses(addresses));
        machine.apply(1, &Command::Open.encode());
        for sequence in 1..=100_u64 {
            let (key, value) = (sequence.to_le_bytes(), vec![7; sequence as usize]);
            let put = Command::Put { session: 1, sequence, key: &key, value: &value };
            machine.apply(1 + sequence, &put.encode());
        }
        machine
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let (machine, image) = (full(), full().encode());
        let mut read = Machine::decode(&image).expect("it is whole");
        assert_eq!(read.encode(), image);
        assert_eq!((read.keys(), read.addresses()), (100, machine.addresses()));
        let again = Command::Put { session: 1, sequence: 100, key: b"k", value: b"v" };
        assert_eq!(read.apply(200, &again.encode()), Applied::Written { swapped: true });
        assert_eq!(read.get(b"k"), None, "the session is forgotten");
    }

    #[test]
    fn each_damaged_byte_is_noticed() {
        let image = full().encode();
        for at in 0..image.len() {
            let mut damaged = image.to_vec();
            damaged[at] ^= 0x10;
            assert!(Machine::decode(&damaged).is_err(), "byte {at}");
            assert!(Machine::decode(&image[..at]).is_err(), "{at} bytes");
        }
        assert_eq!(Machine::decode(b"something else").expect_err("no image"), ImageError::Format);
    }
}
