//! Responses between the protocol and the user: splitting, decoding, and errors.

use crate::buf::MsgBuf;
use crate::protocol::{CallError, Cause};
use crate::service::{Codec, Metadata, MetadataRef, method_id};
use crate::wire::extension::Extension;

/// A response that is stored until its future takes it.
pub(crate) struct KeptReply {
    pub(crate) bytes: MsgBuf,
    pub(crate) extended: bool,
}

impl KeptReply {
    #[inline]
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

/// The message without the extension.
#[inline]
pub(crate) fn message(bytes: &[u8], extended: bool) -> Result<&[u8], CallError> {
    if !extended {
        return Ok(bytes);
    }
    Extension::split(bytes).map(|(_, message)| message).map_err(|_| MALFORMED)
}

/// The error of a call of the method with this full name. The status for an unknown method becomes
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

/// Decodes a message of at most `limit` bytes.
#[inline(always)]
pub(crate) fn decoded<M, D: Codec<M>>(bytes: &[u8], limit: u32) -> Result<M, CallError> {
    if bytes.len() > limit as usize {
        return Err(too_large(bytes));
    }
    // Not `map_err`, which would copy the message once more.
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
