//! Responses on their way to the user.

use crate::buf::MsgBuf;
use crate::protocol::{CallError, Cause};
use crate::service::{Codec, Metadata, MetadataRef, method_id};
use crate::wire::extension::Extension;

/// A response that waits for its future.
pub(crate) struct KeptReply {
    pub(crate) bytes: MsgBuf,
    pub(crate) extended: bool,
}

impl KeptReply {
    pub(crate) fn message(&self) -> Result<&[u8], CallError> {
        message(self.bytes.as_slice(), self.extended)
    }

    pub(crate) fn metadata(&self) -> Result<Metadata, CallError> {
        if !self.extended {
            return Ok(Metadata::new());
        }
        let (extension, _) = Extension::split(self.bytes.as_slice()).map_err(|_| MALFORMED)?;
        Ok(MetadataRef::new(extension.as_bytes()).to_owned())
    }
}

pub(super) const MALFORMED: CallError = CallError::ResponseLost(Cause::Malformed);

/// The message proper.
#[inline]
pub(crate) fn message(bytes: &[u8], extended: bool) -> Result<&[u8], CallError> {
    if !extended {
        return Ok(bytes);
    }
    Extension::split(bytes).map(|(_, message)| message).map_err(|_| MALFORMED)
}

/// The error of a call of the method with this full name: the status for an unknown method becomes
/// [`CallError::NoSuchMethod`].
#[cold]
pub(crate) fn named(error: CallError, method: &'static str) -> CallError {
    match error {
        CallError::Status(status) if status.is_no_such_method(method_id(method)) => {
            CallError::NoSuchMethod(method)
        }
        error => error,
    }
}

/// The message, if it has no more than `limit` bytes and decodes.
#[inline]
pub(crate) fn decoded<M, D: Codec<M>>(bytes: &[u8], limit: u32) -> Result<M, CallError> {
    if bytes.len() > limit as usize {
        return Err(too_large(bytes));
    }
    // Not by way of `map_err`: the message would be copied once more on its way.
    match D::decode(bytes) {
        Ok(message) => Ok(message),
        Err(_) => Err(MALFORMED),
    }
}

#[cold]
pub(crate) fn too_large(bytes: &[u8]) -> CallError {
    let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    CallError::ResponseLost(Cause::ResponseTooLarge(size))
}
