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

/// The result to pass to [`decode_in`]. It holds an empty message, if the codec decodes in place.
#[inline(always)]
pub(crate) fn undecoded<M, D: Codec<M>>() -> Result<M, CallError> {
    D::blank().ok_or(MALFORMED)
}

/// Decodes a message of at most `limit` bytes into `result`, which [`undecoded`] has returned.
///
/// Not inlined, and without a return value: the compiler then leaves the message where it is
/// decoded. Otherwise it moves the message in parts that are larger than the fields just written,
/// which waits for the store buffer of the processor.
#[inline(never)]
pub(crate) fn decode_in<M, D: Codec<M>>(
    result: &mut Result<M, CallError>,
    bytes: &[u8],
    limit: u32,
) {
    if bytes.len() > limit as usize {
        *result = Err(too_large(bytes));
        return;
    }
    match result {
        Ok(message) => {
            if D::decode_into(message, bytes).is_err() {
                *result = Err(MALFORMED);
            }
        }
        Err(_) => *result = D::decode(bytes).map_err(|_| MALFORMED),
    }
}

/// Decodes a message of at most `limit` bytes.
pub(crate) fn decoded<M, D: Codec<M>>(bytes: &[u8], limit: u32) -> Result<M, CallError> {
    let mut result = undecoded::<M, D>();
    decode_in::<M, D>(&mut result, bytes, limit);
    result
}

#[cold]
pub(crate) fn too_large(bytes: &[u8]) -> CallError {
    let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    CallError::ResponseLost(Cause::ResponseTooLarge(size))
}
