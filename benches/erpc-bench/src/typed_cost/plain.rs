//! The call of workload w4 through the raw layer: code that writes and reads the bytes directly.

use bytes::BufMut;
use erpc::Transport;
use erpc::raw::{App, Body, Context, MsgBuf, Request};
use erpc::service::method_id;

use super::closed_loop::{ClosedLoop, Messages};
use super::messages::{ANSWER, REQUEST, Store, VALUE, is_answer};
use super::{Setup, Subject};
use crate::failure::Failure;

pub(super) fn subject(setup: &Setup) -> Result<Box<dyn Subject>, Failure> {
    Ok(Box::new(ClosedLoop::new(setup, PlainMessages, StoreServer(Store::new()))?))
}

struct PlainMessages;

impl Messages for PlainMessages {
    fn room(&self) -> usize {
        REQUEST
    }

    #[inline(always)]
    fn method(&self) -> u32 {
        const { method_id("bench.v1.Cost/GetRaw") }
    }

    #[inline(always)]
    fn write(&self, key: u64, request: &mut MsgBuf) {
        request.clear();
        request.put_u64_le(key);
    }

    #[inline(always)]
    fn is_answer(&self, answer: &[u8], key: u64) -> bool {
        matches!(answer, [value @ .., found] if is_answer(value, *found != 0, key))
    }
}

/// The server.
struct StoreServer(Store);

impl<T: Transport> App<T> for StoreServer {
    #[inline(always)]
    fn on_request(&mut self, cx: &mut Context<'_, T>, request: Request<'_, T::Route>) {
        let handle = request.handle;
        let key = request.body.as_slice().first_chunk().map(|key| u64::from_le_bytes(*key));
        if let Some(key) = key
            && let Ok(mut answer) = cx.response_buffer(request.buffer, ANSWER)
        {
            let (value, found) = self.0.get(key);
            answer.resize(ANSWER);
            let bytes = answer.as_mut_slice();
            bytes[..VALUE].copy_from_slice(value);
            bytes[VALUE] = found.into();
            cx.respond(handle, answer, false);
        }
        if let Body::Message(message) = request.body {
            cx.recycle(message);
        }
    }
}
