//! The commands in the log.

use crate::wire::{self, Reader};

/// The longest key, in bytes. The shortest has one.
pub const MAX_KEY: usize = 1024;
/// The longest value, in bytes.
pub const MAX_VALUE: usize = 64 << 10;

const OPEN: u8 = 1;
const PUT: u8 = 2;
const CAS: u8 = 3;

/// A command: a byte for its kind, then its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'b> {
    /// Opens a session, whose number is the command's index.
    Open,
    /// Sets a key.
    Put {
        /// The session.
        session: u64,
        /// The number of the write in its session.
        sequence: u64,
        /// The key.
        key: &'b [u8],
        /// Its value.
        value: &'b [u8],
    },
    /// Sets a key that has an expected value.
    Cas {
        /// The session.
        session: u64,
        /// The number of the write in its session.
        sequence: u64,
        /// The key.
        key: &'b [u8],
        /// The expected value. None: the key must be absent.
        expected: Option<&'b [u8]>,
        /// The new value.
        value: &'b [u8],
    },
}

impl<'b> Command<'b> {
    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let begin = |kind: u8, session: u64, sequence: u64, key: &[u8], more: usize| {
            let mut out = Vec::with_capacity(30 + key.len() + more);
            out.push(kind);
            out.extend_from_slice(&session.to_le_bytes());
            out.extend_from_slice(&sequence.to_le_bytes());
            wire::put_bytes(&mut out, key);
            out
        };
        match *self {
            Self::Open => vec![OPEN],
            Self::Put { session, sequence, key, value } => {
                let mut out = begin(PUT, session, sequence, key, value.len());
                wire::put_bytes(&mut out, value);
                out
            }
            Self::Cas { session, sequence, key, expected, value } => {
                let more = value.len() + expected.map_or(0, <[u8]>::len);
                let mut out = begin(CAS, session, sequence, key, more);
                out.push(expected.is_some().into());
                wire::put_bytes(&mut out, expected.unwrap_or_default());
                wire::put_bytes(&mut out, value);
                out
            }
        }
    }

    /// The command with these bytes; none if there is none.
    #[must_use]
    pub fn decode(bytes: &'b [u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        if kind == OPEN {
            return reader.is_empty().then_some(Self::Open);
        }
        let (session, sequence, key) = (reader.u64()?, reader.u64()?, reader.bytes()?);
        let command = match kind {
            PUT => Self::Put { session, sequence, key, value: reader.bytes()? },
            CAS => {
                let (expects, expected) = (reader.u8()? != 0, reader.bytes()?);
                let expected = expects.then_some(expected);
                Self::Cas { session, sequence, key, expected, value: reader.bytes()? }
            }
            _ => return None,
        };
        reader.is_empty().then_some(command)
    }
}

/// Whether a key has a possible length.
///
/// # Errors
/// A text that says what is wrong.
pub fn check_key(key: &[u8]) -> Result<(), String> {
    match key.len() {
        1..=MAX_KEY => Ok(()),
        len => Err(format!("the key has {len} bytes, but must have 1 to {MAX_KEY}")),
    }
}

/// Whether a value has a possible length.
///
/// # Errors
/// A text that says what is wrong.
pub fn check_value(value: &[u8]) -> Result<(), String> {
    match value.len() {
        0..=MAX_VALUE => Ok(()),
        len => Err(format!("the value has {len} bytes, but at most {MAX_VALUE} are possible")),
    }
}
