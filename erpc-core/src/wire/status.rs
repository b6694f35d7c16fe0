//! The body of a `Failure` message: `code u32`, `message length u32`, message (UTF-8), details.
//!
//! One code is not a status: [`DRAINING`].

use crate::status::{Code, Status};

/// The code of a `Failure` that refuses a request: the server shuts down, and no handler has run or
/// will run. It has no message and no details.
pub const DRAINING: u32 = 17;

/// The body of a `Failure` that refuses a request.
#[must_use]
pub fn encode_refusal() -> [u8; 8] {
    (u64::from(DRAINING)).to_le_bytes()
}

/// Whether the body of a `Failure` refuses the request.
#[must_use]
pub fn is_refusal(body: &[u8]) -> bool {
    body.first_chunk() == Some(&DRAINING.to_le_bytes())
}

/// Longest status message that is sent, in bytes. A longer message is truncated at a character
/// boundary.
pub const MAX_STATUS_MESSAGE: usize = 1_024;

/// Appends the wire form of `status` to `out`: 8 bytes, the message and the details.
pub fn encode_status(status: &Status, out: &mut Vec<u8>) {
    let message = status.message();
    let mut cut = message.len().min(MAX_STATUS_MESSAGE);
    while !message.is_char_boundary(cut) {
        cut -= 1;
    }
    out.extend_from_slice(&(status.code() as u32).to_le_bytes());
    out.extend_from_slice(&(cut as u32).to_le_bytes());
    out.extend_from_slice(&message.as_bytes()[..cut]);
    out.extend_from_slice(status.details());
}

/// Reads a status from the body of a `Failure`.
///
/// Never fails, whatever the peer sends. An unknown code becomes [`Code::Unknown`]. A body that is
/// too short becomes a status that says so. Invalid UTF-8 in the message is replaced by replacement
/// characters.
#[must_use]
pub fn decode_status(body: &[u8]) -> Status {
    let Some((fixed, rest)) = body.split_first_chunk::<8>() else {
        return Status::new(Code::Unknown, "the peer sent a failure without a status");
    };
    let [c0, c1, c2, c3, l0, l1, l2, l3] = *fixed;
    let code = Code::from_u32(u32::from_le_bytes([c0, c1, c2, c3]));
    let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    let Some((message, details)) = rest.split_at_checked(len) else {
        return Status::new(code, "(the peer's status message was cut short)");
    };
    Status::new(code, String::from_utf8_lossy(message).into_owned()).with_details(details)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_encoded_status_is_decoded_unchanged(code in 0u32..17, message in ".{0,300}", details in proptest::collection::vec(any::<u8>(), 0..64)) {
            let status = Status::new(Code::from_u32(code), message).with_details(&details);
            let mut bytes = Vec::new();
            encode_status(&status, &mut bytes);
            if status.message().len() <= MAX_STATUS_MESSAGE {
                prop_assert_eq!(decode_status(&bytes), status);
            }
        }

        #[test]
        fn any_body_decodes_to_a_status(body in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _status = decode_status(&body);
        }
    }

    #[test]
    fn no_status_is_read_as_a_refusal() {
        assert!(is_refusal(&encode_refusal()));
        for code in 0..=u32::from(u8::MAX) {
            let mut bytes = Vec::new();
            encode_status(&Status::new(Code::from_u32(code), "text"), &mut bytes);
            assert!(!is_refusal(&bytes), "code {code}");
        }
    }

    #[test]
    fn a_long_message_is_truncated_at_a_character_boundary() {
        let mut bytes = Vec::new();
        encode_status(&Status::new(Code::Internal, "é".repeat(600) + "x"), &mut bytes);
        assert_eq!(decode_status(&bytes).message(), "é".repeat(512));
        let mut bytes = Vec::new();
        encode_status(&Status::new(Code::Internal, "x".to_owned() + &"é".repeat(600)), &mut bytes);
        assert_eq!(decode_status(&bytes).message().len(), 1_023);
    }
}
