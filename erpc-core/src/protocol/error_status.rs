//! Converts a failed call to a status, for the handler that made the call.

use super::{CallError, Cause, RejectReason};
use crate::status::{Code, Status};

impl CallError {
    /// The failure as a status code. If the server answered with a status, this is its code;
    /// otherwise the code that a server would return for this reason.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Status(status) => status.code(),
            Self::Rejected(reason) => reason.code(),
            Self::NoServer(why) => why.cause().code(),
            Self::NoSuchMethod(_) => Code::Unimplemented,
            Self::NotExecuted(cause) | Self::MaybeExecuted(cause) | Self::ResponseLost(cause) => {
                cause.code()
            }
        }
    }
}

impl RejectReason {
    fn code(self) -> Code {
        match self {
            Self::QueueFull | Self::NoMemory(_) => Code::ResourceExhausted,
            Self::NoSession | Self::Disconnecting | Self::PeerDraining => Code::Unavailable,
            Self::TooLarge { .. } => Code::InvalidArgument,
            Self::DeadlineExceeded => Code::DeadlineExceeded,
            Self::StreamEnded => Code::Cancelled,
        }
    }
}

impl Cause {
    fn code(self) -> Code {
        match self {
            Self::Connect(_)
            | Self::Unresolved
            | Self::NotServing
            | Self::PeerDead
            | Self::Unreachable(_)
            | Self::NoProgress
            | Self::AddressChanged
            | Self::PeerReset
            | Self::PeerClosed
            | Self::PeerDraining
            | Self::Disconnected
            | Self::Shutdown => Code::Unavailable,
            Self::RequestTooLarge(_) => Code::InvalidArgument,
            Self::ResponseTooLarge(_) => Code::OutOfRange,
            Self::NoMemory => Code::ResourceExhausted,
            Self::Cancelled => Code::Cancelled,
            Self::DeadlineExceeded => Code::DeadlineExceeded,
            Self::Malformed => Code::Internal,
        }
    }
}

/// For handlers that call other servers or send messages of a stream. The status of a failed call
/// is passed on unchanged, details included. Other failures become a status with the text of
/// [`CallError`]. If a message was too large to send, the status is [`Code::OutOfRange`], as for a
/// response that is too large: the handler made the message, not its caller.
impl From<CallError> for Status {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Status(status) => status,
            CallError::Rejected(RejectReason::TooLarge { size, limit }) => {
                Self::out_of_range(format!("a message has {size} bytes, the limit is {limit}"))
            }
            error => Self::new(error.code(), error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_passes_through_a_handler_unchanged() {
        let status = Status::not_found("no such key").with_details(b"k7");
        assert_eq!(Status::from(CallError::Status(status.clone())), status);
    }

    #[test]
    fn a_message_that_is_too_large_to_send_is_not_its_callers_mistake() {
        let large = CallError::Rejected(RejectReason::TooLarge { size: 10, limit: 5 });
        let status = Status::from(large);
        assert_eq!(status.code(), Code::OutOfRange);
        assert_eq!(status.message(), "a message has 10 bytes, the limit is 5");
    }

    #[test]
    fn a_failure_without_a_status_says_whether_a_retry_is_safe() {
        let gone = Status::from(CallError::NotExecuted(Cause::PeerDead));
        assert_eq!(gone.code(), Code::Unavailable);
        assert!(gone.message().contains("not executed"), "{gone}");
        let large = RejectReason::TooLarge { size: 10, limit: 5 };
        assert_eq!(CallError::Rejected(large).code(), Code::InvalidArgument);
        assert_eq!(CallError::Rejected(RejectReason::QueueFull).code(), Code::ResourceExhausted);
        assert_eq!(CallError::ResponseLost(Cause::Malformed).code(), Code::Internal);
    }
}
