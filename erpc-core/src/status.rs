//! The status of a failed call: codes, messages and details.

use std::borrow::Cow;
use std::fmt;

/// Why a call failed, with gRPC's canonical codes and numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
#[non_exhaustive]
pub enum Code {
    /// Not an error. A handler that fails with it is reported as [`Code::Unknown`].
    Ok = 0,
    /// The caller cancelled the call.
    Cancelled = 1,
    /// An error without a better code, or a code that this version does not know.
    Unknown = 2,
    /// The request is invalid in any state of the server: malformed, out of range, too large.
    InvalidArgument = 3,
    /// The deadline has passed; the call may have been executed.
    DeadlineExceeded = 4,
    /// The requested entity does not exist.
    NotFound = 5,
    /// The entity to be created exists already.
    AlreadyExists = 6,
    /// The caller does not have permission.
    PermissionDenied = 7,
    /// A quota, a queue or memory is exhausted; retry later.
    ResourceExhausted = 8,
    /// The server's state does not allow the call; a retry does not help until somebody repairs
    /// that state.
    FailedPrecondition = 9,
    /// A conflict with another caller; retry from the start.
    Aborted = 10,
    /// The call reads beyond the end of something that can grow, such as a file.
    OutOfRange = 11,
    /// The server has no such method.
    Unimplemented = 12,
    /// An invariant broke, or the handler panicked.
    Internal = 13,
    /// The service is currently unavailable; retry with backoff.
    Unavailable = 14,
    /// Data was lost or corrupted, unrecoverably.
    DataLoss = 15,
    /// The caller has not authenticated.
    Unauthenticated = 16,
}

impl Code {
    const ALL: [Self; 17] = [
        Self::Ok,
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// The code with number `raw`; [`Code::Unknown`] if there is none.
    #[must_use]
    pub fn from_u32(raw: u32) -> Self {
        Self::ALL.get(raw as usize).copied().unwrap_or(Self::Unknown)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The status of a failed call: a code, a message for people and optional details for programs.
///
/// At most [`crate::wire::MAX_STATUS_MESSAGE`] bytes of the message are sent; details are opaque.
///
/// A status is one pointer, so a `Result` with a status as its error is small. Only a failure costs
/// an allocation.
#[derive(Clone, PartialEq, Eq)]
pub struct Status(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    code: Code,
    message: Cow<'static, str>,
    details: Vec<u8>,
}

impl Status {
    /// A status without details. [`Code::Ok`] becomes [`Code::Unknown`], because a status is always
    /// a failure.
    #[must_use]
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        let code = if code == Code::Ok { Code::Unknown } else { code };
        Self(Box::new(Inner { code, message: message.into(), details: Vec::new() }))
    }

    /// The same status with these details.
    #[must_use]
    pub fn with_details(mut self, details: &[u8]) -> Self {
        self.0.details = details.to_vec();
        self
    }

    /// The same status with a protobuf message as details. The service and its clients agree on the
    /// message's type.
    #[must_use]
    pub fn with_message_details(mut self, details: &impl prost::Message) -> Self {
        self.0.details = details.encode_to_vec();
        self
    }

    /// The server's answer to a call of a method that it does not have. The details hold the
    /// method's id. They distinguish this answer from a handler's status with the same code. So a
    /// client, which knows the method's name, can fill in the name.
    pub(crate) fn no_such_method(id: u32, message: impl Into<Cow<'static, str>>) -> Self {
        Self::unimplemented(message).with_details(&id.to_le_bytes())
    }

    /// Whether this status means that the server has no method with that id.
    pub(crate) fn is_no_such_method(&self, id: u32) -> bool {
        self.code() == Code::Unimplemented && self.details() == id.to_le_bytes()
    }

    /// The code, never [`Code::Ok`].
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The message; empty if there is none.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The details; empty if there are none.
    #[must_use]
    pub fn details(&self) -> &[u8] {
        &self.0.details
    }

    /// The details as a protobuf message; `None` if they are empty or not a valid `M`.
    ///
    /// ```
    /// use erpc_core::status::Status;
    ///
    /// let status = Status::resource_exhausted("slow down").with_message_details(&1_500_u64);
    /// assert_eq!(status.details_as::<u64>(), Some(1_500));
    /// ```
    #[must_use]
    pub fn details_as<M: prost::Message + Default>(&self) -> Option<M> {
        if self.details().is_empty() { None } else { M::decode(self.details()).ok() }
    }
}

/// Constructors, one per code that handlers return.
macro_rules! constructors {
    ($($name:ident $code:ident $what:literal),* $(,)?) => {
        impl Status {
            $(
                #[doc = concat!("A [`Code::", stringify!($code), "`]: ", $what, ".")]
                #[must_use]
                pub fn $name(message: impl Into<Cow<'static, str>>) -> Self {
                    Self::new(Code::$code, message)
                }
            )*
        }
    };
}

constructors! {
    cancelled Cancelled "the caller cancelled the call",
    deadline_exceeded DeadlineExceeded "the deadline has passed",
    invalid_argument InvalidArgument "the request is invalid in any state of the server",
    not_found NotFound "the requested entity does not exist",
    already_exists AlreadyExists "the entity to be created exists already",
    permission_denied PermissionDenied "the caller does not have permission",
    resource_exhausted ResourceExhausted "a queue, a quota or memory is exhausted",
    failed_precondition FailedPrecondition "the server's state does not allow the call",
    aborted Aborted "a conflict with another caller",
    out_of_range OutOfRange "beyond the end of a range",
    unimplemented Unimplemented "the server has no such method",
    internal Internal "an invariant broke",
    unavailable Unavailable "the service is currently unavailable, retry",
    data_loss DataLoss "data was lost, unrecoverably",
    unauthenticated Unauthenticated "the caller has not authenticated",
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.message())
    }
}

impl fmt::Debug for Status {
    /// As `Display`, with the details if there are any, because a `main` that returns an error and
    /// `unwrap` print `Debug`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)?;
        match self.details() {
            [] => Ok(()),
            details => write!(f, " (details: {})", details.escape_ascii()),
        }
    }
}

impl std::error::Error for Status {}
