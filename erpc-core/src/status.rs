//! How a handler says that it failed.

use std::borrow::Cow;
use std::fmt;

/// Why a call failed, with gRPC's canonical meanings and numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
#[non_exhaustive]
pub enum Code {
    /// Not an error. A handler that fails with it is reported as [`Code::Unknown`].
    Ok = 0,
    /// The caller gave up.
    Cancelled = 1,
    /// An error that fits no other code, or a code this version does not know.
    Unknown = 2,
    /// The request is wrong whatever the state of the server: malformed, out of range, too large.
    InvalidArgument = 3,
    /// Too late; the work may have been done.
    DeadlineExceeded = 4,
    /// There is no such thing.
    NotFound = 5,
    /// The thing to be made is there already.
    AlreadyExists = 6,
    /// The caller may not do this.
    PermissionDenied = 7,
    /// A quota, a queue or memory is used up; try again later.
    ResourceExhausted = 8,
    /// The server's state forbids it; trying again does not help until somebody mends the state.
    FailedPrecondition = 9,
    /// A conflict with another caller; try again from the start.
    Aborted = 10,
    /// Past the end of a range that may grow.
    OutOfRange = 11,
    /// The server has no such method.
    Unimplemented = 12,
    /// An invariant broke, or the handler panicked.
    Internal = 13,
    /// Not now; try again with backoff.
    Unavailable = 14,
    /// Data was lost or corrupted beyond repair.
    DataLoss = 15,
    /// The caller did not say who it is.
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

    /// The code with that number, [`Code::Unknown`] if there is none.
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

/// A failed call as the server tells it: a code, a message for people and optional details for
/// programs.
///
/// The message travels up to [`crate::wire::MAX_STATUS_MESSAGE`] bytes; details are opaque.
///
/// One word, so that results are small: a failure pays for it with an allocation, and successes do not
/// move its room around.
#[derive(Clone, PartialEq, Eq)]
pub struct Status(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    code: Code,
    message: Cow<'static, str>,
    details: Vec<u8>,
}

impl Status {
    /// A status without details. [`Code::Ok`] is taken as [`Code::Unknown`]: a status is a failure.
    #[must_use]
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        let code = if code == Code::Ok { Code::Unknown } else { code };
        Self(Box::new(Inner { code, message: message.into(), details: Vec::new() }))
    }

    /// The same with details.
    #[must_use]
    pub fn with_details(mut self, details: &[u8]) -> Self {
        self.0.details = details.to_vec();
        self
    }

    /// The same with a protobuf message as details; which one is between the service and its clients.
    #[must_use]
    pub fn with_message_details(mut self, details: &impl prost::Message) -> Self {
        self.0.details = details.encode_to_vec();
        self
    }

    /// What a server answers to calls of a method that it lacks. The method's id as details sets it apart from
    /// what handlers say with that code, so that clients, which know the name, can fill it in.
    pub(crate) fn no_such_method(id: u32, message: impl Into<Cow<'static, str>>) -> Self {
        Self::unimplemented(message).with_details(&id.to_le_bytes())
    }

    /// Whether it says that the server has no method with that id.
    pub(crate) fn is_no_such_method(&self, id: u32) -> bool {
        self.code() == Code::Unimplemented && self.details() == id.to_le_bytes()
    }

    /// The code, never [`Code::Ok`].
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The details.
    #[must_use]
    pub fn details(&self) -> &[u8] {
        &self.0.details
    }

    /// The details as a protobuf message; `None` if there are none, or they are no such message.
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

/// One constructor per code that handlers return.
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
    cancelled Cancelled "the caller gave up",
    deadline_exceeded DeadlineExceeded "too late",
    invalid_argument InvalidArgument "the request is wrong in itself",
    not_found NotFound "there is no such thing",
    already_exists AlreadyExists "the thing to be made is there already",
    permission_denied PermissionDenied "the caller may not do this",
    resource_exhausted ResourceExhausted "a queue, a quota or memory is used up",
    failed_precondition FailedPrecondition "the server's state forbids it",
    aborted Aborted "a conflict with another caller",
    out_of_range OutOfRange "past the end of a range",
    unimplemented Unimplemented "there is no such method",
    internal Internal "an invariant broke",
    unavailable Unavailable "not now, try again",
    data_loss DataLoss "data was lost beyond repair",
    unauthenticated Unauthenticated "the caller did not say who it is",
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.message())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Status")
            .field("code", &self.code())
            .field("message", &self.message())
            .field("details", &self.details().escape_ascii().to_string())
            .finish()
    }
}

impl std::error::Error for Status {}
