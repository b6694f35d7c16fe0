//! How a client's calls fail.

use std::error::Error;
use std::fmt;

/// A call has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientError {
    /// Key or value have an impossible length. Nothing was done.
    Invalid(String),
    /// The members must change before this can be done; the text says how. This attempt has done nothing.
    /// An earlier one that was not answered may still act.
    Refused(String),
    /// No node has answered in time; the text says what the last attempt met. A write may have been made,
    /// or be made later.
    Unavailable(String),
    /// The session does not exist any more, because many others were opened. Whether the write was made is
    /// not known. Open another session.
    Expired,
    /// The session has made a later write: it is used twice.
    Stale,
    /// The text is no address.
    Address(String),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(why) | Self::Refused(why) => f.write_str(why),
            Self::Unavailable(why) => write!(f, "no leader has answered in time; the last attempt: {why}"),
            Self::Expired => f.write_str(
                "the session has ended, because many others were opened; whether the write was made is \
                 not known",
            ),
            Self::Stale => f.write_str("the session has made a later write: it is used twice"),
            Self::Address(text) => write!(f, "{text:?} is no address; give HOST:PORT"),
        }
    }
}

impl Error for ClientError {}
