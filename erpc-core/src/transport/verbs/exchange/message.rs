//! The messages, all of one length. All numbers are in little-endian order.
//!
//! ```text
//!            0        4   5      6      8       16    32    34     36    40      44      84     88
//!   Ask      | "eRPv" | 1 | kind | zero | nonce | zero                                         |
//!   Answer   | "eRPv" | 1 | kind | zero | nonce | GID | LID | zero | QPN | Q_Key | token | zero |
//!   Present  | "eRPv" | 1 | kind | zero | zero                           | Q_Key | token | zero |
//! ```

use std::fmt;

use super::token::{TOKEN_LEN, Token};
use crate::transport::verbs::device::Gid;

/// Bytes of each message.
pub const MESSAGE_LEN: usize = 88;

const MAGIC: [u8; 4] = *b"eRPv";
const VERSION: u8 = 1;
const NONCE: usize = 8;
const GID: usize = 16;
const LID: usize = 32;
const QPN: usize = 36;
const QKEY: usize = 40;
const TOKEN: usize = 44;
const END: usize = TOKEN + TOKEN_LEN;
/// Numbers of queue pairs have 24 bits.
const MOST_QPN: u32 = 0xff_ffff;

/// A client's question for the server's verbs address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// A random number, which the answer repeats.
    pub nonce: u64,
}

/// A server's verbs address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The question's.
    pub nonce: u64,
    /// The port's GID.
    pub gid: Gid,
    /// The port's LID, 0 over Ethernet.
    pub lid: u16,
    /// The queue pair's number.
    pub qpn: u32,
    /// The queue pair's Q_Key.
    pub qkey: u32,
    /// Proves that the client receives at its UDP address.
    pub token: Token,
}

/// A client's introduction, in a datagram from its queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Present {
    /// The Q_Key of the client's queue pair.
    pub qkey: u32,
    /// The token of the answer.
    pub token: Token,
}

/// A message of the exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// A question, over UDP.
    Ask(Ask),
    /// Its answer, over UDP.
    Answer(Answer),
    /// The introduction, in a datagram of the queue pair.
    Present(Present),
}

/// Bytes that are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no message of the exchange of verbs addresses")
    }
}

impl std::error::Error for Malformed {}

impl Message {
    /// Reads a message. Bytes that are zero by definition must be zero, so that each message has
    /// one form.
    ///
    /// # Errors
    /// [`Malformed`] for all other bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let bytes: &[u8; MESSAGE_LEN] = bytes.try_into().map_err(|_| Malformed)?;
        if bytes[..4] != MAGIC || bytes[4] != VERSION {
            return Err(Malformed);
        }
        let message = match bytes[5] {
            1 => Self::Ask(Ask { nonce: u64::from_le_bytes(part(bytes, NONCE)) }),
            2 => Self::Answer(Answer {
                nonce: u64::from_le_bytes(part(bytes, NONCE)),
                gid: Gid(part(bytes, GID)),
                lid: u16::from_le_bytes(part(bytes, LID)),
                qpn: u32::from_le_bytes(part(bytes, QPN)),
                qkey: u32::from_le_bytes(part(bytes, QKEY)),
                token: Token(part(bytes, TOKEN)),
            }),
            3 => Self::Present(Present {
                qkey: u32::from_le_bytes(part(bytes, QKEY)),
                token: Token(part(bytes, TOKEN)),
            }),
            _ => return Err(Malformed),
        };
        let is_numbered = !matches!(message, Self::Answer(answer) if answer.qpn > MOST_QPN);
        if is_numbered && message.to_bytes() == *bytes { Ok(message) } else { Err(Malformed) }
    }

    /// The message's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; MESSAGE_LEN] {
        let mut bytes = [0; MESSAGE_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        match self {
            Self::Ask(ask) => {
                bytes[5] = 1;
                put(&mut bytes, NONCE, ask.nonce.to_le_bytes());
            }
            Self::Answer(answer) => {
                bytes[5] = 2;
                put(&mut bytes, NONCE, answer.nonce.to_le_bytes());
                put(&mut bytes, GID, answer.gid.0);
                put(&mut bytes, LID, answer.lid.to_le_bytes());
                put(&mut bytes, QPN, answer.qpn.to_le_bytes());
                put(&mut bytes, QKEY, answer.qkey.to_le_bytes());
                put(&mut bytes, TOKEN, answer.token.0);
            }
            Self::Present(present) => {
                bytes[5] = 3;
                put(&mut bytes, QKEY, present.qkey.to_le_bytes());
                put(&mut bytes, TOKEN, present.token.0);
            }
        }
        bytes
    }
}

const _: () = assert!(END <= MESSAGE_LEN);

fn part<const N: usize>(bytes: &[u8; MESSAGE_LEN], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

fn put<const N: usize>(bytes: &mut [u8; MESSAGE_LEN], at: usize, part: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&part);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> [Message; 3] {
        let token = Token(std::array::from_fn(|at| at as u8 + 1));
        [
            Message::Ask(Ask { nonce: 0x0807_0605_0403_0201 }),
            Message::Answer(Answer {
                nonce: 7,
                gid: Gid([9; 16]),
                lid: 5,
                qpn: 0xff_ffff,
                qkey: 0x1122_3344,
                token,
            }),
            Message::Present(Present { qkey: 0x1122_3344, token }),
        ]
    }

    #[test]
    fn messages_are_unchanged_by_both_conversions() {
        for message in messages() {
            assert_eq!(Message::parse(&message.to_bytes()), Ok(message));
        }
    }

    #[test]
    fn the_bytes_of_a_question_are_those_of_the_specification() {
        let mut expected = [0; MESSAGE_LEN];
        expected[..6].copy_from_slice(b"eRPv\x01\x01");
        expected[8..16].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(messages()[0].to_bytes(), expected);
    }

    #[test]
    fn other_lengths_versions_kinds_and_fillings_are_refused() {
        for message in messages() {
            let bytes = message.to_bytes();
            for len in 0..MESSAGE_LEN {
                assert_eq!(Message::parse(&bytes[..len]), Err(Malformed));
            }
            assert_eq!(Message::parse(&[&bytes[..], &[0]].concat()), Err(Malformed));
            for at in [0, 1, 2, 3, 4, 6, 7, 87] {
                let mut bytes = bytes;
                bytes[at] ^= 1;
                assert_eq!(Message::parse(&bytes), Err(Malformed), "byte {at}");
            }
            for kind in [0, 4, 255] {
                let mut bytes = bytes;
                bytes[5] = kind;
                assert_eq!(Message::parse(&bytes), Err(Malformed), "kind {kind}");
            }
        }
        let mut bytes = messages()[1].to_bytes();
        bytes[QPN + 3] = 1;
        assert_eq!(Message::parse(&bytes), Err(Malformed), "a queue pair's number has 24 bits");
    }
}
